package ax_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// aOf is the advice on one field of a.test, or nil.
func aOf(t *tester, field string) *ax.Advice {
	t.Helper()
	var found *ax.Advice
	for _, a := range t.S.Advice() {
		require.NotEmpty(t, a.Why)
		require.IsType(t, a.Current, a.Suggested, a.Field)
		require.NotEqual(t, a.Current, a.Suggested, a.Field)
		if a.Lane == "a.test" && a.Field == field {
			require.Nil(t, found, "%s twice", field)
			found = &a
		}
	}
	return found
}

// aMust is the advice on a field, which there must be.
func aMust(t *tester, field string) ax.Advice {
	t.Helper()
	a := aOf(t, field)
	require.NotNil(t, a, "no advice on %s in %v", field, t.S.Advice())
	t.Logf("%s: %v → %v: %s", a.Field, a.Current, a.Suggested, a.Why)
	return *a
}

// aNear asserts a duration within 8 %: a histogram's bucket and a rounding up.
func aNear(t *tester, want time.Duration, got any) {
	t.Helper()
	require.InEpsilon(t, float64(want), float64(got.(time.Duration)), 0.08, "%v for %v", got, want)
}

// aFields are the fields that there is advice on.
func aFields(t *tester) []string {
	var fields []string
	for _, a := range t.S.Advice() {
		fields = append(fields, a.Field)
	}
	return fields
}

// aSerial sends n tasks one after the other, each to a URL of its own.
func aSerial(t *tester, n int) {
	for i := range n {
		t.Do(dBG, dGet(fmt.Sprint("/", i)))
	}
}

// aOpen sends a task every gap for d, whatever becomes of those before, and
// waits for them all.
func aOpen(t *tester, d, gap time.Duration, path func(i int) string) {
	var wg sync.WaitGroup
	for i := range int(d / gap) {
		wg.Go(func() { t.Do(dBG, dGet(path(i))) })
		time.Sleep(gap)
	}
	wg.Wait()
}

// aClosed keeps n tasks under way for d.
func aClosed(t *tester, n int, d time.Duration) {
	end := t.At() + d
	var wg sync.WaitGroup
	for id := range n {
		wg.Go(func() {
			for i := 0; t.At() < end; i++ {
				t.Do(dBG, dGet(fmt.Sprintf("/%d/%d", id, i)))
			}
		})
	}
	wg.Wait()
}

func aPath(i int) string { return fmt.Sprint("/", i) }

// aTook answers the i-th request after took(i).
func aTook(took func(i int) time.Duration) func(*hit) (*http.Response, error) {
	return func(h *hit) (*http.Response, error) {
		if err := h.Sleep(took(h.N)); err != nil {
			return nil, err
		}
		return reply(200, ""), nil
	}
}

// aTail is 100 ms, and 300 ms for one in fifty: p99 is 300 ms, p95 is 100 ms.
func aTail(i int) time.Duration {
	if i%50 == 0 {
		return 300 * fms
	}
	return 100 * fms
}

// aSpread is 1 to 200 ms, all equally often.
func aSpread(i int) time.Duration { return time.Duration(1+i*37%200) * fms }

func TestAdviceAttemptTimeout(t *testing.T) {
	for _, c := range []struct {
		name      string
		took      func(int) time.Duration
		current   time.Duration
		suggested time.Duration // 0 = nothing
	}{
		{"constant", func(int) time.Duration { return 100 * fms }, 0, 160 * fms},                           // 150 + the least margin
		{"tail", aTail, 0, 600 * fms},                                                                      // 450 + half of p99
		{"uniform", aSpread, 0, 307 * fms},                                                                 // 297 + the least margin
		{"far too long", aTail, 10 * fsec, 600 * fms},                                                      //
		{"good", aTail, 700 * fms, 0},                                                                      //
		{"long enough not to matter", aTail, 1100 * fms, 0},                                                //
		{"none by name", aTail, ax.NoTimeout, 600 * fms},                                                   //
		{"too tight", aSpread, 150 * fms, 225 * fms},                                                       // every fourth is cut: half as much again
		{"hangs", func(i int) time.Duration { return aHangs(i, 100*fms) }, 10 * fsec, 160 * fms},           // what never answers has no p99
		{"no room", func(i int) time.Duration { return aTail(i) / 3 }, 102 * fms, 200 * fms},               // p99 is 100 ms
		{"microseconds", func(int) time.Duration { return 200 * time.Microsecond }, 0, 10300 * fms / 1000}, // the margin is most of it
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, ax.Config{AttemptTimeout: c.current}, func(t *tester) {
				t.Server.Reply = aTook(c.took)
				aSerial(t, 1000)
				if c.suggested == 0 {
					require.Nil(t, aOf(t, "AttemptTimeout"))
					return
				}
				a := aMust(t, "AttemptTimeout")
				aNear(t, c.suggested, a.Suggested)
				if c.current == ax.NoTimeout {
					c.current = 0
				}
				require.Equal(t, c.current, a.Current)
			})
		})
	}
}

