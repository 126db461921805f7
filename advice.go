package ax

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// How much must have been measured before it is worth a word. A quantile q of n
// samples is taken at a rank that is off by 1.96·√(n·q·(1−q)) at most, with 95 %
// confidence.
const (
	adviceP99     = 500 // the true rank is between p98.1 and p99.9
	adviceP95     = 200 // between p92 and p98
	adviceRetries = 59  // none helped: fewer than 5 % do, 0.95⁵⁹ < 5 %
	adviceRepeats = 20  // their share is known to within half of it
	adviceLimited = 20  // 429s, in quotaWindows windows
	adviceFaults  = 20  // failures that a breaker would have spared
	adviceLevel   = 50  // answers at one concurrency
)

// Advice suggests settings drawn from what was measured since New, lane by lane
// in order of their names, within a lane always in the same order of fields. It
// says nothing where too little was measured, where what was measured does not
// carry a conclusion, and where the setting in force is good already; so an
// empty answer is the good one. It changes nothing: apply what convinces you to
// the Config, or with [Scheduler.SetLimits].
//
// For each lane there is at most one suggestion for each of these fields, with
// Current and Suggested of the type named:
//
//   - AttemptTimeout (time.Duration): 1.5 × p99 of the answers and a margin for
//     jitter, p99 − p95 but at least 10ms and at most p99/2. It takes 500 answers,
//     with which p99 is, with 95 % confidence, between the true p98.1 and p99.9.
//     A setting from 1.2 × p99 to twice the suggestion is left alone. If one attempt
//     in a hundred ends by the timeout and answers come close to it, p99 lies
//     beyond it, and half as much again is suggested, to see more.
//   - Dedupe.Window (time.Duration, the scheduler's, or [Request.DedupeWindow] of
//     this lane's requests): 2 × p95 of the answers, if of the tasks that could share
//     at least 1 %, and 20, repeat an earlier one within it. It takes 200 answers.
//   - MaxConcurrent (int): where latency against concurrency has a knee, the number in
//     flight that Little's law gives for it: the throughput beyond × the service time
//     below the knee. It takes levels of concurrency below, at and beyond the
//     knee, with 50 answers each. Where there is none up to the lane's own limit, and
//     attempts wait for that alone: what Little's law gives for those in service and in
//     the queue together, at most twice the limit.
//   - Rate ([]Rate): what the server took of a second's or a minute's starts before
//     it answered 429. It takes ten such windows that agree.
//   - NoRetry (bool): true, if none of at least 59 retries was answered, those in
//     outages not counted: with 95 % confidence fewer than one in twenty would be.
//   - Breaker (*Breaker), or with a breaker in force Breaker.Window (int),
//     Breaker.FailureRate (float64), Breaker.MaxAge and Breaker.OpenFor
//     (time.Duration): what would have cut short the outages that were observed, if that
//     would have spared at least half of what failed in them, and 20 attempts.
//
// Current is what is in force now, 0 or nil if nothing is. With [Config.DryRun] all
// of it works but what follows from retries and from waiting: there are none.
// docs/advice.md has the arithmetic and its limits. What a forgotten host lane had
// measured is forgotten with it.
func (s *Scheduler) Advice() []Advice {
	var all []Advice
	for _, e := range s.evidence() {
		for _, rule := range []func(*evidence) []Advice{
			adviseTimeout, adviseWindow, adviseConcurrency, adviseRate, adviseRetry, adviseBreaker,
		} {
			all = append(all, rule(e)...)
		}
	}
	return all
}

// evidence is all that Advice knows of a lane: a copy, but for the histograms,
// which need no lock.
type evidence struct {
	name             string
	policy           lanePolicy
	limit, allLimit  int // the lane's and the scheduler's; 0 = none
	rate             []Rate
	dedupe           *Dedupe
	dryRun           bool
	answers, wait    *histogram
	repeats          *histogram
	keyed            uint64
	levels           []level
	faults           failureLog
	quota            quotaWatch
	p50, p95, p99    time.Duration // of the answers
	measured         uint64        // answers that they come from, at most histogramFull
	retried, watched bool          // there is something in faults, in quota
}

// evidence copies what the lanes remember; the arithmetic is then done without
// the mutex.
func (s *Scheduler) evidence() []*evidence {
	s.mu.Lock()
	var all []*evidence
	for name, l := range s.lanes.m {
		if l.stats.service.count() < adviceRetries {
			continue
		}
		all = append(all, l.evidence(name))
	}
	s.mu.Unlock()
	for _, e := range all {
		q := e.answers.quantiles()
		e.p50, e.p95, e.p99 = q.P50, q.P95, q.P99
		e.measured = min(e.answers.count(), histogramFull)
	}
	slices.SortFunc(all, func(a, b *evidence) int { return strings.Compare(a.name, b.name) })
	return all
}

func (l *lane) evidence(name string) *evidence {
	o := &l.stats.seen
	o.mu.Lock()
	defer o.mu.Unlock()
	e := &evidence{
		name: name, policy: l.policy, limit: l.gate.limit(), allLimit: l.s.gate.limit(),
		rate: slices.Clone(l.rates.rates()), dedupe: l.s.cfg.Dedupe, dryRun: l.s.cfg.DryRun,
		answers: o.answers, wait: &l.stats.wait, repeats: &o.repeats, keyed: o.keyed,
		levels: slices.Clone(o.levels),
	}
	if e.answers == nil {
		e.answers = &l.stats.service
	}
	if o.faults != nil {
		e.faults, e.retried = *o.faults, true
	}
	if o.quota != nil {
		e.quota, e.watched = *o.quota, true
	}
	return e
}

