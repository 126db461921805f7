package bench

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/sync/singleflight"
)

const sharedHandLabel = "by hand + singleflight"

// attemptTimeout is one that never strikes.
const attemptTimeout = 30 * time.Second

// timedGate is a2: a1 with a timeout for each attempt.
func timedGate(e effort) experiment {
	x := experiment{
		id:      "a2",
		title:   "Overhead of a call, gate free, with a timeout",
		about:   "As a1, and each attempt may take 30 s, after which its context would end.",
		short:   shortFree,
		columns: callMetrics(), rounds: e.rounds(20),
	}
	for _, callers := range []int{1, 64, e.size(4096)} {
		j := job{work: noop(), callers: callers, slots: wideGate, timeout: attemptTimeout}
		x.groups = append(x.groups, timedGroup(e, j))
	}
	for _, callers := range []int{1, 64} {
		it := contender{callersLabel(callers), axLabel, nsPerCall}
		x.marks = append(x.marks, ratioAtMost(0.45, it, failsafeLabel))
		it.metric = allocs
		x.marks = append(x.marks, beyondAtMost(6, it, bareLabel))
	}
	return x
}

func timedGroup(e effort, j job) group {
	return group{callersLabel(j.callers), []contestant{
		callLoad(e, j, failsafeLabel, failsafeHow+", Timeout innermost", failsafeCalls),
		callLoad(e, j, axLabel, "as in a1, with AttemptTimeout", axCalls),
		callLoad(e, j, handLabel, handHow+", context.WithTimeout", handCalls),
		callLoad(e, j, sharedHandLabel, "the same within singleflight.Group.Do, each caller with a key of its own: sharing, but the first caller's cancel would fail the others", sharedHandCalls),
		callLoad(e, j, bareLabel, bareHow, bareCalls),
	}}
}

// sharedHandCalls is the stack by hand within singleflight.
func sharedHandCalls(j job) (call, func()) {
	h := newHandStack(j)
	var flights singleflight.Group
	ctxs, cancel := callerContexts(j.callers)
	keys := callerKeys(j.callers)
	return func(c int) error {
		_, err, _ := flights.Do(keys[c], func() (any, error) { return h.do(ctxs[c]) })
		return err
	}, cancel
}

// callerKeys is a dedupe key for each caller.
func callerKeys(callers int) []string {
	keys := make([]string, callers)
	for i := range keys {
		keys[i] = http.MethodGet + " http://api.test/items/" + strconv.Itoa(i)
	}
	return keys
}

// detach keeps the values of ctx but not its end.
func detach(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithCancel(context.WithoutCancel(ctx))
}
