package ax

import (
	"fmt"
	"math"
)

// knee is where latency begins to grow with concurrency because the server has
// no more to give: further attempts only wait there instead of here.
//
// It is the level with the greatest power, throughput ÷ service time, which by
// Little's law is in flight ÷ service time². Its place between the levels comes from
// the same law: inFlight is the throughput beyond × the service time below it.
//
// A server that is slow for reasons of its own also makes more attempts pile up.
// But then the levels between are a mixture of good times and bad ones, or throughput,
// as the law gives it, drops sharply where the one kind ends and the other begins, or
// within the bad times answers that find more in flight take no longer than others.
// Such data is left alone.
type knee struct {
	inFlight   float64
	below      float64 // mean service time at the levels below, in seconds
	throughput float64 // mean of the levels beyond, a second
	last       level   // the highest of those beyond
}

const (
	kneeBelow  = 0.75 // a level at most this part of the knee shows that throughput still rises there
	kneeBeyond = 1.8  // the highest is at least so much above it
	kneeSlower = 1.8  // and its answers take at least so much longer
	kneeSigma  = 3    // standard errors between them: 99.7 %
	kneeFall   = 0.7  // throughput falls to no less than this from one level to the next
	kneeRise   = 1.3  // and rises to no more than this above the lowest since
	kneeLocal  = 0.3  // the part of the slope beyond it that shows from answer to answer
	kneeVaries = 0.1  // variance of what answers find below which that shows nothing
)

// findKnee looks for a knee in levels, which ascend.
func findKnee(levels []level) (k knee, ok bool) {
	var known []level
	for _, l := range levels {
		if l.n >= adviceLevel && l.took > 0 {
			known = append(known, l)
		}
	}
	if len(known) < 2 {
		return knee{}, false
	}
	best := 0
	for i, l := range known {
		if l.power() > known[best].power() {
			best = i
		}
	}
	at := known[best]
	k.below, k.last = meanTook(known[:max(best, 1)]), known[len(known)-1]
	if k.last.inFlight < kneeBeyond*at.inFlight || float64(k.last.took) < kneeSlower*k.below || !k.last.slower(at) {
		return knee{}, false
	}
	if known[0].inFlight > kneeBelow*at.inFlight {
		return knee{}, false // always full, or one at a time: nothing shows where it began
	}
	before, lowest := at.throughput(), at.throughput()
	for _, l := range known[best:] {
		x := l.throughput()
		if !l.steady() || x < kneeFall*before || x > kneeRise*lowest {
			return knee{}, false
		}
		before, lowest = x, min(lowest, x)
	}
	k.throughput = meanThroughput(known[best+1:])
	if !k.causal(known[best+1:], at) {
		return knee{}, false
	}
	k.inFlight = k.throughput * k.below
	return k, true
}

func (l level) power() float64      { return l.throughput() / float64(l.took) }
func (l level) throughput() float64 { return float64(l.inFlight) / float64(l.took) }

// slower reports whether l's mean is above that of m by more than chance.
func (l level) slower(m level) bool {
	err := math.Sqrt(float64(l.variance)/float64(l.n) + float64(m.variance)/float64(m.n))
	return float64(l.took-m.took) > kneeSigma*err
}

// steady reports whether the level always looked alike: blocks of answers differ as
// little as if each answer were independent of the one before, within a factor of
// three in their standard deviation, or by less than a fifth of their mean.
func (l level) steady() bool {
	return l.spread*levelBlock <= 9*l.variance || l.spread <= l.took*l.took/25
}

// causal reports whether in the levels beyond the knee at answers take longer with
// more in flight also in comparison with those just before: by regression of the
// differences. Where what they find hardly varies there is nothing to be seen.
func (k *knee) causal(beyond []level, at level) bool {
	var xx, xy, n float64
	for _, l := range beyond {
		xx += float64(l.xx) * float64(l.n)
		xy += float64(l.xy) * float64(l.n)
		n += float64(l.n)
	}
	slope := (float64(k.last.took) - k.below) / float64(k.last.inFlight-at.inFlight)
	return xx < kneeVaries*n || xy/xx >= kneeLocal*slope
}

// meanTook is the mean service time of levels, each weighing as much as it has
// answers.
func meanTook(levels []level) float64 {
	var sum, n float64
	for _, l := range levels {
		sum += float64(l.took) * float64(l.n)
		n += float64(l.n)
	}
	return sum / n
}

// meanThroughput is the same of what they let through.
func meanThroughput(levels []level) float64 {
	var sum, n float64
	for _, l := range levels {
		sum += l.throughput() * float64(l.n)
		n += float64(l.n)
	}
	return sum / n
}

// adviseConcurrency: down to the knee, or up where there is none and tasks wait.
func adviseConcurrency(e *evidence) []Advice {
	k, ok := findKnee(e.levels)
	if !ok {
		return adviseMore(e)
	}
	suggested := max(1, int(math.Round(k.inFlight)))
	inForce := e.limit
	if inForce == 0 || e.allLimit > 0 && e.allLimit < inForce {
		inForce = e.allLimit
	}
	if inForce > 0 && 4*inForce <= 5*suggested {
		return nil
	}
	now := "the lane has no limit of its own"
	if e.limit > 0 {
		now = fmt.Sprintf("the limit is %d", e.limit)
	}
	return []Advice{e.say("MaxConcurrent", e.limit, suggested,
		"below the knee answers take %s, with %.0f in flight %s, and no more than about %.0f come in a second: by Little's law %.0f/s × %s keeps %d busy, more only wait in the server; %s",
		seconds(k.below), k.last.inFlight, seconds(float64(k.last.took)), k.throughput, k.throughput, seconds(k.below), suggested, now)}
}

// adviseMore: a lane's own limit at which attempts wait though service takes no
// longer than with half as many in flight.
func adviseMore(e *evidence) []Advice {
	if e.limit == 0 || e.dryRun || e.allLimit > 0 && e.limit >= e.allLimit || e.waitsForMore() {
		return nil
	}
	var low, full []level
	for _, l := range e.levels {
		switch in := float64(l.inFlight); {
		case l.n < adviceLevel || l.took <= 0:
		case in >= 0.9*float64(e.limit):
			full = append(full, l)
		case in <= 0.5*float64(e.limit):
			low = append(low, l)
		}
	}
	if len(low) == 0 || len(full) == 0 || meanTook(full) > 1.1*meanTook(low) {
		return nil
	}
	took, waited := meanTook(full), e.wait.mean().Seconds()
	if waited < took/4 {
		return nil
	}
	busy := float64(e.limit) * (1 + waited/took)
	suggested := min(2*e.limit, int(math.Ceil(busy)))
	if e.allLimit > 0 {
		suggested = min(suggested, e.allLimit)
	}
	return []Advice{e.say("MaxConcurrent", e.limit, suggested,
		"attempts wait %s on average for one of %d slots though answers take %s at the limit and %s at half of it; by Little's law %.0f/s × (%s + %s) is %.1f in service or waiting; twice the limit is the most to try at a time",
		seconds(waited), e.limit, seconds(took), seconds(meanTook(low)), float64(e.limit)/took, seconds(took), seconds(waited), busy)}
}

// waitsForMore tells whether something else than slots makes attempts wait.
func (e *evidence) waitsForMore() bool {
	return len(e.rate) > 0 || e.watched || e.faults.outages.n > 0 || e.faults.run.outage
}
