package ax_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// fOutage is what a host does for a while.
type fOutage struct {
	until time.Duration
	kind  int // 0 healthy, 1 mostly errors, 2 dead, 3 hanging, 4 too many requests
}

// fWeather is a day of outages of one host, two minutes to an hour each.
func fWeather(r *rand.Rand) []fOutage {
	var day []fOutage
	for at := time.Duration(0); at < 25*time.Hour; {
		kind := max(0, r.IntN(9)-4)
		length := time.Duration(2+r.IntN(10)) * time.Minute
		if kind == 0 {
			length = time.Duration(10+r.IntN(50)) * time.Minute
		}
		at += length
		day = append(day, fOutage{at, kind})
	}
	return day
}

// TestF6SoakOfOneDayWithRandomOutages sends some 20,000 tasks through a simulated day.
// Every task is answered once; budget and breaker are checked throughout, from what
// the servers saw.
func TestF6SoakOfOneDayWithRandomOutages(t *testing.T) {
	const seed, hosts, gate = 20_260_101, 3, 8
	rnd := rand.New(rand.NewPCG(seed, 1))
	weather := map[string][]fOutage{}
	for i := range hosts {
		weather[fmt.Sprintf("h%d.test", i)] = fWeather(rnd)
	}
	ev := &fEvents{}
	var s *ax.Scheduler
	var bad sync.Map // what was wrong with a snapshot
	cfg := ax.Config{
		MaxConcurrent: gate, MaxQueue: ax.NoLimit, QueueTimeout: 2 * time.Minute, AttemptTimeout: 5 * fsec,
		Retry: &ax.Retry{}, Breaker: &ax.Breaker{},
		OnEvent: func(e ax.Event) {
			ev.Add(e)
			st := s.Stats()
			ended := st.Succeeded + st.Failed + st.Canceled + st.Rejected
			if st.Active < 0 || st.Active > gate || st.Queued < 0 || st.Parked < 0 || ended > st.Submitted {
				bad.Store(fmt.Sprintf("%+v", st), e.Kind)
			}
		},
	}
	bubble(t, cfg, func(t *tester) {
		s = t.S
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			kind := 0
			for _, o := range weather[h.URL.Host] {
				if kind = o.kind; h.At < o.until {
					break
				}
			}
			if err := h.Sleep(time.Duration(20+h.N%97) * fms); err != nil {
				return nil, err
			}
			switch {
			case kind == 1 && h.N%5 < 3:
				return reply(500, ""), nil
			case kind == 2:
				return nil, errFWire
			case kind == 3:
				return fHang(h)
			case kind == 4 && h.N%3 > 0:
				return reply(429, "", "Retry-After: "+strconv.Itoa(1+h.N%20)), nil
			}
			return reply(200, "ok"), nil
		}
		var wg sync.WaitGroup
		var mu sync.Mutex
		answers, sent := 0, 0
		for t.At() < 24*time.Hour {
			time.Sleep(time.Duration(rnd.ExpFloat64() * 4 * float64(fsec)))
			task := ax.Must(ax.Request{URL: fmt.Sprintf("http://h%d.test/%d", rnd.IntN(hosts), sent)}.Task())
			sent++
			wg.Go(func() {
				resp, err := t.S.Do(t.Context(), task)
				if (resp == nil) == (err == nil) {
					t.Errorf("%s: neither or both of an answer and an error", task.URL())
				}
				mu.Lock()
				answers++
				mu.Unlock()
			})
		}
		wg.Wait()
		require.Equal(t, sent, answers)
		require.Greater(t, sent, 20_000)
		bad.Range(func(k, v any) bool { t.Errorf("at %v: %v", v, k); return true })
		require.LessOrEqual(t, t.Server.Peak(), gate)

		seen := map[uint64]int{}
		for _, e := range ev.Of(ax.EventSucceeded, ax.EventFailed, ax.EventCanceled, ax.EventRejected) {
			seen[e.Seq]++
		}
		require.Len(t, seen, sent)
		for seq, n := range seen {
			require.Equal(t, 1, n, "ends of task %d", seq)
		}
		for host := range weather {
			fCheckRetryBudget(t, ev, host)
			fCheckBreaker(t, ev, host)
		}
		require.NotEmpty(t, ev.Of(ax.EventBreakerOpened), "the day had outages")
		require.NotEmpty(t, ev.Of(ax.EventBreakerClosed), "and recoveries")
		require.NotEmpty(t, ev.Of(ax.EventLanePaused))
		require.Positive(t, t.S.Stats().Retries)
	})
}

// fCheckRetryBudget replays a lane's starts: over the 10 s up to each retry, retries stay within max(3, 0.2 × first attempts).
func fCheckRetryBudget(t *tester, ev *fEvents, host string) {
	var starts []ax.Event
	for _, e := range ev.Of(ax.EventStarted) {
		if e.Lane == host {
			starts = append(starts, e)
		}
	}
	for i, e := range starts {
		if e.Attempt == 1 {
			continue
		}
		firsts, retries := 0, 0
		for j := i; j >= 0 && e.Time.Sub(starts[j].Time) < 10*fsec; j-- {
			if starts[j].Attempt == 1 {
				firsts++
			} else {
				retries++
			}
		}
		require.LessOrEqual(t, float64(retries), max(3, 0.2*float64(firsts)), "%s at %v", host, e.Time.Sub(t.start))
	}
}

// fCheckBreaker replays a lane's transitions against what its server saw.
func fCheckBreaker(t *tester, ev *fEvents, host string) {
	hits := fHostHits(t, host)
	between := func(from, to time.Duration) (n int) { // both ends excluded
		for _, at := range hits {
			if at > from && at < to {
				n++
			}
		}
		return n
	}
	next := map[ax.EventKind][]ax.EventKind{
		ax.EventBreakerOpened:   {ax.EventBreakerHalfOpen},
		ax.EventBreakerHalfOpen: {ax.EventBreakerOpened, ax.EventBreakerRamping, ax.EventBreakerClosed},
		ax.EventBreakerRamping:  {ax.EventBreakerOpened, ax.EventBreakerClosed},
		ax.EventBreakerClosed:   {ax.EventBreakerOpened},
	}
	last, since := ax.EventBreakerClosed, time.Duration(0)
	for _, e := range ev.Of(fBreakerKinds...) {
		if e.Lane != host {
			continue
		}
		now := e.Time.Sub(t.start)
		require.Contains(t, next[last], e.Kind, "%s at %v", host, now)
		switch last {
		case ax.EventBreakerOpened:
			require.GreaterOrEqual(t, now-since, 3*fsec, "a full OpenFor")
			require.Zero(t, between(since, since+3*fsec), "%s is open at %v", host, since)
		case ax.EventBreakerHalfOpen:
			require.LessOrEqual(t, between(since-1, now), 1, "one probe until the verdict, %s at %v", host, since)
			if e.Kind == ax.EventBreakerClosed { // a quiet host is forgotten, and its breaker with it (X4)
				require.GreaterOrEqual(t, now-since, time.Minute, "for a quiet MaxAge, %s at %v", host, since)
				require.Zero(t, between(since-1, now))
			}
		case ax.EventBreakerRamping:
			if e.Kind == ax.EventBreakerClosed {
				require.GreaterOrEqual(t, now-since, 3*fsec, "a full Ramp")
			}
		}
		last, since = e.Kind, now
	}
}
