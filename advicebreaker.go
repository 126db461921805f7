package ax

import (
	"fmt"
	"math"
	"time"
)

// adviseBreaker: what would have cut the outages that are over.
func adviseBreaker(e *evidence) []Advice {
	o := &e.faults.outages
	if e.policy.breaker == nil {
		if o.n == 0 {
			return nil
		}
		return adviseNewBreaker(e)
	}
	b := *e.policy.breaker
	var all []Advice
	if o.n > 0 && o.opened < o.n {
		all = adviseSensitive(e, b)
	} else if e.faults.falseAlarms >= 3 {
		all = adviseCalm(e, b)
	}
	if o.n > 0 {
		all = append(all, adviseOpenFor(e, b)...)
	}
	return all
}

// adviseNewBreaker: for a lane without one.
func adviseNewBreaker(e *evidence) []Advice {
	b, ok := e.breakerFor()
	if !ok {
		return nil
	}
	spared, ok := e.spared(b)
	if !ok {
		return nil
	}
	return []Advice{e.say("Breaker", (*Breaker)(nil), &b, "%s; %s", e.outageStory(), e.sparedStory(b, spared))}
}

// adviseSensitive: a breaker that slept through outages.
func adviseSensitive(e *evidence, b Breaker) []Advice {
	want, ok := e.breakerFor()
	if !ok || b.SlowCall > 0 || b.IsFailure != nil {
		return nil
	}
	want = want.resolved()
	spared, ok := e.spared(want)
	if !ok {
		return nil
	}
	o := &e.faults.outages
	why := fmt.Sprintf("%s; the breaker opened in %d of them; %s", e.outageStory(), o.opened, e.sparedStory(want, spared))
	var all []Advice
	if b.Window > want.Window && exceeding(b) > exceeding(want) {
		all = append(all, e.say("Breaker.Window", b.Window, want.Window, "%s", why))
	}
	if b.FailureRate > want.FailureRate {
		all = append(all, e.say("Breaker.FailureRate", b.FailureRate, want.FailureRate, "%s", why))
	}
	if age := e.ageFor(min(b.MinCalls, want.Window)); age > b.MaxAge {
		all = append(all, e.say("Breaker.MaxAge", b.MaxAge, age, "%s", why))
	}
	return all
}

// adviseCalm: a breaker that opens without an outage.
func adviseCalm(e *evidence, b Breaker) []Advice {
	want, ok := e.breakerFor()
	if !ok || b.SlowCall > 0 || b.IsFailure != nil {
		return nil
	}
	want = want.resolved()
	p := e.faults.share()
	chance := tail(b.Window, exceeding(b), p)
	if chance <= breakerChance {
		return nil
	}
	why := fmt.Sprintf("the breaker opened %d times outside outages, and its first probes succeeded; %.1f%% of attempts fail in normal times, so %d of %d do by chance in %.2g%% of windows; with the suggested settings it takes %d of %d: %.2g%%",
		e.faults.falseAlarms, 100*p, exceeding(b), b.Window, 100*chance, exceeding(want), want.Window, 100*tail(want.Window, exceeding(want), p))
	var all []Advice
	if want.Window > b.Window {
		all = append(all, e.say("Breaker.Window", b.Window, want.Window, "%s", why))
	}
	if want.FailureRate != b.FailureRate {
		all = append(all, e.say("Breaker.FailureRate", b.FailureRate, want.FailureRate, "%s", why))
	}
	return all
}

// adviseOpenFor: probes that only tell for the twentieth time that it is not over.
func adviseOpenFor(e *evidence, b Breaker) []Advice {
	o := &e.faults.outages
	want := e.openFor()
	if o.opened == 0 || o.reopened < adviceFaults || o.reopened < 20*o.opened || want <= b.OpenFor {
		return nil
	}
	return []Advice{e.say("Breaker.OpenFor", b.OpenFor, want,
		"%s; %d probes failed in the %d where the breaker opened; one about every tenth of an outage is enough", e.outageStory(), o.reopened, o.opened)}
}

// breakerChance is how often a window may look like an outage and be none.
const breakerChance = 1e-4

// breakerFor is a breaker that opens in an outage and not in normal times, 0
// where the default will do.
func (e *evidence) breakerFor() (Breaker, bool) {
	p := e.faults.share()
	for _, window := range []int{defaultBreakerWindow, 20, 50} {
		for _, rate := range []float64{defaultFailureRate, 0.5, 0.7} {
			b := Breaker{Window: window, FailureRate: rate, OpenFor: e.openFor()}
			if tail(window, exceeding(b), p) > breakerChance {
				continue
			}
			if age := e.ageFor(window); age > defaultBreakerMaxAge {
				b.MaxAge = age
			}
			return b, true
		}
	}
	return Breaker{}, false
}

// openFor is a tenth of the usual outage, so that probes cost ten attempts and
// waiting for the next one a tenth of its length; the default where that is near.
func (e *evidence) openFor() time.Duration {
	d := e.faults.outages.median() / 10
	if d >= defaultOpenFor/3 && d <= 3*defaultOpenFor {
		return defaultOpenFor
	}
	return roundUp(min(max(d, 500*time.Millisecond), time.Minute))
}

// ageFor is twice the time in which so many attempts fail in an outage.
func (e *evidence) ageFor(calls int) time.Duration {
	o := &e.faults.outages
	each := o.took / float64(max(o.failures, 1))
	return roundUp(time.Duration(min(2*each*float64(calls), 86400) * float64(time.Second)))
}

// exceeding is how many of b's window must fail to open it.
func exceeding(b Breaker) int {
	for n := 0; n <= b.Window; n++ {
		if exceeds(n, b.FailureRate, b.Window) {
			return n
		}
	}
	return b.Window + 1
}

// spared is how many of the failures in outages b would have made unnecessary:
// all but those that open it and one probe after each OpenFor. It is not ok if
// they are not worth it.
func (e *evidence) spared(b Breaker) (n float64, ok bool) {
	o := &e.faults.outages
	sent := float64(o.n)*float64(exceeding(b)) + o.took/b.OpenFor.Seconds()
	n = float64(o.failures) - sent
	return n, n >= adviceFaults && n >= float64(o.failures)/2
}

// outageStory tells the outages in numbers.
func (e *evidence) outageStory() string {
	o := &e.faults.outages
	return fmt.Sprintf("%d outages of %s in all (median %s), in which %d attempts failed; outside them %.1f%% do",
		o.n, seconds(o.took), brief(o.median().Round(time.Millisecond)), o.failures, 100*e.faults.share())
}

func (e *evidence) sparedStory(b Breaker, spared float64) string {
	return fmt.Sprintf("one that opens at %d failures of %d and probes every %s would have spared about %.0f of these (%.0f%%)",
		exceeding(b), b.Window, brief(b.OpenFor), spared, 100*spared/float64(e.faults.outages.failures))
}

// tail is the chance that at least k of n attempts fail if each does with
// probability p, 0 < p < 1.
func tail(n, k int, p float64) float64 {
	sum := 0.0
	all, _ := math.Lgamma(float64(n + 1))
	for i := k; i <= n; i++ {
		failed, _ := math.Lgamma(float64(i + 1))
		rest, _ := math.Lgamma(float64(n - i + 1))
		sum += math.Exp(all - failed - rest + float64(i)*math.Log(p) + float64(n-i)*math.Log1p(-p))
	}
	return min(sum, 1)
}

// seconds is a duration given in seconds, as people say it.
func seconds(s float64) string { return brief(time.Duration(s * float64(time.Second))) }
