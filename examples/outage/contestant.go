package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/axsched/ax"
)

const (
	callersPerSecond = 80
	pages            = 40
	seconds          = int((healthy + failing + dead + back) / time.Second)

	atOnce   = 10
	openFor  = time.Second
	rampOver = 3 * time.Second
)

// kind is what became of one call.
type kind int

const (
	answers kind = iota
	stale
	failures
	kinds
)

// client gets one page; state is a word about it for the table.
type client struct {
	get   func(ctx context.Context, url string) kind
	state func() string
	rises func() time.Time // when its breaker last began to let traffic rise
	close func()
}

// contestant is a client, its backend and what its callers saw in each second.
type contestant struct {
	*backend
	client

	mu     sync.Mutex
	saw    [kinds][seconds + 1]int
	states [seconds]string
}

func newContestant(start time.Time, make func() (client, error)) (*contestant, error) {
	c, err := make()
	if err != nil {
		return nil, err
	}
	return &contestant{backend: newBackend(start), client: c}, nil
}

func (c *contestant) close() {
	c.client.close()
	c.Close()
}

// play lets the callers come, evenly, for as long as the script goes.
func (c *contestant) play() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var all sync.WaitGroup
	for i := range seconds * callersPerSecond {
		at := time.Duration(i) * time.Second / callersPerSecond
		time.Sleep(time.Until(c.start.Add(at)))
		if i%callersPerSecond == callersPerSecond/2 {
			c.states[i/callersPerSecond] = c.state()
		}
		all.Go(func() {
			k := c.get(ctx, fmt.Sprintf("%s/page?id=%d", c.URL, i%pages))
			c.count(k)
		})
	}
	all.Wait()
}

func (c *contestant) count(k kind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.saw[k][min(int(time.Since(c.start)/time.Second), seconds)]++
}

func (c *contestant) sum(k kind) (n int) {
	for _, saw := range c.saw[k] {
		n += saw
	}
	return n
}

// risesAt is when the last recovery began, in the script's time.
func (c *contestant) risesAt() time.Duration { return c.rises().Sub(c.start) }

// newNaive tries four times, as quickly as it can bear.
func newNaive() (client, error) {
	plain := &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
	get := func(ctx context.Context, url string) kind {
		for attempt := range 4 {
			if attempt > 0 {
				time.Sleep(100 * time.Millisecond)
			}
			resp, err := plain.Get(url)
			if err != nil {
				continue
			}
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if err == nil && resp.StatusCode == http.StatusOK {
				return answers
			}
		}
		return failures
	}
	return client{
		get: get, state: func() string { return "-" }, rises: func() time.Time { return time.Time{} },
		close: plain.CloseIdleConnections,
	}, nil
}

// newGated is ax, with the last good answer for callers of a dead backend.
func newGated() (client, error) {
	var mu sync.Mutex
	var rises time.Time
	sched, err := ax.New(nil, ax.Config{
		Retry: &ax.Retry{Max: 3},
		Hosts: &ax.Lane{
			MaxConcurrent: atOnce,
			Breaker:       &ax.Breaker{OpenFor: openFor, Ramp: rampOver, WhenOpen: ax.OpenReject},
			Fallback:      &ax.Fallback{Stale: time.Minute},
		},
		OnEvent: func(e ax.Event) {
			if e.Kind == ax.EventBreakerRamping {
				mu.Lock()
				defer mu.Unlock()
				rises = e.Time
			}
		},
	})
	if err != nil {
		return client{}, err
	}
	return client{
		get: func(ctx context.Context, url string) kind { return kindOf(sched.Get(ctx, url)) },
		state: func() string {
			for _, lane := range sched.Stats().Lanes {
				return lane.Breaker.String()
			}
			return "-"
		},
		rises: func() time.Time { mu.Lock(); defer mu.Unlock(); return rises },
		close: func() { sched.Close() },
	}, nil
}

// kindOf tells a fresh answer from an old one and from none.
func kindOf(resp *ax.Response, err error) kind {
	switch {
	case err != nil || resp.StatusCode != http.StatusOK:
		return failures
	case resp.Source == ax.FromStale:
		return stale
	}
	return answers
}
