package ax_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// dEnding is one way for a task to end, with the terminal event it must have.
type dEnding struct {
	cfg  ax.Config
	prep func(*tester)
	req  ax.Request
	ctx  func() (context.Context, context.CancelFunc)
	kind ax.EventKind
	is   error
	op   string
	ends int // tasks that end meanwhile; 0 = 1
}

func dTimeout() (context.Context, context.CancelFunc) { return context.WithTimeout(dBG, time.Second) }

func dStatic(context.Context, *ax.Task, error) (*http.Response, error) {
	return reply(299, "static"), nil
}

func dCooling(t *tester) {
	t.S.Submit(dBG, ax.Must(ax.Request{URL: at("/end"), Cooldown: time.Hour}.Task())).Discard()
}

func dOpenBreaker(t *tester) { t.Do(dBG, dGet("/500")) }

// dScript answers by path: a number is a status, "hog" and "hang" hang, "reset" fails.
func dScript(h *hit) (*http.Response, error) {
	switch p := strings.TrimPrefix(h.URL.Path, "/"); p {
	case "hog", "hang":
		return nil, h.Sleep(24 * time.Hour)
	case "reset":
		return nil, errors.New("reset by peer")
	case "end":
		return after(10*dms, 200, "end")(h)
	default:
		var status int
		fmt.Sscan(p, &status)
		return reply(status, ""), nil
	}
}

var dEndings = map[string]dEnding{
	"200":               {req: dGet("/200"), kind: ax.EventSucceeded},
	"404":               {req: dGet("/404"), kind: ax.EventSucceeded},
	"503":               {req: dGet("/503"), kind: ax.EventSucceeded},
	"503 after retries": {cfg: ax.Config{Retry: &ax.Retry{}}, req: dGet("/503"), kind: ax.EventSucceeded},
	"window hit": {cfg: ax.Config{Dedupe: &ax.Dedupe{Window: time.Hour}}, prep: func(t *tester) { t.Do(dBG, dGet("/end")) },
		req: dGet("/end"), kind: ax.EventSucceeded},
	"joiner": {cfg: ax.Config{Dedupe: &ax.Dedupe{}}, prep: func(t *tester) { t.S.Submit(dBG, ax.Must(dGet("/end").Task())).Discard() },
		req: dGet("/end"), kind: ax.EventSucceeded, ends: 2},
	"static": {req: ax.Request{URL: at("/reset"), Fallback: &ax.Fallback{Static: dStatic}}, kind: ax.EventSucceeded},

	"queue full": {cfg: ax.Config{MaxConcurrent: 1, MaxQueue: 1}, prep: func(t *tester) { dHog(t); dHog(t) },
		req: dGet("/end"), kind: ax.EventRejected, is: ax.ErrQueueFull, op: "admit"},
	"queue timeout": {cfg: ax.Config{MaxConcurrent: 1, QueueTimeout: time.Second}, prep: dHog,
		req: dGet("/end"), kind: ax.EventRejected, is: ax.ErrQueueTimeout, op: "queue"},
	"evicted": {cfg: ax.Config{MaxConcurrent: 1, MaxQueue: 1, Overflow: ax.OverflowEvict}, prep: func(t *tester) {
		dHog(t)
		time.AfterFunc(time.Second, func() {
			t.S.Submit(dBG, ax.Must(ax.Request{URL: at("/hog"), Priority: ax.Urgent}.Task())).Discard()
		})
	}, req: dGet("/end"), kind: ax.EventRejected, is: ax.ErrEvicted, op: "queue"},
	"budget": {cfg: ax.Config{Budgets: map[string]ax.Budget{"o": {MaxConcurrent: 1, Over: ax.OverReject}}}, prep: dHog,
		req: ax.Request{URL: at("/end"), Owner: "o"}, kind: ax.EventRejected, is: ax.ErrBudget, op: "admit"},
	"cooldown": {prep: dCooling, req: ax.Request{URL: at("/end"), Cooldown: time.Hour}, kind: ax.EventRejected, is: ax.ErrCooldown, op: "admit"},
	"breaker": {cfg: ax.Config{Breaker: &ax.Breaker{Window: 1, WhenOpen: ax.OpenReject}}, prep: dOpenBreaker,
		req: dGet("/end"), kind: ax.EventRejected, is: ax.ErrCircuitOpen, op: "admit"},
	"deadline out of reach": {cfg: ax.Config{Breaker: &ax.Breaker{Window: 1, OpenFor: time.Hour}}, prep: dOpenBreaker,
		req: dGet("/end"), ctx: dTimeout, kind: ax.EventRejected, is: ax.ErrWouldExceedDeadline, op: "admit"},
	"would wait": {cfg: ax.Config{MaxConcurrent: 1}, prep: dHog, req: ax.Request{URL: at("/end"), NoWait: true},
		kind: ax.EventRejected, is: ax.ErrWouldWait, op: "admit"},
	"closed": {prep: func(t *tester) { require.NoError(t, t.S.Close()) }, req: dGet("/end"), kind: ax.EventRejected, is: ax.ErrClosed, op: "admit"},

	"deadline in the queue": {cfg: ax.Config{MaxConcurrent: 1}, prep: dHog, req: dGet("/end"), ctx: dTimeout,
		kind: ax.EventCanceled, is: context.DeadlineExceeded, op: "queue"},
	"deadline in flight": {req: dGet("/hang"), ctx: dTimeout, kind: ax.EventCanceled, is: context.DeadlineExceeded, op: "attempt"},
	"dead on arrival": {req: dGet("/end"), ctx: func() (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(dBG)
		cancel()
		return ctx, cancel
	}, kind: ax.EventCanceled, is: context.Canceled},

	"transport error":     {req: dGet("/reset"), kind: ax.EventFailed, op: "attempt"},
	"error after retries": {cfg: ax.Config{Retry: &ax.Retry{}}, req: dGet("/reset"), kind: ax.EventFailed, op: "attempt"},
	"attempt timeout": {req: ax.Request{URL: at("/hang"), AttemptTimeout: time.Second}, kind: ax.EventFailed,
		is: context.DeadlineExceeded, op: "attempt"},
	"fallback fails": {req: ax.Request{URL: at("/reset"), Fallback: &ax.Fallback{
		Static: func(context.Context, *ax.Task, error) (*http.Response, error) { return nil, errDCause },
	}}, kind: ax.EventFailed, is: errDCause},
}

