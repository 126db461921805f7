package ax_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// a nested task that rides its parent's permit does not wait for the breaker, whatever its deadline
func TestFaultANestedTaskThatRidesItsParentsPermitDoesNotWaitForTheBreaker(t *testing.T) {
	bubble(t, ax.Config{Breaker: &ax.Breaker{Window: 2, MinCalls: 2, OpenFor: 3 * time.Second}}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			switch h.URL.Path {
			case "/outer":
				if err := h.Sleep(100 * time.Millisecond); err != nil {
					return nil, err
				}
				r, err := t.S.Get(h.Context(), at("/inner"))
				if err != nil {
					return nil, err
				}
				return reply(r.StatusCode, ""), nil
			case "/fail":
				return reply(500, ""), nil
			}
			return reply(200, ""), nil
		}
		ctx, cancel := context.WithTimeout(dBG, time.Second)
		defer cancel()
		outer := t.Go(ctx, dGet("/outer"))
		t.Until(10 * time.Millisecond)
		t.Do(dBG, dGet("/fail"))
		t.Do(dBG, dGet("/fail"))
		require.Equal(t, ax.BreakerOpen, t.S.Stats().Lanes["a.test"].Breaker)
		require.NoError(t, (<-outer).Err)
	})
}

type revBody struct {
	io.Reader
	open *atomic.Int32
	once atomic.Bool
}

func (b *revBody) Close() error {
	if !b.once.Swap(true) {
		b.open.Add(-1)
	}
	return nil
}

type revPanicReader struct{ f func() }

func (r revPanicReader) Read([]byte) (int, error) { r.f(); return 0, io.EOF }

// whatever callback panics or ends its goroutine: every task ends, slots come back, bodies are closed
func TestFaultWhateverCallbackPanicsOrEndsItsGoroutineEveryTaskEndsSlotsCo(t *testing.T) {
	var leaked []string
	defer func() { require.Empty(t, leaked, "bodies are left open") }()
	leave := map[string]func(){"panic": func() { panic("boom") }, "goexit": runtime.Goexit}
	for how, f := range leave {
		for _, where := range []string{"prepare", "getbody", "if", "if-stream", "isfailure", "isfailure-stream", "executor", "body", "body-shared"} {
			for _, mode := range []string{"lone", "keyed", "submit"} {
				name := fmt.Sprintf("%s/%s/%s", where, how, mode)
				func() {
					var open atomic.Int32
					cfg := ax.Config{MaxConcurrent: 1}
					r := ax.Request{URL: at("/"), Dedupe: mode == "keyed"}
					status := 503
					switch where {
					case "prepare":
						r.Prepare, r.Dedupe = func(*http.Request) error { f(); return nil }, false
						if mode == "keyed" {
							r.DedupeKey = "k"
						}
					case "getbody":
						r.Method, r.GetBody, r.Dedupe = "PUT", func() (io.ReadCloser, error) { f(); return nil, nil }, false
						if mode == "keyed" {
							r.DedupeKey = "k"
						}
					case "if", "if-stream":
						cfg.Retry = &ax.Retry{If: func(ax.Outcome) bool { f(); return false }}
					case "isfailure", "isfailure-stream":
						cfg.Breaker = &ax.Breaker{IsFailure: func(ax.Outcome) bool { f(); return false }}
					}
					if strings.HasSuffix(where, "-stream") {
						r.Stream = true
						status = 200
					}
					first := true
					cfg.Executor = ax.ExecutorFunc(func(ctx context.Context, t *ax.Task) (*http.Response, error) {
						req, err := t.NewRequest(ctx)
						if err != nil {
							return nil, err
						}
						if req.Body != nil {
							req.Body.Close()
						}
						var rd io.Reader = strings.NewReader("x")
						if first && where == "executor" {
							f()
						}
						if first && strings.HasPrefix(where, "body") {
							rd = revPanicReader{f}
						}
						first = false
						open.Add(1)
						resp := reply(status, "")
						resp.ContentLength = -1
						resp.Body = &revBody{Reader: rd, open: &open}
						return resp, nil
					})
					bubble(t, cfg, func(t *tester) {
						task := ax.Must(r.Task())
						done := make(chan struct{})
						go func() {
							defer close(done)
							defer func() { recover() }()
							if mode == "submit" {
								t.S.Submit(dBG, task).Result()
							} else {
								t.S.Do(dBG, task)
							}
						}()
						select {
						case <-done:
						case <-time.After(time.Hour):
							require.Fail(t, "no end", name)
						}
						time.Sleep(time.Second)
						st := t.S.Stats()
						require.Zero(t, st.Active, name)
						require.Equal(t, st.Submitted, st.Succeeded+st.Failed+st.Canceled+st.Rejected, name)
						if open.Load() != 0 {
							leaked = append(leaked, name)
						}
					})
				}()
			}
		}
	}
}

