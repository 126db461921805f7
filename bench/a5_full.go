package bench

const (
	semaphoreLabel = "x/sync semaphore"
	axGateLabel    = "ax, gate only"
)

const (
	withoutTimeout = "without timeout"
	withTimeout    = "with timeout"
)

// narrowGate is the gate of a5: always full.
const narrowGate = 2

// fullGate is a5: every call waits for its turn.
func fullGate(e effort) experiment {
	j := job{work: yielding(), callers: 64, slots: narrowGate}
	timed := j
	timed.timeout = attemptTimeout
	return experiment{
		id:      "a5",
		title:   "Overhead of a call, gate full",
		about:   "64 callers and two slots. The work yields the processor once, so that everybody else comes to the gate and queues: each end hands its slot to a waiter.",
		short:   shortFull,
		columns: callMetrics(), rounds: e.rounds(20),
		groups: []group{fullGroup(e, withoutTimeout, j), fullGroup(e, withTimeout, timed)},
		marks: []mark{
			ratioAtMost(1.2, contender{withoutTimeout, axGateLabel, nsPerCall}, semaphoreLabel),
			ratioAtMost(1.2, contender{withoutTimeout, axLabel, nsPerCall}, handLabel),
			ratioAtMost(0.5, contender{withTimeout, axLabel, nsPerCall}, failsafeLabel),
		},
	}
}

func fullGroup(e effort, label string, j job) group {
	return group{label, []contestant{
		callLoad(e, j, semaphoreLabel, "Acquire and Release around the work, nothing else, never a timeout", semaphoreCalls),
		callLoad(e, j, axGateLabel, "MaxConcurrent, and AttemptTimeout where there is one", axGateCalls),
		callLoad(e, j, axLabel, "everything as in a1 or a2", axCalls),
		callLoad(e, j, handLabel, handHow, handCalls),
		callLoad(e, j, floorLabel, floorHow+"; never a timeout", floorCalls),
		callLoad(e, j, failsafeLabel, failsafeHow, failsafeCalls),
	}}
}