// aHangs is took, and for ever for three in a hundred.
func aHangs(i int, took time.Duration) time.Duration {
	if i%33 == 0 {
		return time.Hour
	}
	return took
}

func TestAdviceAttemptTimeoutTooFewSamples(t *testing.T) {
	bubble(t, ax.Config{}, func(t *tester) {
		t.Server.Reply = aTook(aTail)
		aSerial(t, 499)
		require.Empty(t, t.S.Advice())
		aSerial(t, 1)
		require.NotNil(t, aOf(t, "AttemptTimeout"))
	})
}

// Failures that come fast are no answers: they do not pull p99 down.
func TestAdviceAttemptTimeoutIgnoresFailures(t *testing.T) {
	bubble(t, ax.Config{}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.N%2 == 0 {
				return reply(500, ""), nil
			}
			return aTook(func(i int) time.Duration { return aTail(i/2 + 1) })(h)
		}
		aSerial(t, 1500)
		aNear(t, 600*fms, aMust(t, "AttemptTimeout").Suggested)
	})
}

// aRepeats sends a task every half second, and two of five again gap later.
func aRepeats(t *tester, n int, gap time.Duration) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { t.Do(dBG, dGet(aPath(i))) })
		time.Sleep(gap)
		if i%5 < 2 {
			wg.Go(func() { t.Do(dBG, dGet(aPath(i))) })
		}
		time.Sleep(500*fms - gap)
	}
	wg.Wait()
}

func TestAdviceDedupeWindow(t *testing.T) {
	for name, cfg := range map[string]ax.Config{
		"in flight only": {Dedupe: &ax.Dedupe{}},
		"too short":      {Dedupe: &ax.Dedupe{Window: 50 * fms}},
		"dry run":        {Dedupe: &ax.Dedupe{}, DryRun: true},
		"dry and off":    {DryRun: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, cfg, func(t *tester) {
				t.Server.Reply = after(100*fms, 200, "")
				aRepeats(t, 500, 160*fms)
				a := aMust(t, "Dedupe.Window")
				aNear(t, 200*fms, a.Suggested)
				require.GreaterOrEqual(t, a.Suggested, 195*fms)
				current := time.Duration(0)
				if cfg.Dedupe != nil {
					current = cfg.Dedupe.Window
				}
				require.Equal(t, current, a.Current)
				require.Contains(t, a.Why, "200 of 700 tasks that could share (29%)")
			})
		})
	}
}

func TestAdviceDedupeWindowNothing(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  ax.Config
		gap  time.Duration
		n    int
	}{
		{"good already", ax.Config{Dedupe: &ax.Dedupe{Window: 300 * fms}}, 160 * fms, 500},
		{"off for good", ax.Config{}, 160 * fms, 500},
		{"too far apart", ax.Config{Dedupe: &ax.Dedupe{}}, 450 * fms, 500},
		{"too few samples", ax.Config{Dedupe: &ax.Dedupe{}}, 160 * fms, 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, c.cfg, func(t *tester) {
				t.Server.Reply = after(100*fms, 200, "")
				aRepeats(t, c.n, c.gap)
				require.Nil(t, aOf(t, "Dedupe.Window"))
			})
		})
	}
}

// aBooths is a server with n booths where each request takes took; the others
// queue inside it.
func aBooths(n int, took time.Duration) func(*hit) (*http.Response, error) {
	booths := make(chan struct{}, n)
	return func(h *hit) (*http.Response, error) {
		select {
		case booths <- struct{}{}:
		case <-h.Context().Done():
			return nil, h.Context().Err()
		}
		defer func() { <-booths }()
		return after(took, 200, "")(h)
	}
}