// after everything is over all tables are empty
func TestFaultAfterEverythingIsOverAllTablesAreEmpty(t *testing.T) {
	cfg := ax.Config{MaxConcurrent: 2, Dedupe: &ax.Dedupe{Window: time.Minute}, Retry: &ax.Retry{}, Breaker: &ax.Breaker{},
		Owners: &ax.Budget{MaxConcurrent: 1, Rate: ax.PerSecond(1)}, Fallback: &ax.Fallback{Stale: time.Minute}}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			switch h.N % 4 {
			case 0:
				return redirectTo(fmt.Sprintf("http://h%d.test/", h.N)), nil
			case 1:
				return after(3*time.Second, 503, "")(h)
			case 2:
				return nil, errors.New("reset")
			}
			return after(2*time.Second, 200, "ok")(h)
		}
		for i := range 200 {
			ctx, cancel := context.WithTimeout(dBG, time.Duration(i%40+1)*time.Second)
			c := t.Go(ctx, ax.Request{URL: fmt.Sprintf("http://g%d.test/%d", i%7, i%3), Owner: fmt.Sprint("o", i%11)})
			go func() { <-c; cancel() }()
			time.Sleep(100 * time.Millisecond)
		}
		t.Until(3 * time.Hour)
		st := t.S.Stats()
		require.Empty(t, st.Lanes)
		require.Empty(t, st.Owners)
		require.Zero(t, st.DedupeEntries)
	})
}

// an owner that waits for nothing any more is forgotten, also if its waiter was refused
func TestFaultAnOwnerThatWaitsForNothingAnyMoreIsForgottenAlsoIfItsWaiterW(t *testing.T) {
	bubble(t, ax.Config{MaxConcurrent: 1, QueueTimeout: 30 * time.Second}, func(t *tester) {
		t.Server.Reply = after(time.Minute, 200, "")
		hold := t.Go(dBG, dGet("/hold"))
		t.Until(time.Millisecond)
		w := t.Go(dBG, ax.Request{URL: "http://w.test/w", Owner: "o"})
		require.ErrorIs(t, (<-w).Err, ax.ErrQueueTimeout)
		<-hold
		t.Until(time.Hour)
		require.Empty(t, t.S.Stats().Owners)
		require.Empty(t, t.S.Stats().Lanes)
	})
}

// DryRun sends one attempt per task, no hedge
func TestFaultDryRunSendsOneAttemptPerTaskNoHedge(t *testing.T) {
	bubble(t, ax.Config{DryRun: true}, func(t *tester) {
		t.Server.Reply = after(time.Second, 200, "")
		t.Do(dBG, ax.Request{URL: at("/"), Hedge: &ax.Hedge{After: 50 * time.Millisecond}})
		require.Equal(t, 1, t.Server.Count())
	})
}