// TestX2OneTerminalEvent equal to what Do returns and delivered before it does,
// and to what Result returns, delivered before Done closes.
func TestX2OneTerminalEvent(t *testing.T) {
	for name, c := range dEndings {
		for _, submit := range []bool{false, true} {
			t.Run(fmt.Sprint(name, "/submit=", submit), func(t *testing.T) { dEndOf(t, c, submit) })
		}
	}
}

func dEndOf(t *testing.T, c dEnding, submit bool) {
	log := &dLog{}
	c.cfg.OnEvent = log.On
	bubble(t, c.cfg, func(t *tester) {
		t.Server.Reply = dScript
		if c.prep != nil {
			c.prep(t)
			synctest.Wait()
		}
		ctx, cancel := dBG, context.CancelFunc(func() {})
		if c.ctx != nil {
			ctx, cancel = c.ctx()
		}
		defer cancel()
		before := t.S.Stats()
		task := ax.Must(c.req.Task())
		var resp *ax.Response
		var err error
		if submit {
			call := t.S.Submit(ctx, task)
			<-call.Done()
			log.End(t, call.Seq())
			resp, err = call.Result()
			require.Equal(t, call.Seq(), log.Last(t, c.req.URL[len("http://a.test"):]).Seq)
		} else {
			resp, err = t.S.Do(ctx, task)
		}
		last := log.Last(t, c.req.URL[len("http://a.test"):])
		require.Equal(t, c.kind, last.Kind)
		require.Same(t, task, last.Task)
		require.Equal(t, ax.EventSubmitted, log.Kinds(last.Seq)[0])
		if c.kind == ax.EventSucceeded {
			require.NoError(t, err)
			require.Equal(t, resp.StatusCode, last.Status)
			require.Equal(t, resp.Source, last.Source)
			require.Equal(t, resp.Seq, last.Seq)
		} else {
			require.Nil(t, resp)
			require.Equal(t, err.Error(), last.Err.Error())
			e := dError(t, err)
			if c.is != nil {
				require.ErrorIs(t, err, c.is)
				require.ErrorIs(t, last.Err, c.is)
			}
			if c.op != "" {
				require.Equal(t, c.op, e.Op)
			}
		}
		dCounted(t, before, t.S.Stats(), c.kind, max(1, c.ends))
	})
}

