package ax_test

import (
	"context"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

func TestO1(t *testing.T) {
	type task struct {
		at   time.Duration
		path string
		prio ax.Priority
		step time.Duration
		host string
	}
	quick := []ax.Lane{{Name: "quick", Match: []string{"b.test"}, AgingStep: 100 * qms}}
	tests := []struct {
		name  string
		cfg   ax.Config
		tasks []task
		want  []string
	}{
		{"earliest urgentAt, then priority", ax.Config{AgingStep: time.Second}, []task{
			{at: 0, path: "/low3.0", prio: ax.Low},
			{at: 500 * qms, path: "/normal2.5"},
			{at: 2 * time.Second, path: "/important3.0", prio: ax.Important},
			{at: 2900 * qms, path: "/urgent2.9", prio: ax.Urgent},
		}, []string{"/normal2.5", "/urgent2.9", "/important3.0", "/low3.0"}},
		{"same rank: first come", ax.Config{}, []task{
			{path: "/1"}, {path: "/2"}, {path: "/3"}, {path: "/4"}, {path: "/5"},
		}, []string{"/1", "/2", "/3", "/4", "/5"}},
		{"same moment: by priority", ax.Config{}, []task{
			{path: "/low", prio: ax.Low}, {path: "/urgent", prio: ax.Urgent}, {path: "/normal"}, {path: "/important", prio: ax.Important},
		}, []string{"/urgent", "/important", "/normal", "/low"}},
		{"a level is worth six seconds; a tie goes to the priority", ax.Config{}, []task{
			{at: 0, path: "/low", prio: ax.Low}, {at: 6 * time.Second, path: "/normal"},
		}, []string{"/normal", "/low"}},
		{"a nanosecond after six seconds it is too late", ax.Config{}, []task{
			{at: 0, path: "/low", prio: ax.Low}, {at: 6*time.Second + 1, path: "/normal"},
		}, []string{"/low", "/normal"}},
		{"a task outranks those submitted after its urgentAt", ax.Config{}, []task{
			{at: 0, path: "/low", prio: ax.Low}, {at: 18 * time.Second, path: "/tie", prio: ax.Urgent}, {at: 18*time.Second + 1, path: "/late", prio: ax.Urgent},
		}, []string{"/tie", "/low", "/late"}},
		{"the task's AgingStep, else the lane's, else the scheduler's", ax.Config{AgingStep: time.Second, Lanes: quick}, []task{
			{path: "/scheduler", prio: ax.Low},
			{path: "/lane", prio: ax.Low, host: "b.test"},
			{path: "/task", prio: ax.Low, host: "b.test", step: 10 * qms},
		}, []string{"/task", "/lane", "/scheduler"}},
		{"levels beyond Urgent", ax.Config{AgingStep: time.Second}, []task{
			{at: 0, path: "/urgent", prio: ax.Urgent},
			{at: 3100 * qms, path: "/five-late", prio: 5},
			{at: 2900 * qms, path: "/five", prio: 5},
			{at: 4 * time.Second, path: "/hundred", prio: 100},
		}, []string{"/hundred", "/five", "/urgent", "/five-late"}},
		{"levels below Low", ax.Config{AgingStep: time.Second}, []task{
			{at: 0, path: "/minus5", prio: -5}, {at: 4 * time.Second, path: "/low", prio: ax.Low}, {at: 4*time.Second + 1, path: "/low-late", prio: ax.Low},
		}, []string{"/low", "/minus5", "/low-late"}},
		{"saturating", ax.Config{AgingStep: time.Hour}, []task{
			{path: "/least", prio: math.MinInt},
			{path: "/nearly", prio: math.MinInt + 1},
			{path: "/far", prio: ax.Low, step: math.MaxInt64},
			{path: "/plain"},
			{path: "/more", prio: math.MaxInt - 1},
			{path: "/most", prio: math.MaxInt},
		}, []string{"/most", "/more", "/plain", "/far", "/nearly", "/least"}},
		{"strict: priority, then Seq, however long it waits", ax.Config{StrictPriority: true}, []task{
			{at: 0, path: "/low", prio: ax.Low},
			{at: time.Second, path: "/normal1"},
			{at: 19 * time.Second, path: "/urgent", prio: ax.Urgent},
			{at: 19 * time.Second, path: "/normal2"},
		}, []string{"/urgent", "/normal1", "/normal2", "/low"}},
		{"strict: a task's own AgingStep changes nothing", ax.Config{StrictPriority: true}, []task{
			{at: 0, path: "/low", prio: ax.Low, step: 1}, {at: time.Second, path: "/normal"},
		}, []string{"/normal", "/low"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.cfg.MaxConcurrent = 1
			bubble(t, tt.cfg, func(t *tester) {
				t.Server.Reply = qHold(20 * time.Second)
				calls := qSubmit(t, ax.Request{URL: at("/hold")})
				slices.SortStableFunc(tt.tasks, func(a, b task) int { return int(a.at - b.at) })
				for _, task := range tt.tasks {
					t.Until(task.at)
					host := task.host
					if host == "" {
						host = "a.test"
					}
					calls = append(calls, qSubmit(t, ax.Request{URL: "http://" + host + task.path, Priority: task.prio, AgingStep: task.step})...)
				}
				qOK(t, calls...)
				require.Equal(t, append([]string{"/hold"}, tt.want...), t.Server.Paths())
			})
		})
	}
}

func TestO1RetryKeepsItsRank(t *testing.T) {
	cfg := ax.Config{MaxConcurrent: 1, Retry: &ax.Retry{BaseDelay: time.Second, Jitter: ax.NoJitter}}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.N == 1 {
				return reply(503, ""), nil
			}
			return qHold(2 * time.Second)(h)
		}
		calls := qSubmit(t, ax.Request{URL: at("/retried")})
		synctest.Wait()
		calls = append(calls, qSubmit(t, ax.Request{URL: at("/hold")})...)
		t.Until(500 * qms)
		calls = append(calls, qSubmit(t, ax.Request{URL: at("/younger")}, ax.Request{URL: at("/youngest")})...)
		qOK(t, calls...)
		require.Equal(t, []string{"/retried", "/hold", "/retried", "/younger", "/youngest"}, t.Server.Paths())
	})
}