// a rank at the end of time is not the most urgent one for others
func TestFaultARankAtTheEndOfTimeIsNotTheMostUrgentOneForOthers(t *testing.T) {
	var asks []ax.Ask
	g := &countingGovernor{acquire: func(ctx context.Context, n int, a ax.Ask) (ax.Grant, error) {
		asks = append(asks, a)
		return ax.Grant{}, nil
	}}
	bubble(t, ax.Config{Governor: g}, func(t *tester) {
		t.Do(dBG, dGet("/"))
		t.Do(dBG, ax.Request{URL: at("/"), Priority: -1 << 40, AgingStep: 100 * time.Hour})
		require.True(t, asks[0].Rank.Before(asks[1].Rank), "normal %v, lowest %v", asks[0].Rank, asks[1].Rank)
	})
}

// a hop's owner is refused etc.: NoWait with a governor that grants at once
func TestFaultAHopsOwnerIsRefusedEtcNoWaitWithAGovernorThatGrantsAtOnce(t *testing.T) {
	g := &countingGovernor{}
	bubble(t, ax.Config{Governor: g}, func(t *tester) {
		require.NoError(t, t.Do(dBG, ax.Request{URL: at("/"), NoWait: true}).Err)
	})
}

// tasks that only wait for the governor's word do not fill the queue
func TestFaultTasksThatOnlyWaitForTheGovernorsWordDoNotFillTheQueue(t *testing.T) {
	g := &countingGovernor{}
	bubble(t, ax.Config{Governor: g, MaxQueue: 1}, func(t *tester) {
		var all []*ax.Call
		for range 3 {
			all = append(all, t.S.Submit(dBG, ax.Must(dGet("/").Task())))
		}
		for _, c := range all {
			_, err := c.Result()
			require.NoError(t, err)
		}
	})
}

// Transport: lone and shared, streamed answers whose readers leave
func TestFaultTransportLoneAndSharedStreamedAnswersWhoseReadersLeave(t *testing.T) {
	bubble(t, ax.Config{MaxConcurrent: 1, Dedupe: &ax.Dedupe{}}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			return dReply(dNewTrickle(h.Context(), 300*time.Millisecond, "a", "b", "c", "d", "e", "f")), nil
		}
		c := &http.Client{Transport: t.S.Transport(), Timeout: 700 * time.Millisecond}
		r, err := c.Get(at("/"))
		require.NoError(t, err)
		_, err = io.ReadAll(r.Body)
		require.Error(t, err)
		r.Body.Close()
		time.Sleep(time.Millisecond)
		require.Zero(t, t.S.Stats().Active)
	})
}

// a retry that is refused while it waits says so in Cause, keyed or not, and its event comes once
func TestFaultARetryThatIsRefusedWhileItWaitsSaysSoInCauseKeyedOrNotAndIts(t *testing.T) {
	for _, mode := range []bool{false, true} {
		log := &dLog{}
		bubble(t, ax.Config{OnEvent: log.On, Retry: &ax.Retry{BaseDelay: time.Second, Jitter: ax.NoJitter}, Owners: &ax.Budget{Rate: []ax.Rate{{Limit: 1, Per: time.Minute}}, Over: ax.OverReject}}, func(t *tester) {
			t.Server.Reply = after(0, 503, "x")
			got := t.Do(dBG, ax.Request{URL: at("/"), Owner: "o", Dedupe: mode})
			require.NoError(t, got.Err)
			require.ErrorIs(t, got.Resp.Cause, ax.ErrBudget)
			require.Equal(t, time.Second, got.At)
			log.End(t, got.Resp.Seq)
		})
	}
}

// an alternate belongs to its task: a tag of the ctx counts one caller
func TestFaultAnAlternateBelongsToItsTaskATagOfTheCtxCountsOneCaller(t *testing.T) {
	alt := ax.Must(ax.Request{URL: "http://b.test/alt"}.Task())
	bubble(t, ax.Config{}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.URL.Host == "b.test" {
				return after(10*time.Second, 200, "")(h)
			}
			return reply(503, ""), nil
		}
		ctx := ax.ContextWith(dBG, ax.Hints{Tags: []string{"x"}, Lane: "a.test"})
		got := t.Go(ctx, ax.Request{URL: at("/"), Fallback: &ax.Fallback{Alternate: alt}})
		t.Until(100 * time.Millisecond)
		require.Equal(t, 1, t.S.Stats().Lanes["b.test"].Active, "the alternate has its own lane")
		require.Equal(t, 1, t.S.CancelTag("x"))
		<-got
	})
}

