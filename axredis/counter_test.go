package axredis_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/axsched/ax"
)

// counter is a server that notes when requests start and end.
type counter struct {
	mu    sync.Mutex
	spans []span
	errs  []error
}

type span struct {
	start, end time.Time // end zero = still running
	who        string
}

func newCounter() *counter { return &counter{} }

// begin notes a start; what it returns notes the end.
func (c *counter) begin(who string) (end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := len(c.spans)
	c.spans = append(c.spans, span{start: time.Now(), who: who})
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.spans[i].end = time.Now()
	}
}

// executor answers after d.
func (c *counter) executor(d time.Duration) ax.Executor {
	return ax.ExecutorFunc(func(ctx context.Context, _ *ax.Task) (*http.Response, error) {
		defer c.begin("")()
		select {
		case <-time.After(d):
			return &http.Response{StatusCode: http.StatusOK}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
}

// drive sends one request after the other.
func (c *counter) drive(ctx context.Context, s *ax.Scheduler) {
	for ctx.Err() == nil {
		_, err := s.Send(ctx, ax.Request{URL: "http://a.test/", Lane: "api"})
		if err != nil && !errors.Is(err, context.Canceled) {
			c.mu.Lock()
			c.errs = append(c.errs, err)
			c.mu.Unlock()
		}
	}
}

func (c *counter) errors() []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.errs
}

// all is a copy of what has been seen.
func (c *counter) all() []span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]span(nil), c.spans...)
}

// between counts the starts from a to b.
func (c *counter) between(a, b time.Time) (n int) {
	for _, s := range c.all() {
		if !s.start.Before(a) && s.start.Before(b) {
			n++
		}
	}
	return n
}

// peak is the most that ran at once at a start from a to b.
func (c *counter) peak(a, b time.Time) (most int) {
	spans := c.all()
	for _, at := range spans {
		if at.start.Before(a) || !at.start.Before(b) {
			continue
		}
		n := 0
		for _, s := range spans {
			if !s.start.After(at.start) && (s.end.IsZero() || s.end.After(at.start)) {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// busiest is the most starts in any stretch of d.
func (c *counter) busiest(d time.Duration) (most int) {
	spans := c.all()
	first := 0
	for i, s := range spans {
		for s.start.Sub(spans[first].start) >= d {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}