// A thousand mixed tasks through a gate of one leave exactly in the order of O1.
func TestO1ThousandTasksThroughAGateOfOne(t *testing.T) {
	rnd := rand.New(rand.NewPCG(17, 4))
	steps := []time.Duration{10 * qms, 100 * qms, time.Second, 10 * time.Second}
	tasks := []qTask{{took: time.Second, step: time.Second, host: "a.test"}}
	for range 1000 {
		tasks = append(tasks, qTask{
			at:   1 + time.Duration(rnd.Int64N(int64(9*time.Second))),
			took: 10 * qms, step: steps[rnd.IntN(len(steps))],
			prio: ax.Priority(rnd.IntN(12) - 4), host: "a.test",
		})
	}
	slices.SortStableFunc(tasks, func(a, b qTask) int { return int(a.at - b.at) })
	want := qSimulate(tasks, qLimits{global: 1})
	bubble(t, ax.Config{MaxConcurrent: 1}, func(t *tester) {
		require.Equal(t, want, qPlay(t, tasks))
		require.Equal(t, 1, t.Server.Peak())
	})
}

// Against a reference model with a global gate, gates of hosts and gates of
// owners every task starts at the very nanosecond at which O1 to O4 let it.
func TestO2(t *testing.T) {
	for seed := range uint64(4) {
		t.Run("seed"+strconv.FormatUint(seed, 10), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 99))
			hosts := []string{"a.test", "b.test", "c.test", "d.test", "free.test"}
			owners := []string{"", "", "x", "y", "unlisted"}
			lim := qLimits{global: 6,
				hosts:  map[string]int{"a.test": 1, "b.test": 2, "c.test": 3, "d.test": 1},
				owners: map[string]int{"x": 1, "y": 2}}
			cfg := ax.Config{MaxConcurrent: lim.global, Budgets: map[string]ax.Budget{"x": {MaxConcurrent: 1}, "y": {MaxConcurrent: 2}}}
			for host, n := range lim.hosts {
				cfg.Lanes = append(cfg.Lanes, ax.Lane{Name: host, Match: []string{host}, MaxConcurrent: n})
			}
			var tasks []qTask
			for range 600 {
				tasks = append(tasks, qTask{
					at:   time.Duration(rnd.Int64N(int64(3 * time.Second))),
					took: 10*qms + time.Duration(rnd.Int64N(int64(30*qms))),
					step: time.Duration(1+rnd.IntN(2000)) * qms,
					prio: ax.Priority(rnd.IntN(6) - 2), host: hosts[rnd.IntN(len(hosts))], owner: owners[rnd.IntN(len(owners))],
				})
			}
			slices.SortStableFunc(tasks, func(a, b qTask) int { return int(a.at - b.at) })
			want := qSimulate(tasks, lim)
			bubble(t, cfg, func(t *tester) { require.Equal(t, want, qPlay(t, tasks)) })
		})
	}
}

