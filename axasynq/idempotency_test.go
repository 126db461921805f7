package axasynq_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"
)

// failsOnce is a backend whose first answer is 429.
func failsOnce() *backend {
	return &backend{reply: func(n int, w http.ResponseWriter, _ *http.Request) {
		if n == 1 {
			w.WriteHeader(429)
		}
	}}
}

// quick is a server's config that does not wait between tries.
func quick() asynq.Config {
	c := config()
	c.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return 10 * time.Millisecond }
	return c
}

// keys are the Idempotency-Keys that b has seen.
func (b *backend) keys() (all []string) {
	for _, s := range b.saw() {
		all = append(all, s.key)
	}
	return all
}

// An alternate carries a key of its own, the same on every try, and the next one
// in the chain another; those of callers are kept.
func TestAlternatesHaveKeysThatAreStable(t *testing.T) {
	s := newStore(t)
	failing := func(_ int, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }
	down, first, second, last := &backend{reply: failing}, &backend{reply: failing}, &backend{reply: failing}, failsOnce()
	to := func(b *backend, key string, alternate *ax.Task) ax.Request {
		srv := httptest.NewServer(b)
		t.Cleanup(srv.Close)
		r := ax.Request{Method: "POST", URL: srv.URL, IdempotencyKey: key}
		if alternate != nil {
			r.Fallback = &ax.Fallback{Alternate: alternate}
		}
		return r
	}
	third := ax.Must(to(last, "mine", nil).Task())
	alternate := ax.Must(to(first, "", ax.Must(to(second, "", third).Task())).Task())
	info := s.enqueue(to(down, "", alternate))
	s.serve(ax.Config{}, quick())
	s.await(info, asynq.TaskStateCompleted)
	require.Equal(t, []string{info.ID, info.ID}, down.keys())
	require.Equal(t, []string{info.ID + "-1", info.ID + "-1"}, first.keys())
	require.Equal(t, []string{info.ID + "-2", info.ID + "-2"}, second.keys())
	require.Equal(t, []string{"mine", "mine"}, last.keys())
}

// An alternate that is the same request, by another lane say, is a repetition for
// the server.
func TestAnAlternateThatRepeatsTheRequestHasItsKey(t *testing.T) {
	s := newStore(t)
	b := &backend{reply: func(n int, w http.ResponseWriter, _ *http.Request) {
		if n == 1 {
			w.WriteHeader(500)
		}
	}}
	srv := httptest.NewServer(b)
	defer srv.Close()
	r := ax.Request{Method: "POST", URL: srv.URL, JSON: map[string]int{"n": 1}}
	alternate := r
	alternate.Lane = "spare"
	r.Fallback = &ax.Fallback{Alternate: ax.Must(alternate.Task())}
	info := s.enqueue(r)
	s.serve(ax.Config{Lanes: []ax.Lane{{Name: "spare"}}}, quick())
	s.await(info, asynq.TaskStateCompleted)
	require.Equal(t, []string{info.ID, info.ID}, b.keys())
}

// A header that is there but empty, as some middleware leaves it, is no key.
func TestAnEmptyIdempotencyKeyIsNone(t *testing.T) {
	for _, empty := range []http.Header{{"Idempotency-Key": {""}}, {"idempotency-key": {" "}}, {"Idempotency-Key": {}}} {
		s := newStore(t)
		b := &backend{}
		srv := httptest.NewServer(b)
		info := s.enqueue(ax.Request{Method: "POST", URL: srv.URL, Header: empty})
		s.serve(ax.Config{}, config())
		s.await(info, asynq.TaskStateCompleted)
		require.Equal(t, []string{info.ID}, b.keys())
		srv.Close()
	}
}

// losing grants everything and loses it while it is in flight.
type losing struct{ inFlight <-chan struct{} }

func (l losing) Acquire(context.Context, ax.Ask) (ax.Grant, error) {
	lost := make(chan struct{})
	go func() {
		<-l.inFlight
		close(lost)
	}()
	return ax.Grant{Lost: lost}, nil
}

// What was sent with NoRetry is not sent again, also if it was ax or asynq that ended it.
func TestNoRetryIsSentOnceWhateverEndsIt(t *testing.T) {
	for _, c := range []struct {
		name    string
		cfg     func(arrived <-chan struct{}) ax.Config
		end     func(s *store, sched *ax.Scheduler, info *asynq.TaskInfo) error
		opts    []asynq.Option
		lastErr string
	}{
		{name: "grant lost", cfg: func(arrived <-chan struct{}) ax.Config { return ax.Config{Governor: losing{arrived}} }, lastErr: "grant was lost"},
		{name: "closed", end: func(_ *store, sched *ax.Scheduler, _ *asynq.TaskInfo) error { return sched.Close() }, lastErr: "closed"},
		{name: "out of time", opts: []asynq.Option{asynq.Timeout(time.Second)}, lastErr: "context deadline exceeded: skip retry"},
		{name: "cancelled by hand", end: func(s *store, _ *ax.Scheduler, info *asynq.TaskInfo) error {
			return s.inspector.CancelProcessing(info.ID)
		}, lastErr: "may have been sent"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStore(t)
			arrived := make(chan struct{}, 100)
			seen := make(chan struct{}, 100)
			b := &backend{reply: func(_ int, _ http.ResponseWriter, r *http.Request) {
				arrived <- struct{}{}
				seen <- struct{}{}
				<-r.Context().Done()
			}}
			srv := httptest.NewServer(b)
			t.Cleanup(srv.Close) // after the server that asks it
			var cfg ax.Config
			if c.cfg != nil {
				cfg = c.cfg(arrived)
			}
			info := s.enqueue(ax.Request{Method: "POST", URL: srv.URL, NoRetry: true}, c.opts...)
			sched, _ := s.serveScheduler(cfg, quick())
			<-seen
			if c.end != nil {
				require.NoError(t, c.end(s, sched, info))
			}
			got := s.await(info, asynq.TaskStateArchived)
			require.Contains(t, got.LastErr, c.lastErr)
			require.Len(t, b.saw(), 1)
		})
	}
}
