package ax_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type rt func(*http.Request) (*http.Response, error)

func (f rt) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func redirecting(to string) rt {
	return func(r *http.Request) (*http.Response, error) {
		if r.URL.Path == "/from" {
			resp := reply(302, "", "Location: "+to)
			resp.Request = r
			return resp, nil
		}
		resp := reply(200, "ok")
		resp.Request = r
		return resp, nil
	}
}

// An executor that tries once more after a hop was refused is refused once more.
func TestL6HopAfterARefusedHop(t *testing.T) {
	x := ax.HTTPExecutor(&http.Client{Transport: redirecting("http://b.test/")})
	s, err := ax.New(nil, ax.Config{
		Breaker: &ax.Breaker{WhenOpen: ax.OpenReject},
		Executor: ax.ExecutorFunc(func(ctx context.Context, task *ax.Task) (*http.Response, error) {
			resp, err := x.Execute(ctx, task)
			if err != nil { // e.g. a wrapper with a retry of its own
				resp, err = x.Execute(ctx, task)
			}
			return resp, err
		}),
	})
	require.NoError(t, err)
	require.NoError(t, s.ForceBreaker("b.test", ax.BreakerForceOpen))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, err := s.Get(context.Background(), "http://a.test/from")
		assert.ErrorIs(t, err, ax.ErrCircuitOpen)
	}()
	select {
	case <-done:
	case <-time.After(3 * time.Second):
		t.Fatal("wedged: the mutex was left locked by a panic")
	}
	s.Stats()
}

// Two requests of one attempt that are redirected at the same time.
func TestL6TwoHopsAtOnceIntoAnotherLane(t *testing.T) {
	x := ax.HTTPExecutor(&http.Client{Transport: redirecting("http://b.test/")})
	s, err := ax.New(nil, ax.Config{
		MaxConcurrent: 8,
		Lanes:         []ax.Lane{{Name: "b", Match: []string{"b.test"}, MaxConcurrent: 1}},
		Executor: ax.ExecutorFunc(func(ctx context.Context, task *ax.Task) (*http.Response, error) {
			if task.URL() == "http://b.test/busy" {
				time.Sleep(100 * time.Millisecond)
				return reply(200, ""), nil
			}
			c := make(chan *http.Response, 2)
			var wg sync.WaitGroup
			for range 2 { // the faster one counts
				wg.Go(func() {
					resp, _ := x.Execute(ctx, task)
					c <- resp
				})
			}
			wg.Wait()
			return <-c, nil
		}),
	})
	require.NoError(t, err)
	go s.Get(context.Background(), "http://b.test/busy") // so that the hops wait
	time.Sleep(10 * time.Millisecond)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, err := s.Get(context.Background(), "http://a.test/from")
		assert.NoError(t, err)
	}()
	select {
	case <-done:
	case <-time.After(3 * time.Second):
		t.Fatal("wedged")
	}
}

// The same within one lane, both waiting for a token: each token is told of its call.
func TestL2TwoHopsAtOnceInOneLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := ax.HTTPExecutor(&http.Client{Transport: redirecting("http://a.test/to")})
		s, err := ax.New(nil, ax.Config{
			Rate: ax.PerSecond(2),
			Executor: ax.ExecutorFunc(func(ctx context.Context, task *ax.Task) (*http.Response, error) {
				if task.URL() != "http://a.test/from" {
					return reply(200, ""), nil
				}
				c := make(chan *http.Response, 2)
				for range 2 {
					go func() {
						resp, _ := x.Execute(ctx, task)
						c <- resp
					}()
				}
				<-c
				return <-c, nil
			}),
		})
		require.NoError(t, err)
		defer s.Close()
		s.Get(context.Background(), "http://a.test/x") // uses the other token
		_, err = s.Get(context.Background(), "http://a.test/from")
		require.NoError(t, err)
		time.Sleep(time.Hour)
		start := time.Now()
		for range 2 {
			_, err = s.Get(context.Background(), "http://a.test/x")
			require.NoError(t, err)
		}
		require.Zero(t, time.Since(start), "two starts a second are allowed, nothing is under way")
	})
}

