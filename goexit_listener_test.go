package ax_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// TestX6GoexitOfAListenerAtEveryEvent: the task has its end, and Close returns.
func TestX6GoexitOfAListenerAtEveryEvent(t *testing.T) {
	for _, kind := range []ax.EventKind{ax.EventSubmitted, ax.EventStarted, ax.EventAttemptDone, ax.EventSucceeded} {
		for _, dry := range []bool{false, true} {
			for _, submit := range []bool{false, true} {
				t.Run(fmt.Sprintf("%v/dry=%v/submit=%v", kind, dry, submit), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						var ends atomic.Int32
						s, err := ax.New(nil, ax.Config{DryRun: dry, Executor: ax.ExecutorFunc(qNoop), OnEvent: func(e ax.Event) {
							if ended(e.Kind) {
								ends.Add(1)
							}
							if e.Kind == kind {
								runtime.Goexit()
							}
						}})
						require.NoError(t, err)
						task := ax.Must(ax.Request{URL: at("/"), Dedupe: true}.Task())
						if submit {
							go s.Submit(t.Context(), task)
						} else {
							go s.Do(t.Context(), task)
						}
						qCloses(t, s)
						require.Equal(t, int32(1), ends.Load())
					})
				})
			}
		}
	}
}

// TestX6GoexitOfAListenerWhileARetryIsOnItsWay: in backoff, queued once more, or
// granted already. Nothing is left waiting, or holding a slot.
func TestX6GoexitOfAListenerWhileARetryIsOnItsWay(t *testing.T) {
	for _, c := range []struct {
		where string
		slow  time.Duration // the listener, for a backoff of 10 ms
		other bool          // has the slot meanwhile
	}{{"in backoff", 0, false}, {"granted", 50 * fms, false}, {"queued", 50 * fms, true}} {
		for _, dedupe := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/dedupe=%v", c.where, dedupe), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, err := ax.New(nil, ax.Config{
						MaxConcurrent: 1, Retry: &ax.Retry{Max: 2, BaseDelay: 10 * fms, MaxDelay: 10 * fms},
						OnEvent: func(e ax.Event) {
							if e.Kind == ax.EventRetryScheduled {
								time.Sleep(c.slow)
								runtime.Goexit()
							}
						},
						Executor: ax.ExecutorFunc(func(_ context.Context, task *ax.Task) (*http.Response, error) {
							if task.URL() == at("/broken") {
								return &http.Response{StatusCode: 503}, nil
							}
							time.Sleep(time.Second)
							return &http.Response{StatusCode: 200}, nil
						}),
					})
					require.NoError(t, err)
					go s.Send(t.Context(), ax.Request{URL: at("/broken"), Dedupe: dedupe})
					if c.other {
						time.Sleep(fms)
						go s.Get(t.Context(), at("/other"))
					}
					time.Sleep(5 * time.Second)
					st := s.Stats()
					require.Equal(t, []int{0, 0, 0}, []int{st.Active, st.Queued, st.Parked})
					require.Equal(t, uint64(1), st.Failed)
					_, err = s.Get(t.Context(), at("/next"))
					require.NoError(t, err)
					qCloses(t, s)
				})
			})
		}
	}
}

// TestX6GoexitOfListenersInAStorm of tasks that retry, share, are tagged and are left.
func TestX6GoexitOfListenersInAStorm(t *testing.T) {
	const callers, each = 24, 400
	var events atomic.Int64
	var s *ax.Scheduler
	s = qReal(t, ax.Config{
		MaxConcurrent: 6, MaxQueue: 30, Retry: &ax.Retry{Max: 2, BaseDelay: 50 * time.Microsecond, Budget: 1},
		OnEvent: func(e ax.Event) {
			if e.Seq == 0 {
				return
			}
			switch n := events.Add(1); {
			case e.Kind == ax.EventStarted && n%7 == 0:
				s.CancelTag("tagged")
			case n%23 == 0:
				runtime.Gosched()
			case n%29 == 0:
				runtime.Goexit()
			}
		},
	}, func(context.Context, *ax.Task) (*http.Response, error) {
		if rand.IntN(5) == 0 {
			return nil, errors.New("broken")
		}
		return &http.Response{StatusCode: 200}, nil
	})
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(c), 2))
			for range each {
				req := ax.Request{URL: fmt.Sprintf("http://h%d.test/", r.IntN(2)), Dedupe: r.IntN(2) == 0, NoWait: r.IntN(8) == 0}
				if r.IntN(3) == 0 {
					req.Tags = []string{"tagged"}
				}
				ctx, cancel := context.WithCancel(t.Context())
				if r.IntN(3) == 0 {
					go cancel()
				}
				submit, done := r.IntN(3) == 0, make(chan struct{})
				go func() {
					defer close(done)
					if submit {
						s.Submit(ctx, ax.Must(req.Task())).Result()
					} else {
						s.Send(ctx, req)
					}
				}()
				<-done
				cancel()
			}
		})
	}
	wg.Wait()
	require.NoError(t, s.Close())
	st := s.Stats()
	require.Equal(t, []int{0, 0, 0}, []int{st.Active, st.Queued, st.Parked})
	require.Equal(t, st.Submitted, st.Succeeded+st.Failed+st.Canceled+st.Rejected)
}

