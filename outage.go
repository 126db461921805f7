package ax

import (
	"math"
	"slices"
	"time"
)

// failureLog is what a lane remembers of failures: how many there are in normal
// times, whether retries helped, and the outages.
//
// An outage is a run of failures that chance does not explain: so many tasks in a
// row, at least five, that with the lane's usual share of failures it would come
// about less than once in ten thousand times. It lasts from the first failure to
// the first of three answers in a row, and counts if that is a second or more.
// What fails in it says nothing about normal times, so its failures and useless
// retries are kept apart. A lane that has never answered is not in an outage: that
// is its normal state.
type failureLog struct {
	answers, failures uint32 // in normal times; both are halved now and then
	timeouts          uint32 // those of failures that AttemptTimeout made
	retries, helped   uint32 // retries outside outages, and all that were answered
	falseAlarms       uint32 // the breaker opened, and its first probes succeeded
	run               failureRun
	outages           outages
	state             BreakerState
	up                bool // it has answered before
}

// failureRun is the failures since the last answer.
type failureRun struct {
	from     instant
	tasks    uint32 // whose first attempt failed
	failures uint32
	timeouts uint32
	retries  uint32
	reopened uint32 // failed probes
	retry    bool   // the latest failure was one
	opened   bool   // the breaker
	outage   bool
	good     uint32 // answers in a row after an outage
	goodAt   instant
}

// outages adds up those that are over.
type outages struct {
	n        uint32
	opened   uint32     // of n: the breaker opened
	reopened uint32     // failed probes
	failures uint32     // attempts that failed in them
	took     float64    // seconds, all together
	lengths  [8]float32 // of the latest, in seconds
}

const (
	outageTasks   = 5           // failed in a row, at least
	outageChance  = 1e-4        // of a run that only looks like one
	outageAnswers = 3           // in a row end it
	outageLeast   = time.Second // shorter ones are blips
	faultsMemory  = 1 << 16     // outcomes after which the counts are halved
)

// newFailureLog begins after so many answers without a fault.
func newFailureLog(answers uint64) *failureLog {
	return &failureLog{answers: uint32(min(answers, faultsMemory/2)), up: answers > 0}
}

// attempt takes an outcome. A 429 is no failure, but no help either.
func (f *failureLog) attempt(now instant, x *sample, limited bool) {
	if x.kind == outcomeFailure {
		f.failed(x)
		return
	}
	f.up = true
	f.answers++
	switch {
	case x.retry && limited:
		f.retries++
	case x.retry:
		f.retries++
		f.helped++
	}
	f.answered(now)
	f.fade()
}

// failed prolongs the run, or begins one.
func (f *failureLog) failed(x *sample) {
	r := &f.run
	r.good = 0
	if r.failures == 0 {
		r.from = x.mark.at
	}
	r.failures++
	if x.timedOut {
		r.timeouts++
	}
	if r.retry = x.retry; x.retry {
		r.retries++
	} else {
		r.tasks++
	}
	f.judge()
}

// judge calls a run an outage if it is long enough.
func (f *failureLog) judge() {
	if !f.up {
		f.normal()
	} else if f.run.tasks >= f.runLength() {
		f.run.outage = true
	}
}

// answered ends a run, and an outage after some answers in a row.
func (f *failureLog) answered(now instant) {
	r := &f.run
	if r.failures == 0 {
		return
	}
	if !r.outage {
		f.normal()
		return
	}
	if r.good++; r.good == 1 {
		r.goodAt = now
	}
	if r.good < outageAnswers {
		return
	}
	if length := r.goodAt.sub(r.from); length >= outageLeast {
		f.outages.add(r, length)
		f.run = failureRun{}
		return
	}
	f.normal()
}

// normal counts the run among the failures of normal times.
func (f *failureLog) normal() {
	r := &f.run
	f.failures += r.failures
	f.timeouts += r.timeouts
	f.retries += r.retries
	if r.opened && f.up {
		f.falseAlarms++
	}
	f.run = failureRun{}
	f.fade()
}

// breakerMoved takes a transition, right after the outcome that led to it. A failed
// probe counts as a task of its own, a retry too: others are not let through.
func (f *failureLog) breakerMoved(state BreakerState) {
	was := f.state
	f.state = state
	if state != BreakerOpen || f.run.failures == 0 {
		return
	}
	f.run.opened = true
	if was == BreakerClosed {
		return
	}
	f.run.reopened++
	if f.run.retry {
		f.run.tasks++
		f.judge()
	}
}

// share is the part of attempts that fail in normal times, never quite 0 or 1
// as long as few are known.
func (f *failureLog) share() float64 {
	return (float64(f.failures) + 1) / (float64(f.answers) + float64(f.failures) + 2)
}

// runLength is the number of tasks that do not fail in a row by chance.
func (f *failureLog) runLength() uint32 {
	if f.run.tasks < outageTasks {
		return outageTasks
	}
	return max(outageTasks, uint32(math.Ceil(math.Log(outageChance)/math.Log(f.share()))))
}

// fade halves the counts when they are many, so that they tell of recent times.
func (f *failureLog) fade() {
	if f.answers+f.failures >= faultsMemory {
		f.answers, f.failures, f.timeouts = f.answers/2, f.failures/2, f.timeouts/2
	}
	if f.retries >= faultsMemory {
		f.retries, f.helped = f.retries/2, f.helped/2
	}
}

func (o *outages) add(r *failureRun, length time.Duration) {
	o.lengths[o.n%uint32(len(o.lengths))] = float32(length.Seconds())
	o.n++
	o.failures += r.failures
	o.took += length.Seconds()
	o.reopened += r.reopened
	if r.opened {
		o.opened++
	}
}

// median is the middle length of the latest outages; of two the shorter.
func (o *outages) median() time.Duration {
	n := min(int(o.n), len(o.lengths))
	if n == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(o.lengths[:n]))
	return time.Duration(float64(sorted[(n-1)/2]) * float64(time.Second))
}
