package ax_test

import (
	"math"
	"strconv"
	"time"

	"github.com/axsched/ax"
)

// qTask is a task of the reference model: when it is submitted and how long the
// server takes. Its place in the slice is its Seq.
type qTask struct {
	at, took, step time.Duration
	prio           ax.Priority
	host, owner    string
}

// qBefore is O1 with the AgingStep a task really has.
func qBefore(tasks []qTask, i, j int) bool {
	a, b := tasks[i], tasks[j]
	ua := a.at + time.Duration(ax.Urgent-a.prio)*a.step
	ub := b.at + time.Duration(ax.Urgent-b.prio)*b.step
	if ua != ub {
		return ua < ub
	}
	if a.prio != b.prio {
		return a.prio > b.prio
	}
	return i < j
}

// qLimits are the gates of the reference model; a name that is missing has none.
type qLimits struct {
	global        int
	hosts, owners map[string]int
}

// qSimulate computes from O1 to O4 alone when each task starts. The tasks are in
// the order of their submission.
func qSimulate(tasks []qTask, lim qLimits) []time.Duration {
	const never = time.Duration(math.MaxInt64)
	starts := make([]time.Duration, len(tasks))
	hosts, owners := map[string]int{}, map[string]int{}
	var waiting, running []int
	room := func(used, limits map[string]int, name string) bool {
		limit, ok := limits[name]
		return !ok || used[name] < limit
	}
	dispatch := func(now time.Duration) {
		for len(running) < lim.global {
			best := -1
			for w, i := range waiting {
				if !room(hosts, lim.hosts, tasks[i].host) || !room(owners, lim.owners, tasks[i].owner) {
					continue
				}
				if best < 0 || qBefore(tasks, i, waiting[best]) {
					best = w
				}
			}
			if best < 0 {
				return
			}
			i := waiting[best]
			waiting = append(waiting[:best], waiting[best+1:]...)
			running = append(running, i)
			hosts[tasks[i].host]++
			owners[tasks[i].owner]++
			starts[i] = now
		}
	}
	for next := 0; next < len(tasks) || len(running) > 0; {
		end, ended := never, -1
		for r, i := range running {
			if e := starts[i] + tasks[i].took; e < end {
				end, ended = e, r
			}
		}
		if next < len(tasks) && tasks[next].at < end {
			waiting = append(waiting, next)
			dispatch(tasks[next].at)
			next++
			continue
		}
		i := running[ended]
		running = append(running[:ended], running[ended+1:]...)
		hosts[tasks[i].host]--
		owners[tasks[i].owner]--
		dispatch(end)
	}
	return starts
}

// qPlay submits the tasks at their times, waits for all and returns when the
// server saw each; path n is the n-th task.
func qPlay(t *tester, tasks []qTask) []time.Duration {
	took := map[string]time.Duration{}
	for i, task := range tasks {
		took["/"+strconv.Itoa(i)] = task.took
	}
	t.Server.Reply = qScript(took)
	var calls []*ax.Call
	for i, task := range tasks {
		t.Until(task.at)
		calls = append(calls, qSubmit(t, ax.Request{
			URL:      "http://" + task.host + "/" + strconv.Itoa(i),
			Priority: task.prio, AgingStep: task.step, Owner: task.owner,
		})...)
	}
	qOK(t, calls...)
	seen := qSeen(t)
	starts := make([]time.Duration, len(tasks))
	for i := range tasks {
		starts[i] = seen["/"+strconv.Itoa(i)]
	}
	return starts
}
