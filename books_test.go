package ax_test

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

type governorFunc func(ctx context.Context, a ax.Ask) (ax.Grant, error)

func (g governorFunc) Acquire(ctx context.Context, a ax.Ask) (ax.Grant, error) { return g(ctx, a) }

// Retries that a governor is being asked for make no room in a queue that they are not in.
func TestL8QueueBoundWhileRetriesAreAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		s, err := ax.New(nil, ax.Config{
			MaxConcurrent: 5, MaxQueue: 1, Retry: &ax.Retry{Max: 1, Budget: 100, BaseDelay: time.Millisecond},
			Governor: governorFunc(func(ctx context.Context, a ax.Ask) (ax.Grant, error) {
				if asked.Add(1) > 5 {
					<-ctx.Done()
				}
				return ax.Grant{}, nil
			}),
			Executor: ax.ExecutorFunc(func(ctx context.Context, task *ax.Task) (*http.Response, error) {
				return reply(500, ""), nil
			}),
		})
		require.NoError(t, err)
		defer s.Close()
		for range 5 {
			s.Submit(context.Background(), ax.Must(ax.Request{URL: at("/")}.Task()))
			synctest.Wait()
		}
		time.Sleep(time.Second) // all five slots are reserved for the five retries
		full := 0
		for range 10 {
			call := s.Submit(context.Background(), ax.Must(ax.Request{URL: at("/")}.Task()))
			synctest.Wait()
			if qDone(call) {
				_, err := call.Result()
				require.True(t, errors.Is(err, ax.ErrQueueFull), "%v", err)
				full++
			}
		}
		require.Equal(t, 9, full, "MaxQueue is 1")
	})
}

// Two share a GET whose body turns out too large to be shared; the one who is sent alone
// began before a write to the URL, so his answer must not be kept for Stale.
func TestD2SentAloneAfterAWriteIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		s, err := ax.New(nil, ax.Config{
			Dedupe: &ax.Dedupe{}, MaxBodyBytes: 10, Fallback: &ax.Fallback{Stale: time.Hour},
			Executor: ax.ExecutorFunc(func(ctx context.Context, task *ax.Task) (*http.Response, error) {
				if task.Method() == "POST" {
					return reply(200, ""), nil
				}
				n++
				time.Sleep(time.Second)
				switch n {
				case 1:
					return reply(200, strings.Repeat("x", 100)), nil
				case 2:
					return reply(200, "old"), nil
				}
				return reply(500, ""), nil
			}),
		})
		require.NoError(t, err)
		defer s.Close()
		get := ax.Must(ax.Request{URL: at("/")}.Task())
		first := s.Submit(context.Background(), get)
		second := s.Submit(context.Background(), get)
		resp, err := first.Result()
		require.NoError(t, err)
		resp.Body.Close()
		time.Sleep(500 * time.Millisecond) // the second is being sent alone
		_, err = s.Send(context.Background(), ax.Request{Method: "POST", URL: at("/")})
		require.NoError(t, err)
		resp, err = second.Result()
		require.NoError(t, err)
		b, _ := resp.Bytes()
		require.Equal(t, "old", string(b))
		resp, err = s.Do(context.Background(), get)
		require.NoError(t, err)
		require.NotEqual(t, ax.FromStale, resp.Source, "what the write made old was kept")
	})
}

// "Counters count since New and never fall."
func TestX1AttemptsNeverFall(t *testing.T) {
	s, err := ax.New(nil, ax.Config{Executor: ax.ExecutorFunc(func(ctx context.Context, task *ax.Task) (*http.Response, error) {
		return &http.Response{StatusCode: 200}, nil
	})})
	require.NoError(t, err)
	defer s.Close()
	var stop atomic.Bool
	var wg sync.WaitGroup
	task := ax.Must(ax.Request{URL: at("/")}.Task())
	for range 2 {
		wg.Go(func() {
			for !stop.Load() {
				s.Do(context.Background(), task)
			}
		})
	}
	var last, lastLane uint64
	falls, laneFalls, differ := 0, 0, 0
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		st := s.Stats()
		l := st.Lanes["a.test"]
		if st.Attempts < last {
			falls++
		}
		if l.Attempts < lastLane {
			laneFalls++
		}
		if st.Attempts != l.Attempts {
			differ++
		}
		last, lastLane = st.Attempts, l.Attempts
		runtime.Gosched()
	}
	stop.Store(true)
	wg.Wait()
	require.Zero(t, falls+laneFalls+differ, "%d falls, %d of the lane, %d times different though there is but one lane", falls, laneFalls, differ)
}

// Close lets go of what was kept, however long its window.
func TestX4ClosedSchedulerIsCollected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := func() weak.Pointer[ax.Scheduler] {
			s, err := ax.New(nil, ax.Config{Dedupe: &ax.Dedupe{Window: 24 * time.Hour}, Executor: ax.ExecutorFunc(func(context.Context, *ax.Task) (*http.Response, error) {
				return reply(200, "x"), nil
			})})
			require.NoError(t, err)
			_, err = s.Get(context.Background(), at("/"))
			require.NoError(t, err)
			require.NoError(t, s.Close())
			return weak.Make(s)
		}()
		time.Sleep(time.Minute) // an idle lane and an idle owner are looked at once more
		for range 5 {
			runtime.GC()
			synctest.Wait()
		}
		require.Nil(t, w.Value(), "the timer keeps it, and its answers, for a day")
	})
}
