package bench

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/axsched/ax"
)

// axLabel is the contestant that the marks are about.
const axLabel = "ax"

// axConfig has everything on that the other stacks have.
func axConfig(j job) ax.Config {
	return ax.Config{
		MaxConcurrent:  j.slots,
		MaxQueue:       ax.NoLimit,
		Rate:           []ax.Rate{{Limit: ratePerSecond, Burst: rateBurst}},
		AttemptTimeout: j.timeout,
		Retry:          &ax.Retry{Max: retries, BaseDelay: retryDelay},
		Breaker:        &ax.Breaker{Window: breakerWindow, FailureRate: breakerShare, OpenFor: breakerRest},
		Executor: ax.ExecutorFunc(func(ctx context.Context, _ *ax.Task) (*http.Response, error) {
			return j.work(ctx)
		}),
	}
}

// axTasks are tasks of one host, one for each caller, no two with the same key.
func axTasks(callers int) []*ax.Task {
	tasks := make([]*ax.Task, callers)
	for i := range tasks {
		tasks[i] = ax.Must(axRequest(i).Task())
	}
	return tasks
}

func axRequest(caller int) ax.Request {
	return ax.Request{URL: fmt.Sprintf("http://api.test/items/%d", caller)}
}

// axCalls has callers repeat a task of their own.
func axCalls(j job) (call, func()) { return axCallsOf(j, axConfig(j)) }

// axDedupedCalls is the same with Dedupe.
func axDedupedCalls(j job) (call, func()) {
	cfg := axConfig(j)
	cfg.Dedupe = &ax.Dedupe{}
	return axCallsOf(j, cfg)
}

// axGateCalls is the gate alone, with j's timeout.
func axGateCalls(j job) (call, func()) {
	cfg := axConfig(j)
	cfg.Rate, cfg.Retry, cfg.Breaker = nil, nil, nil
	return axCallsOf(j, cfg)
}

// axExactCalls has a rate that is exact in every window.
func axExactCalls(j job) (call, func()) {
	cfg := axConfig(j)
	cfg.Rate = []ax.Rate{{Limit: exactPerMilli, Per: time.Millisecond}}
	return axCallsOf(j, cfg)
}

// exactPerMilli is more than anybody reaches; a window remembers that many starts.
const exactPerMilli = 10_000

// axSendCalls makes the task anew for each call.
func axSendCalls(j job) (call, func()) {
	s := axNew(axConfig(j))
	ctxs, cancel := callerContexts(j.callers)
	return func(c int) error {
		_, err := s.Send(ctxs[c], ax.Request{URL: "http://api.test/items"})
		return err
	}, func() { cancel(); axClose(s) }
}

func axCallsOf(j job, cfg ax.Config) (call, func()) {
	s := axNew(cfg)
	ctxs, cancel := callerContexts(j.callers)
	tasks := axTasks(j.callers)
	do := func(c int) error {
		_, err := s.Do(ctxs[c], tasks[c])
		return err
	}
	return do, func() { cancel(); axClose(s) }
}

func axNew(cfg ax.Config) *ax.Scheduler {
	s, err := ax.New(nil, cfg)
	if err != nil {
		panic(err) // the configurations are constants
	}
	return s
}

// axClose ends s, whose tasks have all ended.
func axClose(s *ax.Scheduler) {
	if err := s.Close(); err != nil {
		panic(err)
	}
}
