package axotel

import (
	"context"
	"fmt"
	"net/http"
	"sort"
	"testing"
	"testing/synctest"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

func TestMetricsOfQueueAndService(t *testing.T) {
	cfg := ax.Config{MaxConcurrent: 1}
	traced(t, cfg, func(r *http.Request) (*http.Response, error) {
		time.Sleep(time.Second)
		return answer(r, 200, "ok"), nil
	}, func(r *rig) {
		var calls []*ax.Call
		for range 3 {
			calls = append(calls, r.S.Submit(r.Context(), ax.Must(ax.Request{Method: "POST", URL: "http://a.test/", Owner: "o"}.Task())))
			synctest.Wait()
		}
		require.Equal(r, map[string]int64{"lane=a.test,owner=o": 1}, r.sums("ax.attempts.active"))
		require.Equal(r, map[string]int64{"lane=a.test,owner=o": 2}, r.sums("ax.tasks.queued"))
		for _, c := range calls {
			_, err := c.Result()
			require.NoError(r, err)
		}
		require.Equal(r, map[string]int64{"lane=a.test,owner=o": 0}, r.sums("ax.attempts.active"))
		require.Equal(r, map[string]int64{"lane=a.test,owner=o": 0}, r.sums("ax.tasks.queued"))
		require.Equal(r, map[string]int64{"lane=a.test,owner=o": 3}, r.sums("ax.attempts"))
		require.Equal(r, map[string]int64{"lane=a.test,outcome=succeeded,owner=o,source=network": 3}, r.sums("ax.tasks"))
		require.Equal(r, map[string]int64{"lane=a.test,owner=o": 3}, r.sums("ax.task.wait"))
		require.Equal(r, 0.0+1+2, r.total("ax.task.wait"))
		require.Equal(r, map[string]int64{"lane=a.test,outcome=success,owner=o": 3}, r.sums("ax.attempt.duration"))
		require.Equal(r, 3.0, r.total("ax.attempt.duration"))
		require.Equal(r, 1.0+2+3, r.total("ax.task.duration"))
	})
}

func TestMetricsOfRetryAndOutcomes(t *testing.T) {
	cfg := ax.Config{Retry: &ax.Retry{BaseDelay: time.Second, Jitter: ax.NoJitter}}
	traced(t, cfg, script(says(503), says(404), says(500), says(500), says(500)), func(r *rig) {
		resp, err := r.S.Get(r.Context(), "http://a.test/")
		require.NoError(r, err)
		require.Equal(r, 404, resp.StatusCode)
		resp, err = r.S.Get(r.Context(), "http://a.test/")
		require.NoError(r, err)
		require.Equal(r, 500, resp.StatusCode)
		require.Equal(r, map[string]int64{"lane=a.test": 3}, r.sums("ax.retries"))
		require.Equal(r, map[string]int64{
			"lane=a.test,outcome=success": 1, "lane=a.test,outcome=failure": 4,
		}, r.sums("ax.attempt.duration"))
		require.Equal(r, map[string]int64{"lane=a.test,outcome=succeeded,source=network": 2}, r.sums("ax.tasks"))
		require.Equal(r, map[string]int64{"lane=a.test": 2}, r.sums("ax.task.wait"))
	})
}

func TestMetricsOfSharing(t *testing.T) {
	cfg := ax.Config{Dedupe: &ax.Dedupe{Window: time.Minute}}
	traced(t, cfg, func(r *http.Request) (*http.Response, error) {
		time.Sleep(time.Second)
		return answer(r, 200, "ok"), nil
	}, func(r *rig) {
		task := ax.Must(ax.Request{URL: "http://a.test/"}.Task())
		calls := []*ax.Call{r.S.Submit(r.Context(), task), r.S.Submit(r.Context(), task), r.S.Submit(r.Context(), task)}
		for _, c := range calls {
			_, err := c.Result()
			require.NoError(r, err)
		}
		_, err := r.S.Do(r.Context(), task)
		require.NoError(r, err)
		require.Equal(r, map[string]int64{"lane=a.test,source=flight": 2, "lane=a.test,source=window": 1}, r.sums("ax.dedupe.hits"))
		require.Equal(r, map[string]int64{"lane=a.test": 1}, r.sums("ax.attempts"))
	})
}

func TestMetricsOfLanesAndBudgets(t *testing.T) {
	cfg := ax.Config{
		Breaker: &ax.Breaker{Window: 1, WhenOpen: ax.OpenReject},
		Budgets: map[string]ax.Budget{"poor": {Rate: ax.PerMinute(1), Over: ax.OverReject}},
	}
	traced(t, cfg, script(says(500), says(200)), func(r *rig) {
		_, err := r.S.Get(r.Context(), "http://a.test/")
		require.NoError(r, err)
		_, err = r.S.Get(r.Context(), "http://a.test/")
		require.ErrorIs(r, err, ax.ErrCircuitOpen)
		require.Equal(r, map[string]int64{"lane=a.test,outcome=breaker-opened": 1}, r.sums("ax.lane.transitions"))
		require.Equal(r, int64(1), r.sums("ax.tasks")["lane=a.test,outcome=rejected"])
		for range 2 {
			_, err = r.S.Send(r.Context(), ax.Request{Method: "POST", URL: "http://b.test/", Owner: "poor"})
		}
		require.ErrorIs(r, err, ax.ErrBudget)
		require.Equal(r, int64(1), r.sums("ax.tasks")["lane=b.test,outcome=rejected,owner=poor"])
	})
}

// A breaker counts in the state that it is in, through all of them, and in none
// once it is closed.
func TestMetricsOfBreakers(t *testing.T) {
	cfg := ax.Config{Breaker: &ax.Breaker{Window: 1, OpenFor: time.Second, Probes: 1, Ramp: 10 * time.Second, WhenOpen: ax.OpenReject}}
	traced(t, cfg, script(says(500), says(200)), func(r *rig) {
		in := func(state string) map[string]int64 {
			all := map[string]int64{"lane=a.test,state=open": 0, "lane=a.test,state=half-open": 0, "lane=a.test,state=ramping": 0}
			for key, n := range r.sums("ax.breakers.tripped") {
				all[key] = n
			}
			if state != "" {
				require.Equal(r, int64(1), all["lane=a.test,state="+state])
				all["lane=a.test,state="+state] = 0
			}
			return all
		}
		none := in("")
		_, err := r.S.Get(r.Context(), "http://a.test/")
		require.NoError(r, err)
		synctest.Wait()
		require.Equal(r, none, in("open"))
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(r, none, in("half-open"))
		_, err = r.S.Get(r.Context(), "http://a.test/")
		require.NoError(r, err)
		synctest.Wait()
		require.Equal(r, none, in("ramping"))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Equal(r, none, in(""))
		require.NoError(r, r.S.ForceBreaker("a.test", ax.BreakerForceOpen))
		synctest.Wait()
		require.Equal(r, none, in("open"))
	})
}

// The slower of two attempts is cancelled, whichever it is: its span and its count
// end with it.
func TestMetricsOfHedge(t *testing.T) {
	answers := func(r *http.Request) (*http.Response, error) {
		time.Sleep(2 * time.Second)
		return answer(r, 200, "ok"), nil
	}
	hangs := func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	for _, c := range []struct {
		name   string
		server roundTrip
		winner int
	}{{"first wins", script(answers, hangs), 0}, {"second wins", script(hangs, answers), 1}} {
		t.Run(c.name, func(t *testing.T) {
			traced(t, ax.Config{Hedge: &ax.Hedge{After: time.Second}}, c.server, func(r *rig) {
				_, err := r.S.Get(r.Context(), "http://a.test/")
				require.NoError(r, err)
				synctest.Wait()
				require.Equal(r, map[string]int64{"lane=a.test": 2}, r.sums("ax.attempts"))
				require.Equal(r, map[string]int64{
					"lane=a.test,outcome=success": 1, "lane=a.test,outcome=neutral": 1,
				}, r.sums("ax.attempt.duration"))
				tries := r.attempts()
				require.Len(r, tries, 2)
				require.Equal(r, int64(200), attrs(tries[c.winner])["http.response.status_code"])
				require.Equal(r, "canceled", attrs(tries[1-c.winner])["error.type"])
			})
		})
	}
}

// A hedge's first attempt that fails by itself proves as much as any other.
func TestMetricsOfHedgedFailure(t *testing.T) {
	slow := func(status int) roundTrip {
		return func(r *http.Request) (*http.Response, error) {
			time.Sleep(2 * time.Second)
			return answer(r, status, "ok"), nil
		}
	}
	traced(t, ax.Config{Hedge: &ax.Hedge{After: time.Second}}, script(slow(503), slow(200)), func(r *rig) {
		resp, err := r.S.Get(r.Context(), "http://a.test/")
		require.NoError(r, err)
		require.Equal(r, 200, resp.StatusCode)
		require.Equal(r, map[string]int64{
			"lane=a.test,outcome=success": 1, "lane=a.test,outcome=failure": 1,
		}, r.sums("ax.attempt.duration"))
		require.Equal(r, 2.0+2, r.total("ax.attempt.duration"))
	})
}

// An attempt that all callers leave has nobody to be told to, and no duration; one
// whose first caller leaves counts once.
func TestMetricsOfLeftAttempts(t *testing.T) {
	answersIn := func(d time.Duration) roundTrip {
		return func(r *http.Request) (*http.Response, error) {
			select {
			case <-r.Context().Done():
				return nil, r.Context().Err()
			case <-time.After(d):
				return answer(r, 200, "ok"), nil
			}
		}
	}
	for _, c := range []struct {
		name   string
		dedupe *ax.Dedupe
		stay   bool
		want   map[string]int64
	}{
		{"alone", nil, false, map[string]int64{}},
		{"flight left by its only caller", &ax.Dedupe{}, false, map[string]int64{}},
		{"flight left by the first of two", &ax.Dedupe{}, true, map[string]int64{"lane=a.test,outcome=success": 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			traced(t, ax.Config{Dedupe: c.dedupe}, answersIn(3*time.Second), func(r *rig) {
				ctx, cancel := context.WithTimeout(r.Context(), time.Second)
				defer cancel()
				task := ax.Must(ax.Request{URL: "http://a.test/"}.Task())
				calls := []*ax.Call{r.S.Submit(ctx, task)}
				synctest.Wait()
				if c.stay {
					calls = append(calls, r.S.Submit(r.Context(), task))
				}
				for _, call := range calls {
					_, _ = call.Result()
				}
				synctest.Wait()
				require.Equal(r, map[string]int64{"lane=a.test": 1}, r.sums("ax.attempts"))
				require.Equal(r, c.want, r.sums("ax.attempt.duration"))
			})
		})
	}
}

// The work of a Run that its caller leaves ends on that caller's goroutine, and counts.
func TestMetricsOfLeftRun(t *testing.T) {
	traced(t, ax.Config{}, says(200), func(r *rig) {
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		_, err := ax.Run(ctx, r.S, ax.Must(ax.Request{URL: "sql://db.test/"}.Task()), func(ctx context.Context) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		})
		require.ErrorIs(r, err, context.DeadlineExceeded)
		synctest.Wait()
		require.Equal(r, map[string]int64{"lane=db.test,outcome=neutral": 1}, r.sums("ax.attempt.duration"))
	})
}