// aClimb loads the lane with ever more at once.
func aClimb(t *tester, levels ...int) {
	for _, n := range levels {
		aClosed(t, n, 10*fsec)
		time.Sleep(fsec)
	}
}

func TestAdviceMaxConcurrentKnee(t *testing.T) {
	for _, c := range []struct {
		name    string
		booths  int
		cfg     ax.Config
		current int
		levels  []int
	}{
		{"no limit", 8, ax.Config{}, 0, []int{1, 2, 4, 6, 8, 12, 16, 24}},
		{"dry run", 8, ax.Config{DryRun: true}, 0, []int{1, 2, 4, 6, 8, 12, 16, 24}},
		{"limit beyond", 8, ax.Config{Hosts: &ax.Lane{MaxConcurrent: 20}}, 20, []int{2, 4, 8, 16, 40}},
		{"narrow", 2, ax.Config{}, 0, []int{1, 2, 4, 8}},
		{"between the levels", 5, ax.Config{}, 0, []int{1, 2, 4, 8, 16}},
		{"wide", 20, ax.Config{}, 0, []int{4, 10, 20, 30, 60}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, c.cfg, func(t *tester) {
				t.Server.Reply = aBooths(c.booths, 100*fms)
				aClimb(t, c.levels...)
				a := aMust(t, "MaxConcurrent")
				require.Equal(t, c.booths, a.Suggested)
				require.Equal(t, c.current, a.Current)
			})
		})
	}
}

func TestAdviceMaxConcurrentNothing(t *testing.T) {
	for _, c := range []struct {
		name   string
		booths int
		cfg    ax.Config
		levels []int
	}{
		{"no knee", 100, ax.Config{}, []int{1, 2, 4, 8, 16, 32}},
		{"always full", 8, ax.Config{}, []int{32, 32, 32}},
		{"limit near the knee", 8, ax.Config{Hosts: &ax.Lane{MaxConcurrent: 10}}, []int{1, 2, 4, 8, 16}},
		{"limit below the knee, no waiting", 8, ax.Config{Hosts: &ax.Lane{MaxConcurrent: 6}}, []int{1, 2, 4, 6}},
		{"scheduler's limit at the knee", 8, ax.Config{MaxConcurrent: 8}, []int{1, 2, 4, 8, 16}},
		{"serial server", 1, ax.Config{}, []int{1, 2, 4}},
		{"little load", 8, ax.Config{}, []int{1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, c.cfg, func(t *tester) {
				t.Server.Reply = aBooths(c.booths, 100*fms)
				aClimb(t, c.levels...)
				require.Nil(t, aOf(t, "MaxConcurrent"))
			})
		})
	}
}

// A limit at a knee that was seen before is good, however long the queue.
func TestAdviceMaxConcurrentTaken(t *testing.T) {
	bubble(t, ax.Config{}, func(t *tester) {
		t.Server.Reply = aBooths(8, 100*fms)
		aClimb(t, 1, 2, 4, 8, 24)
		require.NoError(t, t.S.SetLimits("a.test", ax.Limits{MaxConcurrent: aMust(t, "MaxConcurrent").Suggested.(int)}))
		aClimb(t, 4, 16, 32)
		require.Nil(t, aOf(t, "MaxConcurrent"))
	})
}

// aRandom sends tasks at random moments, about rate(at) of them a second.
func aRandom(t *tester, d time.Duration, rate func(at time.Duration) float64) {
	random := rand.New(rand.NewPCG(1, 2))
	for end := t.At() + d; t.At() < end; {
		go t.Do(dBG, dGet("/"))
		time.Sleep(time.Duration(random.ExpFloat64() / rate(t.At()) * float64(fsec)))
	}
	time.Sleep(5 * fsec)
}

// aWaves climbs from a fifth of most to most every five minutes.
func aWaves(most float64) func(time.Duration) float64 {
	return func(at time.Duration) float64 {
		return most * (0.2 + 0.8*float64(at%(5*time.Minute))/float64(5*time.Minute))
	}
}

// aDraw draws service times at random about a mean.
func aDraw(mean time.Duration) func() time.Duration {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(3, 4))
	return func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return time.Duration(random.ExpFloat64() * float64(mean))
	}
}