// say is one suggestion about e.
func (e *evidence) say(field string, current, suggested any, why string, args ...any) Advice {
	return Advice{Lane: e.name, Field: field, Current: current, Suggested: suggested, Why: fmt.Sprintf(why, args...)}
}

// adviseTimeout: 1.5 × p99 and a margin for jitter.
func adviseTimeout(e *evidence) []Advice {
	if e.measured < adviceP99 {
		return nil
	}
	current := e.policy.attemptTimeout
	if current > 0 && e.p95 > current/2 && e.cutShort() {
		return []Advice{e.say("AttemptTimeout", current, roundUp(current+current/2),
			"%d of %d attempts outside outages ended by the timeout of %s, and answers come close to it (p95 %s): their p99 lies beyond it",
			e.faults.timeouts, e.faults.answers+e.faults.failures, brief(current), brief(e.p95))}
	}
	margin := min(max(e.p99-e.p95, 10*time.Millisecond), max(e.p99/2, 10*time.Millisecond))
	suggested := roundUp(e.p99 + e.p99/2 + margin)
	if current > 0 && current >= e.p99+e.p99/5 && current <= 2*suggested {
		return nil
	}
	now := "there is no timeout"
	if current > 0 {
		now = fmt.Sprintf("the timeout is %.1f × p99", float64(current)/float64(max(e.p99, 1)))
	}
	return []Advice{e.say("AttemptTimeout", current, suggested,
		"p99 of the latest %d answers is %s (p50 %s); 1.5 × p99 and %s for jitter is %s; %s",
		e.measured, brief(e.p99), brief(e.p50), brief(margin), brief(suggested), now)}
}

// cutShort tells whether AttemptTimeout ends more than one in a hundred.
func (e *evidence) cutShort() bool {
	f := &e.faults
	return f.timeouts >= 5 && 100*f.timeouts > f.answers+f.failures
}

// adviseWindow: 2 × p95, where there are duplicates.
func adviseWindow(e *evidence) []Advice {
	if e.answers.count() < adviceP95 || e.keyed == 0 {
		return nil
	}
	suggested := roundUp(2 * e.p95)
	var current time.Duration
	off := ", with Dedupe off"
	if e.dedupe != nil {
		current, off = e.dedupe.Window, ""
	}
	// A window begins with the answer, repeats were measured from the task before.
	within := e.repeats.share(suggested+e.p50) * float64(e.repeats.count())
	share := within / float64(e.keyed)
	if current >= 2*e.p95 || within < adviceRepeats || share < 0.01 {
		return nil
	}
	later := within - e.repeats.share(e.p50)*float64(e.repeats.count())
	return []Advice{e.say("Dedupe.Window", current, suggested,
		"%.0f of %d tasks that could share (%.0f%%) repeat one from less than %s before, %.0f of them later than its answer (p50 %s); 2 × p95 (%s) is %s; the window is %s%s",
		within, e.keyed, 100*share, brief(suggested+e.p50), later, brief(e.p50), brief(e.p95), brief(suggested), brief(current), off)}
}

// share is the part of what counts that is at most d.
func (h *histogram) share(d time.Duration) float64 {
	counts := h.counts.Load()
	if counts == nil {
		return 0
	}
	within, sum, most := 0, 0, histogramIndex(d)
	counts.each(func(i, n int) bool {
		if sum += n; i <= most {
			within += n
		}
		return true
	})
	return float64(within) / float64(max(1, sum))
}

// adviseRate: what the server takes of a span's starts.
func adviseRate(e *evidence) []Advice {
	if !e.watched || e.quota.refused < adviceLimited {
		return nil
	}
	for _, span := range []struct {
		counts *quotaSpan
		per    time.Duration
		name   string
	}{{&e.quota.second, time.Second, "second"}, {&e.quota.minute, time.Minute, "minute"}} {
		quota, ok := span.counts.quota()
		if !ok || !e.quota.inRuns() && !span.counts.capped(quota) {
			continue
		}
		suggested, better := withRate(e.rate, Rate{Limit: quota, Per: span.per})
		if !better {
			return nil
		}
		return []Advice{e.say("Rate", e.rate, suggested,
			"%d answers were 429; in the latest %d of %d windows of a %s with a 429 the server took %d to %d starts, median %d; without one it took %.0f at most",
			e.quota.refused, quotaWindows, span.counts.limited, span.name,
			slices.Min(span.counts.taken[:]), slices.Max(span.counts.taken[:]), quota, span.counts.most)}
	}
	return nil
}

// withRate is rates with r in place of a looser one over the same span; not
// better if they hold as much back already.
func withRate(rates []Rate, r Rate) (with []Rate, better bool) {
	with = slices.Clone(rates)
	for i, have := range with {
		if have.Per != r.Per {
			continue
		}
		if have.Burst == 0 && have.Limit <= r.Limit {
			return rates, false
		}
		with[i] = r
		return with, true
	}
	return append(with, r), true
}

// adviseRetry: off, where it never helped.
func adviseRetry(e *evidence) []Advice {
	if !e.retried || e.policy.retry == nil || e.faults.helped > 0 {
		return nil
	}
	n := e.faults.retries
	if !e.faults.run.outage {
		n += e.faults.run.retries
	}
	if n < adviceRetries {
		return nil
	}
	return []Advice{e.say("NoRetry", false, true,
		"none of %d retries outside outages was answered: with 95%% confidence fewer than %.1f%% would be",
		n, 100*(1-math.Pow(0.05, 1/float64(n))))}
}

// roundUp is d rounded up to a number that people write: at most a twentieth more.
func roundUp(d time.Duration) time.Duration {
	step := time.Duration(1)
	for d/step >= 1000 {
		step *= 10
	}
	if d/step >= 200 {
		step *= 10
	} else if d/step >= 100 {
		step *= 5
	}
	return (d + step - 1) / step * step
}