// dCounted checks that one more task ended, in the counter of its kind.
func dCounted(t *tester, before, now ax.Stats, kind ax.EventKind, want int) {
	got := map[ax.EventKind]uint64{
		ax.EventSucceeded: now.Succeeded - before.Succeeded, ax.EventFailed: now.Failed - before.Failed,
		ax.EventCanceled: now.Canceled - before.Canceled, ax.EventRejected: now.Rejected - before.Rejected,
	}
	require.EqualValues(t, want, got[kind], "%v of %v", kind, got)
}

// TestX2GaugesAreNeverNegative under a random load, looked at from every event.
func TestX2GaugesAreNeverNegative(t *testing.T) {
	var sched atomic.Pointer[ax.Scheduler]
	var bad atomic.Value
	var looks atomic.Int64
	log := &dLog{}
	cfg := ax.Config{
		MaxConcurrent: 4, MaxQueue: 20, Dedupe: &ax.Dedupe{Window: 5 * dms}, Retry: &ax.Retry{BaseDelay: dms},
		Hosts: &ax.Lane{MaxConcurrent: 3}, Budgets: map[string]ax.Budget{"o": {MaxConcurrent: 1, MaxQueue: 5}},
		OnEvent: func(e ax.Event) {
			log.On(e)
			if s := sched.Load(); s != nil {
				looks.Add(1)
				st := s.Stats()
				ends := st.Succeeded + st.Failed + st.Canceled + st.Rejected
				if min(st.Active, st.Queued, st.Parked) < 0 || st.Active > 4 || ends > st.Submitted {
					bad.Store(fmt.Sprintf("%+v", st))
				}
			}
		},
	}
	rng := rand.New(rand.NewPCG(1, 2))
	bubble(t, cfg, func(t *tester) {
		sched.Store(t.S)
		statuses := []int{200, 404, 500, 503, 429}
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			return after(time.Duration(h.N%7)*dms, statuses[h.N%len(statuses)], "x")(h)
		}
		var wg sync.WaitGroup
		for i := range 600 {
			r := ax.Request{URL: fmt.Sprintf("http://%c.test/%d", 'a'+i%3, i%11), Priority: ax.Priority(i%4 - 1), Tags: []string{fmt.Sprint(i % 5)}}
			if i%4 == 0 {
				r.Owner = "o"
			}
			if i%9 == 0 {
				r.Method = "POST"
			}
			wait, life := time.Duration(rng.IntN(200))*dms, time.Duration(rng.IntN(60))*dms
			wg.Go(func() {
				time.Sleep(wait)
				ctx, cancel := context.WithTimeout(dBG, life)
				defer cancel()
				t.S.Submit(ctx, ax.Must(r.Task())).Result()
			})
		}
		wg.Wait()
		synctest.Wait()
		st := t.S.Stats()
		require.Zero(t, st.Active+st.Queued+st.Parked)
		require.EqualValues(t, 600, st.Submitted)
		for _, e := range log.All() {
			if e.Kind == ax.EventSubmitted {
				log.End(t, e.Seq)
			}
		}
	})
	require.Nil(t, bad.Load())
	require.NotZero(t, looks.Load())
}

// TestX6EventsMayCallBack: anything that does not wait for tasks, Submit too,
// and a nested Do with the event's context while its attempt runs.
func TestX6EventsMayCallBack(t *testing.T) {
	var sched atomic.Pointer[ax.Scheduler]
	var nested, submitted atomic.Int64
	cfg := ax.Config{MaxConcurrent: 1, Retry: &ax.Retry{}, Breaker: &ax.Breaker{Window: 1}, Dedupe: &ax.Dedupe{}}
	cfg.OnEvent = func(e ax.Event) {
		if e.Task == nil || !strings.HasSuffix(e.Task.URL(), "/outer") {
			return
		}
		s := sched.Load()
		dTouchAll(s)
		switch e.Kind {
		case ax.EventStarted:
			if resp, err := s.Send(e.Context, ax.Request{URL: "http://b.test/"}); err == nil && resp.StatusCode == 200 {
				nested.Add(1)
			}
		case ax.EventSucceeded:
			submitted.Add(1)
			s.Submit(dBG, ax.Must(ax.Request{URL: "http://c.test/"}.Task())).Discard()
		}
	}
	synctest.Test(t, func(t *testing.T) {
		var failed atomic.Bool
		srv := &server{start: time.Now(), Reply: func(h *hit) (*http.Response, error) {
			if h.URL.Path == "/outer" && failed.CompareAndSwap(false, true) {
				return reply(503, ""), nil
			}
			return reply(200, ""), nil
		}}
		s, err := ax.New(&http.Client{Transport: srv}, cfg)
		require.NoError(t, err)
		sched.Store(s)
		resp, err := s.Send(dBG, dGet("/outer"))
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode)
		synctest.Wait()
		require.EqualValues(t, 2, nested.Load(), "a nested Do needs no slot")
		require.EqualValues(t, 1, submitted.Load())
		require.NoError(t, s.Close())
		require.EqualValues(t, 4, s.Stats().Succeeded)
	})
}