// Random arrivals, random service, twelve booths: 120 a second is all they can do.
func TestAdviceMaxConcurrentKneeInNoise(t *testing.T) {
	bubble(t, ax.Config{MaxConcurrent: ax.NoLimit}, func(t *tester) {
		draw, booths := aDraw(100*fms), make(chan struct{}, 12)
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			booths <- struct{}{}
			defer func() { <-booths }()
			return after(draw(), 200, "")(h)
		}
		aRandom(t, 5*time.Minute, aWaves(125))
		require.InDelta(t, 12, aMust(t, "MaxConcurrent").Suggested, 1)
	})
}

// A server that is slow for a while makes attempts pile up: that is no knee.
func TestAdviceMaxConcurrentNotFromSlowTimes(t *testing.T) {
	for name, took := range map[string]func() time.Duration{"random": aDraw(100 * fms), "constant": func() time.Duration { return 100 * fms }} {
		for _, slower := range []time.Duration{1, 3, 5} {
			for _, rate := range []float64{5, 50} {
				t.Run(fmt.Sprint(name, slower, rate), func(t *testing.T) {
					bubble(t, ax.Config{MaxConcurrent: ax.NoLimit}, func(t *tester) {
						t.Server.Reply = func(h *hit) (*http.Response, error) {
							d := took()
							if h.At%time.Minute > 40*fsec {
								d *= slower
							}
							return after(d, 200, "")(h)
						}
						aRandom(t, 3*time.Minute, aWaves(rate))
						require.Nil(t, aOf(t, "MaxConcurrent"))
					})
				})
			}
		}
	}
}

// Six tasks share two slots: two run, four wait twice as long as they run.
func TestAdviceMaxConcurrentUp(t *testing.T) {
	for limit, want := range []any{2: 4, 3: 6, 4: 6, 6: nil} {
		if limit < 2 || limit == 5 {
			continue
		}
		bubble(t, ax.Config{Hosts: &ax.Lane{MaxConcurrent: limit}}, func(t *tester) {
			t.Server.Reply = after(100*fms, 200, "")
			aClimb(t, 1, 6, 6)
			if want == nil {
				require.Nil(t, aOf(t, "MaxConcurrent"))
				return
			}
			a := aMust(t, "MaxConcurrent")
			require.Equal(t, limit, a.Current)
			require.Equal(t, want, a.Suggested)
		})
	}
}

// aQuota answers 429 to all but the first n of each span by the server's clock.
func aQuota(n int, span time.Duration, headers ...string) func(*hit) (*http.Response, error) {
	var mu sync.Mutex
	taken := map[time.Duration]int{}
	return func(h *hit) (*http.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		window := (h.At + 300*fms) / span
		if taken[window]++; taken[window] > n {
			return reply(429, "", headers...), nil
		}
		return reply(200, ""), nil
	}
}

// aSliding answers 429 to all but n of any span.
func aSliding(n int, span time.Duration) func(*hit) (*http.Response, error) {
	var mu sync.Mutex
	var taken []time.Duration
	return func(h *hit) (*http.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		if len(taken) >= n && h.At-taken[len(taken)-n] < span {
			return reply(429, ""), nil
		}
		taken = append(taken, h.At)
		return reply(200, ""), nil
	}
}

func TestAdviceRate(t *testing.T) {
	for _, c := range []struct {
		name            string
		cfg             ax.Config
		server          func(*hit) (*http.Response, error)
		gap, d          time.Duration
		current, advice []ax.Rate
	}{
		{"by its clock", ax.Config{}, aQuota(20, fsec), 20 * fms, 30 * fsec, nil, ax.PerSecond(20)},
		{"in any second", ax.Config{}, aSliding(20, fsec), 20 * fms, 30 * fsec, nil, ax.PerSecond(20)},
		{"dry run", ax.Config{DryRun: true}, aQuota(20, fsec), 20 * fms, 30 * fsec, nil, ax.PerSecond(20)},
		{"a minute", ax.Config{}, aQuota(120, time.Minute), 250 * fms, 15 * time.Minute, nil, ax.PerMinute(120)},
		{"too high", ax.Config{Hosts: &ax.Lane{Rate: ax.PerSecond(40)}}, aQuota(20, fsec), 20 * fms, 30 * fsec, ax.PerSecond(40), ax.PerSecond(20)},
		{
			"beside another", ax.Config{Hosts: &ax.Lane{Rate: ax.PerMinute(6000)}}, aQuota(20, fsec), 20 * fms, 30 * fsec,
			ax.PerMinute(6000), append(ax.PerMinute(6000), ax.PerSecond(20)...),
		},
		{"with a pause", ax.Config{}, aQuota(20, fsec, "Retry-After: 1"), 20 * fms, time.Minute, nil, ax.PerSecond(20)},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.cfg.MaxQueue = ax.NoLimit
			bubble(t, c.cfg, func(t *tester) {
				t.Server.Reply = c.server
				aOpen(t, c.d, c.gap, aPath)
				a := aMust(t, "Rate")
				require.Equal(t, c.current, a.Current)
				require.Equal(t, c.advice, a.Suggested)
			})
		})
	}
}