// A task that cannot start, whatever stops it, delays no other.
func TestO3(t *testing.T) {
	tests := []struct {
		name  string
		cfg   ax.Config
		owner string
		block func(*tester)
	}{
		{"gate", ax.Config{MaxConcurrent: 2, Hosts: &ax.Lane{MaxConcurrent: 1}}, "", func(*tester) {}},
		{"rate", ax.Config{MaxConcurrent: 2, Hosts: &ax.Lane{Rate: ax.PerMinute(1)}}, "", func(*tester) {}},
		{"pause", ax.Config{MaxConcurrent: 2}, "", func(t *tester) { require.NoError(t, t.S.Pause("a.test")) }},
		{"owner's gate", ax.Config{MaxConcurrent: 2, Budgets: map[string]ax.Budget{"o": {MaxConcurrent: 1}}}, "o", func(*tester) {}},
		{"owner's rate", ax.Config{MaxConcurrent: 2, Budgets: map[string]ax.Budget{"o": {Rate: ax.PerMinute(1)}}}, "o", func(*tester) {}},
		{"breaker", ax.Config{MaxConcurrent: 2, Breaker: &ax.Breaker{Window: 1, OpenFor: 5 * time.Second}}, "", func(t *tester) {
			require.Equal(t, 500, t.Do(t.Context(), ax.Request{URL: at("/broken")}).Status())
		}},
		{"429 with Retry-After", ax.Config{MaxConcurrent: 2}, "", func(t *tester) {
			require.Equal(t, 429, t.Do(t.Context(), ax.Request{URL: at("/limited")}).Status())
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, tt.cfg, func(t *tester) {
				t.Server.Reply = func(h *hit) (*http.Response, error) {
					switch h.URL.Path {
					case "/broken":
						return reply(500, ""), nil
					case "/limited":
						return reply(429, "", "Retry-After: 5"), nil
					}
					return qHold(3 * time.Second)(h)
				}
				qSubmit(t, ax.Request{URL: at("/hold"), Owner: tt.owner})
				synctest.Wait()
				tt.block(t)
				for range 100 {
					qSubmit(t, ax.Request{URL: at("/blocked"), Owner: tt.owner, Priority: ax.Urgent})
				}
				t.Until(time.Second)
				require.NotContains(t, qSeen(t), "/blocked")
				require.Equal(t, 200, t.Do(t.Context(), ax.Request{URL: "http://b.test/free", Priority: ax.Low}).Status())
				require.Equal(t, time.Second, qSeen(t)["/free"])
			})
		})
	}
}

// A year of blocked tasks passes without a single look at them: whatever polled
// would never get through it.
func TestO3NothingPolls(t *testing.T) {
	const year = 365 * 24 * time.Hour
	cfg := ax.Config{MaxConcurrent: 2, Rate: []ax.Rate{{Limit: 1, Per: year}}}
	bubble(t, cfg, func(t *tester) {
		require.NoError(t, t.S.Pause("paused.test"))
		qSubmit(t, ax.Request{URL: "http://paused.test/"})
		calls := qSubmit(t, ax.Request{URL: at("/first")}, ax.Request{URL: at("/second")})
		qOK(t, calls...)
		require.Equal(t, []time.Duration{0, year}, t.Server.Times())
	})
}

