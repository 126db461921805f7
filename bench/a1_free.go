package bench

import (
	"fmt"
)

// wideGate is a gate that is never full.
const wideGate = 8192

const (
	axExactLabel = "ax, exact window"
	axSendLabel  = "ax, Send"
	bareLabel    = "no gate"
	bareHow      = "the work and its response alone"
)

// callersLabel names the groups of the call experiments.
func callersLabel(n int) string {
	if n == 1 {
		return "1 caller"
	}
	return fmt.Sprintf("%d callers", n)
}

// freeGate is a1: the overhead of a call that nothing holds back.
func freeGate(e effort) experiment {
	x := experiment{
		id:      "a1",
		title:   "Overhead of a call, gate free, no timeout",
		about:   "The work answers at once. Rate, gate, breaker and retry are on and never in the way; each caller has a context of its own that can end.",
		short:   shortFree,
		columns: callMetrics(), rounds: e.rounds(20),
	}
	for _, callers := range []int{1, 64, e.size(4096)} {
		x.groups = append(x.groups, freeGroup(e, job{work: noop(), callers: callers, slots: wideGate}))
	}
	for _, callers := range []int{1, 64} {
		it := contender{callersLabel(callers), axLabel, nsPerCall}
		x.marks = append(x.marks, ratioAtMost(0.20, it, failsafeLabel))
		it.metric = allocs
		x.marks = append(x.marks, beyondAtMost(3, it, bareLabel))
	}
	return x
}

// freeGroup has everybody do j without a timeout.
func freeGroup(e effort, j job) group {
	return group{callersLabel(j.callers), []contestant{
		callLoad(e, j, failsafeLabel, failsafeHow, failsafeCalls),
		callLoad(e, j, axLabel, "Do of a Task made before; Rate with Burst (a token bucket, as the others have), MaxConcurrent, Breaker, Retry", axCalls),
		callLoad(e, j, axExactLabel, "the same with a rate that is exact in every window, which nobody else offers: 10,000 in any millisecond", axExactCalls),
		callLoad(e, j, axSendLabel, "the same, and the Task is made of a Request for every call", axSendCalls),
		callLoad(e, j, handLabel, handHow, handCalls),
		callLoad(e, j, floorLabel, floorHow, floorCalls),
		callLoad(e, j, bareLabel, bareHow, bareCalls),
	}}
}