func TestAdviceRateNothing(t *testing.T) {
	for _, c := range []struct {
		name   string
		cfg    ax.Config
		server func(*hit) (*http.Response, error)
		d      time.Duration
	}{
		{"no 429", ax.Config{}, aQuota(1000, fsec), 30 * fsec},
		{"too few windows", ax.Config{}, aQuota(20, fsec), 8 * fsec},
		{"good already", ax.Config{MaxQueue: ax.NoLimit, Hosts: &ax.Lane{Rate: ax.PerSecond(20)}}, aSliding(20, fsec), 30 * fsec},
		{"one user in ten", ax.Config{}, func(h *hit) (*http.Response, error) {
			if h.N*7919%101 < 10 {
				return reply(429, ""), nil
			}
			return reply(200, ""), nil
		}, time.Minute},
		{"every answer", ax.Config{}, fAnswer(429, ""), 30 * fsec},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, c.cfg, func(t *tester) {
				t.Server.Reply = c.server
				aOpen(t, c.d, 20*fms, aPath)
				require.Nil(t, aOf(t, "Rate"))
			})
		})
	}
}

// aBroken answers 500 to the paths that i%5 == 0 makes.
func aBroken(h *hit) (*http.Response, error) {
	if h.URL.Path == "/broken" {
		return reply(500, ""), nil
	}
	return after(10*fms, 200, "")(h)
}

func aFifth(i int) string {
	if i%5 == 0 {
		return "/broken"
	}
	return aPath(i)
}

func TestAdviceNoRetry(t *testing.T) {
	for _, c := range []struct {
		name   string
		retry  *ax.Retry
		tasks  int
		reply  func(*hit) (*http.Response, error)
		advice bool
	}{
		{"useless", fRetry(1), 400, aBroken, true},
		{"too few", fRetry(1), 250, aBroken, false},
		{"off", nil, 400, aBroken, false},
		{"never an answer", fRetry(1), 400, fAnswer(500, ""), true},
		{"one helped", fRetry(1), 400, func(h *hit) (*http.Response, error) {
			if h.N > 200 && h.URL.Path == "/broken" {
				return reply(200, ""), nil
			}
			return aBroken(h)
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, ax.Config{Retry: c.retry}, func(t *tester) {
				t.Server.Reply = c.reply
				aOpen(t, time.Duration(c.tasks)*200*fms, 200*fms, aFifth)
				if !c.advice {
					require.Nil(t, aOf(t, "NoRetry"))
					return
				}
				a := aMust(t, "NoRetry")
				require.Equal(t, false, a.Current)
				require.Equal(t, true, a.Suggested)
			})
		})
	}
}

// In an outage no retry helps; that says nothing about normal times.
func TestAdviceNoRetryNotFromOutages(t *testing.T) {
	bubble(t, ax.Config{Retry: fRetry(2)}, func(t *tester) {
		t.Server.Reply = aOutages(time.Minute, time.Minute)
		aOpen(t, 6*time.Minute, 100*fms, aPath)
		require.Greater(t, t.S.Stats().Retries, uint64(100))
		require.Nil(t, aOf(t, "NoRetry"))
	})
}

// aOutages is up for some time, down for some time, and so on.
func aOutages(up, down time.Duration) func(*hit) (*http.Response, error) {
	return func(h *hit) (*http.Response, error) {
		if h.At%(up+down) >= up {
			return reply(503, ""), nil
		}
		return reply(200, ""), nil
	}
}