// Whoever comes the instant a slot is freed finds it given away already.
func TestO4NobodyBarges(t *testing.T) {
	bubble(t, ax.Config{MaxConcurrent: 1}, func(t *tester) {
		t.Server.Reply = after(10*qms, 200, "")
		waiter := t.Go(t.Context(), ax.Request{URL: at("/0")})
		for i := range 200 {
			running := waiter
			synctest.Wait()
			waiter = t.Go(t.Context(), ax.Request{URL: at("/" + strconv.Itoa(i+1)), Priority: ax.Low})
			synctest.Wait()
			require.Equal(t, 200, (<-running).Status())
			barger := t.Do(t.Context(), ax.Request{URL: at("/barge"), Priority: ax.Urgent, NoWait: true})
			qErr(t, barger.Err, "admit", ax.ErrWouldWait)
		}
		require.Equal(t, 200, (<-waiter).Status())
		require.Equal(t, qEvery(0, 10*qms, 201), t.Server.Times())
		require.Equal(t, 1, t.Server.Peak())
	})
}

// A cancelled waiter is out of the queue at once, whoever cancels it, and its place is free.
func TestO4CancelledWaiterLeavesAtOnce(t *testing.T) {
	cancels := map[string]func(t *tester, c *ax.Call, cancel context.CancelFunc){
		"ctx":  func(_ *tester, _ *ax.Call, cancel context.CancelFunc) { cancel() },
		"call": func(_ *tester, c *ax.Call, _ context.CancelFunc) { c.Cancel() },
		"tag":  func(t *tester, _ *ax.Call, _ context.CancelFunc) { require.Equal(t, 1, t.S.CancelTag("tag")) },
	}
	for name, end := range cancels {
		t.Run(name, func(t *testing.T) {
			bubble(t, ax.Config{MaxConcurrent: 1, MaxQueue: 1}, func(t *tester) {
				t.Server.Reply = qHold(time.Second)
				hold := qSubmit(t, ax.Request{URL: at("/hold")})
				synctest.Wait()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				front := t.S.Submit(ctx, ax.Must(ax.Request{URL: at("/front"), Tags: []string{"tag"}}.Task()))
				_, err := qSubmit(t, ax.Request{URL: at("/refused")})[0].Result()
				qErr(t, err, "admit", ax.ErrQueueFull)
				t.Until(100 * qms)
				end(t, front, cancel)
				synctest.Wait()
				require.True(t, qDone(front))
				_, err = front.Result()
				qErr(t, err, "queue", context.Canceled)
				require.Zero(t, t.S.Stats().Queued)
				follower := qSubmit(t, ax.Request{URL: at("/follower")})
				require.Equal(t, 1, t.S.Stats().Queued)
				qOK(t, append(hold, follower...)...)
				require.Equal(t, []string{"/hold", "/follower"}, t.Server.Paths())
				require.Equal(t, []time.Duration{0, time.Second}, t.Server.Times())
			})
		})
	}
}

// A best-ranked waiter whose refusal is due when its turn comes hands its turn on in the same instant.
func TestO4RefusedTurnGoesToTheNext(t *testing.T) {
	bubble(t, ax.Config{MaxConcurrent: 1, MinRemaining: 500 * qms}, func(t *tester) {
		t.Server.Reply = qHold(time.Second)
		hold := qSubmit(t, ax.Request{URL: at("/hold")})
		synctest.Wait()
		ctx := qTimeout(t, 1300*qms)
		var refused []*ax.Call
		for range 10 {
			refused = append(refused, t.S.Submit(ctx, ax.Must(ax.Request{URL: at("/refused"), Priority: ax.Urgent}.Task())))
		}
		qOK(t, append(hold, qSubmit(t, ax.Request{URL: at("/next"), Priority: ax.Low})...)...)
		require.Equal(t, []time.Duration{0, time.Second}, t.Server.Times())
		synctest.Wait()
		for _, c := range refused {
			require.True(t, qDone(c))
			_, err := c.Result()
			qErr(t, err, "queue", ax.ErrWouldExceedDeadline)
		}
	})
}