// dTouchAll calls whatever does not wait for tasks.
func dTouchAll(s *ax.Scheduler) {
	s.Stats()
	s.Advice()
	s.CancelTag("nobody")
	s.Invalidate("nothing")
	s.SetLimits("", ax.Limits{MaxConcurrent: 1})
	s.SetBudget("nobody", ax.Budget{MaxConcurrent: 1})
	s.Pause("else.test")
	s.Resume("else.test")
	s.Scope(dBG).Cancel(nil)
}

// TestX6PanickingCallback is recovered and logged, and changes nothing else.
func TestX6PanickingCallback(t *testing.T) {
	logged := &dRecords{}
	cfg := ax.Config{MaxConcurrent: 1, Dedupe: &ax.Dedupe{}, Logger: slog.New(logged), OnEvent: func(ax.Event) { panic("hook") }}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = after(10*dms, 200, "fine")
		a, b := t.Go(dBG, dGet("/x")), t.Go(dBG, dGet("/x"))
		for _, c := range []<-chan result{a, b} {
			r := <-c
			require.NoError(t, r.Err)
			require.Equal(t, "fine", dText(t, r.Resp.Response))
		}
		_, err := t.S.Submit(dBG, ax.Must(ax.Request{Method: "POST", URL: at("/y")}.Task())).Result()
		require.NoError(t, err)
		require.EqualValues(t, 3, t.S.Stats().Succeeded)
		require.NotZero(t, logged.At(slog.LevelWarn))
	})
}

// TestX6OrderAndContext: one task's events come in order, with growing times and
// a context that carries the caller's values; while an attempt runs, the attempt's.
func TestX6OrderAndContext(t *testing.T) {
	log := &dLog{}
	var live atomic.Int64
	cfg := ax.Config{MaxConcurrent: 1, Retry: &ax.Retry{BaseDelay: 100 * dms, Jitter: ax.NoJitter}}
	cfg.OnEvent = func(e ax.Event) {
		log.On(e)
		if e.Kind == ax.EventStarted && e.Context.Err() == nil {
			live.Add(1)
		}
	}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			return after(50*dms, map[bool]int{true: 503, false: 200}[h.N == 2], "")(h)
		}
		hog := t.Go(dBG, dGet("/hog"))
		ctx := context.WithValue(dBG, dValue{}, "mine")
		r := <-t.GoAt(10*dms, ctx, dGet("/x"))
		<-hog
		require.Equal(t, 2, r.Resp.Attempts)
		require.Equal(t, 40*dms, r.Resp.Waited)
		want := []ax.EventKind{ax.EventSubmitted, ax.EventQueued, ax.EventStarted, ax.EventAttemptDone, ax.EventRetryScheduled,
			ax.EventStarted, ax.EventAttemptDone, ax.EventSucceeded}
		var got []ax.EventKind
		var prev time.Time
		for _, e := range log.Of(r.Resp.Seq) {
			require.Equal(t, "mine", e.Context.Value(dValue{}), "%v", e.Kind)
			require.False(t, e.Time.Before(prev))
			require.Equal(t, "a.test", e.Lane)
			prev, got = e.Time, append(got, e.Kind)
		}
		got = dWithout(got, want)
		require.Equal(t, want, got)
		require.EqualValues(t, 3, live.Load())
	})
}

// dWithout is got with the kinds that are not in want left out: a retry may be
// told of as queued again.
func dWithout(got, want []ax.EventKind) []ax.EventKind {
	var out []ax.EventKind
	queued := false
	for _, k := range got {
		if k == ax.EventQueued && queued {
			continue
		}
		queued = queued || k == ax.EventQueued
		out = append(out, k)
	}
	return out[:min(len(out), len(want)+1)]
}