func TestAdviceBreaker(t *testing.T) {
	for _, c := range []struct {
		name     string
		cfg      ax.Config
		up, down time.Duration
		gap      time.Duration
		advice   ax.Breaker
	}{
		{"half a minute", ax.Config{}, time.Minute, 30 * fsec, 100 * fms, ax.Breaker{Window: 10, FailureRate: 0.3, OpenFor: 3 * fsec}},
		{"dry run", ax.Config{DryRun: true}, time.Minute, 30 * fsec, 100 * fms, ax.Breaker{Window: 10, FailureRate: 0.3, OpenFor: 3 * fsec}},
		{"five minutes", ax.Config{}, time.Minute, 5 * time.Minute, 200 * fms, ax.Breaker{Window: 10, FailureRate: 0.3, OpenFor: 30 * fsec}},
		{"few tasks", ax.Config{Lanes: []ax.Lane{{Match: []string{"a.test"}}}}, 20 * time.Minute, 10 * time.Minute, 10 * fsec, ax.Breaker{Window: 10, FailureRate: 0.3, OpenFor: time.Minute, MaxAge: 200 * fsec}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, c.cfg, func(t *tester) {
				t.Server.Reply = aOutages(c.up, c.down)
				aOpen(t, 3*(c.up+c.down)+c.up, c.gap, aPath)
				a := aMust(t, "Breaker")
				require.Equal(t, (*ax.Breaker)(nil), a.Current)
				got := *a.Suggested.(*ax.Breaker)
				aNear(t, c.advice.OpenFor, got.OpenFor)
				if c.advice.MaxAge > 0 {
					aNear(t, c.advice.MaxAge, got.MaxAge)
				}
				got.OpenFor, got.MaxAge = c.advice.OpenFor, c.advice.MaxAge
				require.Equal(t, c.advice, got)
				require.Contains(t, a.Why, "3 outages")
			})
		})
	}
}

// A lane where a fifth fails in normal times needs a breaker that is not afraid
// of that.
func TestAdviceBreakerOverNoise(t *testing.T) {
	bubble(t, ax.Config{}, func(t *tester) {
		down := aOutages(2*time.Minute, time.Minute)
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.URL.Path == "/broken" {
				return reply(500, ""), nil
			}
			return down(h)
		}
		aOpen(t, 8*time.Minute, 100*fms, aFifth)
		got := *aMust(t, "Breaker").Suggested.(*ax.Breaker)
		require.Equal(t, ax.Breaker{Window: 10, FailureRate: 0.7, OpenFor: 3 * fsec}, got)
	})
}

func TestAdviceBreakerNothing(t *testing.T) {
	for _, c := range []struct {
		name     string
		cfg      ax.Config
		up, down time.Duration
		gap, d   time.Duration
	}{
		{"no outage", ax.Config{}, time.Hour, 0, 100 * fms, 3 * time.Minute},
		{"blips", ax.Config{}, time.Minute, 800 * fms, 50 * fms, 3 * time.Minute},
		{"not over yet", ax.Config{}, time.Minute, time.Hour, 100 * fms, 3 * time.Minute},
		{"too little to spare", ax.Config{}, time.Minute, 10 * fsec, 2 * fsec, 4 * time.Minute},
		{"good already", ax.Config{MaxQueue: ax.NoLimit, Breaker: &ax.Breaker{}}, time.Minute, 20 * fsec, 100 * fms, 4 * time.Minute},
		{"good already, dry run", ax.Config{DryRun: true, Breaker: &ax.Breaker{}}, time.Minute, 20 * fsec, 100 * fms, 4 * time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, c.cfg, func(t *tester) {
				t.Server.Reply = aOutages(c.up, c.down)
				aOpen(t, c.d, c.gap, aPath)
				for _, field := range aFields(t) {
					require.NotContains(t, field, "Breaker")
				}
			})
		})
	}
}