// Every host has a lane and every tenant may be an owner: both are bounded.
func TestMetricsHaveLowCardinality(t *testing.T) {
	traced(t, ax.Config{}, says(200), func(r *rig) {
		const n = maxNames + 44
		for i := range n {
			_, err := r.S.Send(r.Context(), ax.Request{
				Method: "POST", URL: fmt.Sprintf("http://h%03d.test/", i), Owner: fmt.Sprintf("tenant-%03d", i),
			})
			require.NoError(r, err)
		}
		got := r.sums("ax.attempts")
		require.Len(r, got, maxNames+1)
		require.Equal(r, int64(44), got["lane=_other,owner=_other"])
		require.Equal(r, int64(1), got["lane=h255.test,owner=tenant-255"])
	})
}

// A lane or an owner of the Config is itself, however many hosts and tenants came
// before.
func TestMetricsTellConfiguredNames(t *testing.T) {
	cfg := ax.Config{
		Lanes:   []ax.Lane{{Name: "payments", Match: []string{"pay.test"}}, {Match: []string{"mail.test"}}},
		Budgets: map[string]ax.Budget{"checkout": {}},
	}
	traced(t, cfg, says(200), func(r *rig) {
		send := func(url, owner string) {
			_, err := r.S.Send(r.Context(), ax.Request{Method: "POST", URL: url, Owner: owner})
			require.NoError(r, err)
		}
		for i := range maxNames + 1 {
			send(fmt.Sprintf("http://h%03d.test/", i), fmt.Sprintf("tenant-%03d", i))
		}
		send("http://pay.test/", "checkout")
		send("http://mail.test/", "checkout")
		got := r.sums("ax.attempts")
		require.Equal(r, int64(1), got["lane=payments,owner=checkout"])
		require.Equal(r, int64(1), got["lane=mail.test,owner=checkout"])
		require.Equal(r, int64(1), got["lane=_other,owner=_other"])
	})
}

func TestInstrumentsHaveUnits(t *testing.T) {
	traced(t, ax.Config{MaxConcurrent: 1}, says(200), func(r *rig) {
		_, err := r.S.Get(r.Context(), "http://a.test/")
		require.NoError(r, err)
		var got []string
		for name, m := range r.collected() {
			require.NotEmpty(r, m.Description, name)
			got = append(got, name+" "+m.Unit)
		}
		sort.Strings(got)
		require.Equal(r, []string{
			"ax.attempt.duration s", "ax.attempts {attempt}", "ax.attempts.active {attempt}",
			"ax.task.duration s", "ax.task.wait s", "ax.tasks {task}",
		}, got)
	})
}