// TestX2StoryOfAHedgedTaskThatIsLeft: about when its second attempt starts. Its end
// counts what was told of.
func TestX2StoryOfAHedgedTaskThatIsLeft(t *testing.T) {
	var mu sync.Mutex
	stories := map[uint64]story{}
	s := qReal(t, ax.Config{
		Hosts: &ax.Lane{Hedge: &ax.Hedge{After: time.Millisecond}, Retry: &ax.Retry{Max: 1, Budget: 1}},
		OnEvent: func(e ax.Event) {
			mu.Lock()
			defer mu.Unlock()
			stories[e.Seq] = append(stories[e.Seq], e)
		},
	}, qBlock)
	var wg sync.WaitGroup
	for c := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(c), 1))
			for range 400 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond+time.Duration(r.IntN(400))*time.Microsecond)
				s.Send(ctx, ax.Request{URL: fmt.Sprintf("http://h%d.test/", r.IntN(4))})
				cancel()
			}
		})
	}
	wg.Wait()
	require.NoError(t, s.Close())
	for seq, story := range stories {
		told := 0
		for _, e := range story {
			if e.Kind == ax.EventStarted {
				told++
			}
		}
		require.Equal(t, told, story[len(story)-1].Attempt, "task %d: %v", seq, story)
	}
}

// dyingBody ends its reader, and its closer.
type dyingBody struct{ die func() }

func (b dyingBody) Read([]byte) (int, error) { b.die(); return 0, nil }
func (b dyingBody) Close() error             { b.die(); return nil }

// TestX6ABodyThatDiesTwiceHoldsNoSlot: read, and then closed.
func TestX6ABodyThatDiesTwiceHoldsNoSlot(t *testing.T) {
	for how, die := range map[string]func(){"panic": func() { panic("body") }, "Goexit": runtime.Goexit} {
		for way, r := range map[string]ax.Request{
			"free": {}, "waits": {Tags: []string{"x"}}, "shared": {Dedupe: true}, "hedged": {Hedge: &ax.Hedge{After: fms}},
		} {
			t.Run(how+"/"+way, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, err := ax.New(nil, ax.Config{MaxConcurrent: 1, Executor: ax.ExecutorFunc(func(_ context.Context, task *ax.Task) (*http.Response, error) {
						if task.URL() == at("/dies") {
							return &http.Response{StatusCode: 200, Body: dyingBody{die}, ContentLength: 5}, nil
						}
						return &http.Response{StatusCode: 200}, nil
					})})
					require.NoError(t, err)
					r.URL = at("/dies")
					go func() {
						defer func() { _ = recover() }() // it goes on through a caller who is alone
						s.Send(t.Context(), r)
					}()
					synctest.Wait()
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					_, err = s.Get(ctx, at("/next"))
					require.NoError(t, err)
					qCloses(t, s)
				})
			})
		}
	}
}

// TestX6AnExecutorLeftBehindEndsOnlyItself: its flight has gone on without it.
func TestX6AnExecutorLeftBehindEndsOnlyItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		s, err := ax.New(nil, ax.Config{
			Retry: &ax.Retry{Max: 2, BaseDelay: 10 * time.Second, MaxDelay: 10 * time.Second},
			Executor: ax.ExecutorFunc(func(context.Context, *ax.Task) (*http.Response, error) {
				if calls.Add(1) == 1 {
					time.Sleep(200 * fms) // deaf to its timeout
					runtime.Goexit()
				}
				return &http.Response{StatusCode: 200}, nil
			}),
		})
		require.NoError(t, err)
		r, err := s.Send(t.Context(), ax.Request{URL: at("/"), Dedupe: true, AttemptTimeout: 100 * fms})
		require.NoError(t, err)
		require.Equal(t, 2, r.Attempts)
		qCloses(t, s)
	})
}

// TestX6GoexitInDryRunLeavesNoGhost in the queue.
func TestX6GoexitInDryRunLeavesNoGhost(t *testing.T) {
	for _, kind := range []ax.EventKind{ax.EventSubmitted, ax.EventStarted, ax.EventAttemptDone, ax.EventSucceeded} {
		t.Run(kind.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var once atomic.Bool
				s, err := ax.New(nil, ax.Config{DryRun: true, MaxConcurrent: 1, Executor: ax.ExecutorFunc(qNoop), OnEvent: func(e ax.Event) {
					if e.Kind == kind && once.CompareAndSwap(false, true) {
						runtime.Goexit()
					}
				}})
				require.NoError(t, err)
				go s.Get(t.Context(), at("/"))
				time.Sleep(time.Second)
				_, err = s.Get(t.Context(), at("/next"))
				require.NoError(t, err)
				time.Sleep(time.Second)
				require.Zero(t, s.Stats().Would.Queued)
				qCloses(t, s)
			})
		})
	}
}

// TestX6GoexitInALanesEventBetweenTwoAttempts of a hedged task: neither is lost.
func TestX6GoexitInALanesEventBetweenTwoAttempts(t *testing.T) {
	for _, dedupe := range []bool{false, true} {
		t.Run(fmt.Sprintf("dedupe=%v", dedupe), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var calls atomic.Int32
				s, err := ax.New(nil, ax.Config{
					MaxConcurrent: 2,
					Hosts:         &ax.Lane{Retry: &ax.Retry{Max: 1, Budget: 1}, Hedge: &ax.Hedge{After: 10 * fms}, Breaker: &ax.Breaker{Window: 1, MinCalls: 1}},
					OnEvent: func(e ax.Event) {
						if e.Kind == ax.EventBreakerOpened {
							runtime.Goexit()
						}
					},
					Executor: ax.ExecutorFunc(func(context.Context, *ax.Task) (*http.Response, error) {
						if calls.Add(1) == 1 {
							time.Sleep(50 * fms)
							return nil, errors.New("broken")
						}
						time.Sleep(time.Second)
						return &http.Response{StatusCode: 200}, nil
					}),
				})
				require.NoError(t, err)
				r, err := s.Send(t.Context(), ax.Request{URL: at("/"), Dedupe: dedupe})
				require.NoError(t, err)
				require.Equal(t, 200, r.StatusCode)
				require.Zero(t, s.Stats().Active)
				qCloses(t, s)
			})
		})
	}
}