func TestAdviceBreakerThatSleeps(t *testing.T) {
	t.Run("window", func(t *testing.T) {
		bubble(t, ax.Config{Breaker: &ax.Breaker{Window: 1000}}, func(t *tester) {
			t.Server.Reply = aOutages(time.Minute, 30*fsec)
			aOpen(t, 5*time.Minute, 100*fms, aPath)
			a := aMust(t, "Breaker.Window")
			require.Equal(t, 1000, a.Current)
			require.Equal(t, 10, a.Suggested)
		})
	})
	t.Run("age", func(t *testing.T) {
		bubble(t, ax.Config{Breaker: &ax.Breaker{}}, func(t *tester) {
			t.Server.Reply = aOutages(20*time.Minute, 10*time.Minute)
			aOpen(t, 80*time.Minute, 10*fsec, aPath)
			a := aMust(t, "Breaker.MaxAge")
			require.Equal(t, time.Minute, a.Current)
			aNear(t, 200*fsec, a.Suggested)
			require.Nil(t, aOf(t, "Breaker.Window"))
			require.Nil(t, aOf(t, "Breaker.FailureRate"))
		})
	})
	t.Run("rate", func(t *testing.T) {
		bubble(t, ax.Config{Breaker: &ax.Breaker{FailureRate: 1}}, func(t *tester) {
			t.Server.Reply = aOutages(time.Minute, 30*fsec)
			aOpen(t, 5*time.Minute, 100*fms, aPath)
			a := aMust(t, "Breaker.FailureRate")
			require.Equal(t, 1.0, a.Current)
			require.Equal(t, 0.3, a.Suggested)
		})
	})
}

func TestAdviceBreakerProbesTooOften(t *testing.T) {
	cfg := ax.Config{MaxQueue: ax.NoLimit, Breaker: &ax.Breaker{OpenFor: 500 * fms}}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = aOutages(time.Minute, time.Minute)
		aOpen(t, 4*time.Minute, 100*fms, aPath)
		a := aMust(t, "Breaker.OpenFor")
		require.Equal(t, 500*fms, a.Current)
		require.Equal(t, 3*fsec, a.Suggested)
	})
}

// Every fourth attempt fails in normal times: three in a row are no outage.
func TestAdviceBreakerTooNervous(t *testing.T) {
	cfg := ax.Config{MaxQueue: ax.NoLimit, Breaker: &ax.Breaker{Window: 4, FailureRate: 0.3, OpenFor: fsec, Ramp: fsec}}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.N*7919%101 < 20 {
				return reply(500, ""), nil
			}
			return reply(200, ""), nil
		}
		aOpen(t, 10*time.Minute, 200*fms, aPath)
		rate, window := aMust(t, "Breaker.FailureRate"), aMust(t, "Breaker.Window")
		require.Equal(t, 0.3, rate.Current)
		require.Equal(t, 0.7, rate.Suggested)
		require.Equal(t, 4, window.Current)
		require.Equal(t, 10, window.Suggested)
	})
}

// A healthy lane with good settings: nothing to say.
func TestAdviceNothingToSay(t *testing.T) {
	cfg := ax.Recommended()
	cfg.AttemptTimeout = fsec
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = aTook(aTail)
		aOpen(t, 4*time.Minute, 100*fms, aPath)
		require.Empty(t, t.S.Advice())
	})
}

func TestAdviceOfNothing(t *testing.T) {
	bubble(t, ax.Config{}, func(t *tester) { require.Empty(t, t.S.Advice()) })
}

// The order is that of lanes, then of fields, and the answer is always the same.
func TestAdviceOrder(t *testing.T) {
	lanes := []ax.Lane{{Name: "b", Match: []string{"b.test"}}, {Name: "c", Match: []string{"c.test"}}, {Name: "a", Match: []string{"z.test"}}}
	bubble(t, ax.Config{DryRun: true, Lanes: lanes}, func(t *tester) {
		t.Server.Reply = after(10*fms, 200, "")
		for i := range 1000 {
			for _, host := range []string{"c", "z", "b"} {
				go t.Do(dBG, ax.Request{URL: fmt.Sprintf("http://%s.test/%d", host, i/2)})
			}
			time.Sleep(20 * fms)
		}
		all := t.S.Advice()
		var got []string
		for _, a := range all {
			got = append(got, a.Lane+" "+a.Field)
		}
		require.Equal(t, []string{
			"a AttemptTimeout", "a Dedupe.Window", "b AttemptTimeout", "b Dedupe.Window", "c AttemptTimeout", "c Dedupe.Window",
		}, got)
		for range 10 {
			require.Equal(t, all, t.S.Advice())
		}
	})
}