// the body that a policy looks at is not the caller's
func TestFaultTheBodyThatAPolicyLooksAtIsNotTheCallers(t *testing.T) {
	bubble(t, ax.Config{Retry: &ax.Retry{If: func(o ax.Outcome) bool {
		if o.Response != nil && o.Response.Body != nil {
			_, _ = io.ReadAll(o.Response.Body)
		}
		return false
	}}}, func(t *tester) {
		t.Server.Reply = after(0, 200, "all of it")
		got := t.Do(dBG, dGet("/"))
		require.NoError(t, got.Err)
		require.Equal(t, "all of it", dText(t, got.Resp.Response))
	})
}

// a joiner of a flight that is refused and whose fallback runs keeps waiting for it
func TestFaultAJoinerOfAFlightThatIsRefusedAndWhoseFallbackRunsKeepsWaitin(t *testing.T) {
	fb := &ax.Fallback{Static: func(ctx context.Context, _ *ax.Task, _ error) (*http.Response, error) {
		time.Sleep(time.Second)
		return reply(200, "static"), nil
	}}
	cfg := ax.Config{Dedupe: &ax.Dedupe{}, Fallback: fb, QueueTimeout: 100 * time.Millisecond, MaxConcurrent: 1}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = after(10*time.Second, 200, "")
		hold := t.Go(dBG, ax.Request{URL: at("/hold"), QueueTimeout: ax.NoTimeout})
		t.Until(time.Millisecond)
		a := t.Go(dBG, dGet("/x"))
		t.Until(500 * time.Millisecond) // refused at 101 ms, Static runs until 1101 ms
		b := t.Go(dBG, dGet("/x"))
		ra, rb := <-a, <-b
		<-hold
		require.NoError(t, ra.Err)
		require.NoError(t, rb.Err)
		require.Equal(t, ax.FromStatic, rb.Resp.Source)
	})
}

// hosts that differ in the end only: many redirects to new hosts leave no lanes
func TestFaultHostsThatDifferInTheEndOnlyManyRedirectsToNewHostsLeaveNoLan(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{}, Hosts: &ax.Lane{MaxConcurrent: 1}}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.URL.Host == "a.test" {
				return redirectTo(fmt.Sprintf("http://h%d.test/", h.N)), nil
			}
			return after(time.Second, 200, "")(h)
		}
		for range 20 {
			ctx, cancel := context.WithTimeout(dBG, 500*time.Millisecond)
			t.Do(ctx, dGet("/"))
			cancel()
		}
		t.Until(time.Hour)
		require.Empty(t, t.S.Stats().Lanes)
	})
}

// two chained hops and a retry: permits come back
func TestFaultTwoChainedHopsAndARetryPermitsComeBack(t *testing.T) {
	bubble(t, ax.Config{Hosts: &ax.Lane{MaxConcurrent: 1, Breaker: &ax.Breaker{}}, MaxConcurrent: 1, Retry: &ax.Retry{}}, func(t *tester) {
		n := 0
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			switch h.URL.Host {
			case "a.test":
				return redirectTo("http://b.test/"), nil
			case "b.test":
				return redirectTo("http://c.test/"), nil
			}
			if n++; n < 3 {
				return reply(503, ""), nil
			}
			return reply(200, ""), nil
		}
		got := t.Do(dBG, dGet("/"))
		require.Equal(t, 200, got.Status())
		require.Equal(t, 3, got.Resp.Attempts)
		require.Zero(t, t.S.Stats().Active)
	})
}