// firstWins sends a task by x and by a second way, and returns what comes first; the end
// of ctx ends the other.
func firstWins(x ax.Executor, mirror time.Duration) ax.ExecutorFunc {
	return func(ctx context.Context, task *ax.Task) (*http.Response, error) {
		if task.URL() != "http://a.test/from" {
			return reply(200, ""), nil
		}
		c := make(chan *http.Response, 2)
		go func() {
			if resp, err := x.Execute(ctx, task); err == nil {
				c <- resp
			}
		}()
		go func() {
			time.Sleep(mirror)
			c <- reply(200, "mirror")
		}()
		return <-c, nil
	}
}

// The loser waits for a token in its own lane when the winner returns.
func TestL6HopLeftBehindABreaker(t *testing.T) { leftBehind(t, &ax.Breaker{}) }
func TestL6HopLeftBehind(t *testing.T)         { leftBehind(t, nil) }

func leftBehind(t *testing.T, b *ax.Breaker) {
	x := ax.HTTPExecutor(&http.Client{Transport: redirecting("http://a.test/to")})
	s, err := ax.New(nil, ax.Config{Breaker: b, Rate: []ax.Rate{{Limit: 1, Per: 100 * time.Millisecond}}, Executor: firstWins(x, 20*time.Millisecond)})
	require.NoError(t, err)
	within(t, "Do and Close", func() {
		defer func() {
			if v := recover(); v != nil {
				t.Error("panic:", v)
			}
		}()
		for range 8 {
			_, err := s.Get(context.Background(), "http://a.test/from")
			require.NoError(t, err)
		}
		time.Sleep(300 * time.Millisecond)
		require.Zero(t, s.Stats().Active)
		s.Close()
	})
}

// After a refused hop the attempt's time runs on.
func TestF4TimeRunsOnAfterARefusedHop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := ax.HTTPExecutor(&http.Client{Transport: redirecting("http://b.test/")})
		s, err := ax.New(nil, ax.Config{
			AttemptTimeout: time.Second, Breaker: &ax.Breaker{WhenOpen: ax.OpenReject},
			Executor: ax.ExecutorFunc(func(ctx context.Context, task *ax.Task) (*http.Response, error) {
				if _, err := x.Execute(ctx, task); err != nil { // then by another way
					select {
					case <-ctx.Done():
						return nil, ctx.Err()
					case <-time.After(time.Hour):
					}
				}
				return reply(200, "late"), nil
			}),
		})
		require.NoError(t, err)
		defer s.Close()
		require.NoError(t, s.ForceBreaker("b.test", ax.BreakerForceOpen))
		start := time.Now()
		s.Get(context.Background(), "http://a.test/from")
		require.LessOrEqual(t, time.Since(start), 2*time.Second, "AttemptTimeout is 1 s")
	})
}

// The loser is granted its slot by the very critical section that ends the winner, and
// gives it back.
func TestL1HopLeftBehindKeepsNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := ax.HTTPExecutor(&http.Client{Transport: redirecting("http://b.test/")})
		s, err := ax.New(nil, ax.Config{
			Lanes: []ax.Lane{{Name: "b", Match: []string{"b.test"}, MaxConcurrent: 1}},
			Executor: ax.ExecutorFunc(func(ctx context.Context, task *ax.Task) (*http.Response, error) {
				if task.URL() == "http://b.test/busy" {
					time.Sleep(time.Second)
					return reply(200, ""), nil
				}
				return firstWins(x, time.Second)(ctx, task)
			}),
		})
		require.NoError(t, err)
		for range 50 {
			busy := s.Submit(context.Background(), ax.Must(ax.Request{URL: "http://b.test/busy"}.Task()))
			_, err := s.Get(context.Background(), "http://a.test/from")
			require.NoError(t, err)
			busy.Result()
			time.Sleep(10 * time.Second)
			if n := s.Stats().Active; n > 0 {
				t.Fatalf("%d attempts active, though nothing is under way: Close would wait for ever", n)
			}
		}
		s.Close()
	})
}
