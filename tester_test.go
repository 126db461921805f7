package ax_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// tester is the vocabulary of the timed tests: a scheduler over a scripted
// server, both inside one synctest bubble, where time is exact.
type tester struct {
	*testing.T
	S      *ax.Scheduler
	Server *server
	start  time.Time
}

// bubble runs f in a synctest bubble with a scheduler made from cfg over a fake
// server, and closes the scheduler afterwards; all its gauges must then be zero.
func bubble(t *testing.T, cfg ax.Config, f func(*tester)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		srv := &server{start: time.Now()}
		var client *http.Client
		if cfg.Executor == nil {
			client = &http.Client{Transport: srv}
		}
		s, err := ax.New(client, cfg)
		require.NoError(t, err)
		defer s.Close() // a failed assertion must not leave goroutines in the bubble
		f(&tester{T: t, S: s, Server: srv, start: srv.start})
		require.NoError(t, s.Close())
		synctest.Wait()
		st := s.Stats()
		require.Zero(t, st.Active, "Active after Close")
		require.Zero(t, st.Queued, "Queued after Close")
		require.Zero(t, st.Parked, "Parked after Close")
		require.Equal(t, st.Submitted, st.Succeeded+st.Failed+st.Canceled+st.Rejected, "one end for each task")
	})
}

// At is the time since the bubble began.
func (t *tester) At() time.Duration { return time.Since(t.start) }

// Until sleeps until d after the bubble began.
func (t *tester) Until(d time.Duration) { time.Sleep(d - t.At()) }

// result is what one Do came to, and when.
type result struct {
	Resp *ax.Response
	Err  error
	At   time.Duration // since the bubble began
}

// Status is the answer's status code, 0 without an answer.
func (r result) Status() int {
	if r.Resp == nil {
		return 0
	}
	return r.Resp.StatusCode
}

// Do runs one task to its end on this goroutine.
func (t *tester) Do(ctx context.Context, r ax.Request) result {
	resp, err := t.S.Do(ctx, ax.Must(r.Task()))
	return result{resp, err, t.At()}
}

// Go runs Do on a goroutine of its own; receive its result from the channel.
func (t *tester) Go(ctx context.Context, r ax.Request) <-chan result {
	task := ax.Must(r.Task())
	c := make(chan result, 1)
	go func() {
		resp, err := t.S.Do(ctx, task)
		c <- result{resp, err, t.At()}
	}()
	return c
}

// GoAt is Go at d after the bubble began.
func (t *tester) GoAt(d time.Duration, ctx context.Context, r ax.Request) <-chan result {
	task := ax.Must(r.Task())
	c := make(chan result, 1)
	go func() {
		t.Until(d)
		resp, err := t.S.Do(ctx, task)
		c <- result{resp, err, t.At()}
	}()
	return c
}

// server is a scripted http.RoundTripper that keeps what it saw. The zero value
// answers 200 at once. Reply may sleep (in the bubble) and must honour the ctx
// of the request if it does: use hit.Sleep.
type server struct {
	Reply func(h *hit) (*http.Response, error) // nil: 200, empty body

	mu     sync.Mutex
	start  time.Time
	hits   []*hit
	active int
	peak   int
}

// hit is one request as the server saw it.
type hit struct {
	*http.Request
	N        int           // 1 = the first that the server saw
	At       time.Duration // arrival, since the bubble began
	End      time.Duration // when the reply was given; 0 while running
	Body     []byte        // what was sent
	Canceled bool          // its ctx ended before the reply
}

// Sleep waits for d or for the end of the request's ctx, whose error it returns.
func (h *hit) Sleep(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-h.Context().Done():
		return h.Context().Err()
	}
}

// RoundTrip records the request and lets Reply answer it.
func (s *server) RoundTrip(req *http.Request) (*http.Response, error) {
	h := &hit{Request: req, At: time.Since(s.start)}
	if req.Body != nil {
		b, err := io.ReadAll(req.Body)
		req.Body.Close()
		if err != nil {
			return nil, err
		}
		h.Body = b
	}
	s.mu.Lock()
	s.hits = append(s.hits, h)
	h.N = len(s.hits)
	s.active++
	s.peak = max(s.peak, s.active)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.active--
		h.End = time.Since(s.start)
		h.Canceled = req.Context().Err() != nil
		s.mu.Unlock()
	}()
	if s.Reply == nil {
		return reply(200, ""), nil
	}
	resp, err := s.Reply(h)
	if resp != nil {
		resp.Request = req
	}
	return resp, err
}

// Hits are the requests seen so far, in order of arrival.
func (s *server) Hits() []*hit {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*hit(nil), s.hits...)
}

// Count is the number of requests seen so far.
func (s *server) Count() int { return len(s.Hits()) }

// Peak is the largest number of requests that ran at once.
func (s *server) Peak() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.peak
}

// Active is the number of requests that run now.
func (s *server) Active() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.active
}

// Times are the arrivals, in order.
func (s *server) Times() []time.Duration {
	var ts []time.Duration
	for _, h := range s.Hits() {
		ts = append(ts, h.At)
	}
	return ts
}

// Paths are the URL paths of the requests, in order of arrival.
func (s *server) Paths() []string {
	var ps []string
	for _, h := range s.Hits() {
		ps = append(ps, h.URL.Path)
	}
	return ps
}

// reply is a response with a body of known length and headers "Name: value".
func reply(status int, body string, headers ...string) *http.Response {
	r := &http.Response{
		StatusCode: status, Status: strconv.Itoa(status) + " " + http.StatusText(status),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{},
		Body: io.NopCloser(bytes.NewReader([]byte(body))), ContentLength: int64(len(body)),
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	return r
}

// after replies with status once d has passed.
func after(d time.Duration, status int, body string) func(*hit) (*http.Response, error) {
	return func(h *hit) (*http.Response, error) {
		if err := h.Sleep(d); err != nil {
			return nil, err
		}
		return reply(status, body), nil
	}
}

// at is an address on a host with a lane of its own.
func at(path string) string { return "http://a.test" + path }
