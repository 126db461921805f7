package bench

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"time"

	"github.com/axsched/ax"
	"github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"golang.org/x/sync/semaphore"
)

const (
	waiterBytes metric = "B/waiter"
	stackBytes  metric = "of it stack"
)

const (
	bareWaiter         = "a goroutine"
	axDoWaiter         = "ax, Do"
	axJoinedWaiter     = "ax, Do in a flight"
	axCallWaiter       = "ax, Call"
	axOwnCtxWaiter     = "ax, Call with a ctx of its own"
	semaphoreWaiter    = semaphoreLabel
	floorWaiterLabel   = floorLabel
	clientWaiter       = rawLabel
	failsafehttpWaiter = failsafehttpLabel
)

// waiterMemory is g: what it costs to have many callers wait.
func waiterMemory(e effort) experiment {
	n := e.size(10_000)
	label := fmt.Sprintf("%d waiters", n)
	var g = group{label: label}
	for _, w := range []struct{ name, how string }{
		{bareWaiter, "blocked on a channel, no more"},
		{axDoWaiter, "Do, queued behind a full gate; everything else on"},
		{axJoinedWaiter, "Do, all of them in one flight that waits for its answer"},
		{axCallWaiter, "Submit, queued behind a full gate, all with the ctx of one owner: no goroutine"},
		{axOwnCtxWaiter, "the same, and a ctx for each that must be watched: its list of those to tell is counted here"},
		{semaphoreWaiter, "Acquire of a full semaphore"},
		{floorWaiterLabel, floorHow},
		{clientWaiter, "http.Client.Do over a RoundTripper that waits for its turn"},
		{failsafehttpWaiter, "http.Client.Do over NewRoundTripper with the policies of a1, its Bulkhead full"},
	} {
		g.contestants = append(g.contestants, &inChild{label: w.name, notes: w.how, role: "waiters", arg: waitersArg{w.name, n}})
	}
	it := func(name string, m metric) contender { return contender{label, name, m} }
	return experiment{
		id:      "g",
		title:   "Memory of a waiting call",
		about:   "Heap and stacks after a collection with all of them waiting, less the same before they came. Each measurement has a process of its own; contexts, tasks and requests exist before.",
		short:   shortMemory,
		columns: []metric{waiterBytes, stackBytes}, rounds: e.rounds(4), fresh: true,
		groups: []group{g},
		marks: []mark{
			ratioAtMost(1.35, it(axDoWaiter, waiterBytes), bareWaiter),
			atMost(2.2*1024, it(axDoWaiter, stackBytes)),
			atMost(600, it(axCallWaiter, waiterBytes)),
		},
	}
}

// inChild is a contestant that measures in a fresh process each time.
type inChild struct {
	label, notes string
	role         string
	arg          any
}

func (c *inChild) name() string              { return c.label }
func (c *inChild) how() string               { return c.notes }
func (c *inChild) close()                    {}
func (c *inChild) measure() (reading, error) { return measureInChild(c.role, c.arg) }

// waitersArg says who waits in a child.
type waitersArg struct {
	Name string
	N    int
}

// settling is how long goroutines may take to block.
const settling = 500 * time.Millisecond

// measureWaiters is the child's part: it lets them wait and weighs.
func measureWaiters(a waitersArg) (reading, error) {
	begin, ok := waiters()[a.Name]
	if !ok {
		return nil, fmt.Errorf("bench: nobody waits like %q", a.Name)
	}
	parent, cancel := context.WithCancel(context.Background())
	defer cancel()
	ctxs := make([]context.Context, a.N)
	for i := range ctxs {
		ctx, end := context.WithCancel(parent)
		defer end()
		_ = ctx.Done() // made when first asked for, which is the callers' affair
		ctxs[i] = ctx
	}
	wait := begin(ctxs)
	before := weigh()
	for i := range ctxs {
		wait(i)
	}
	time.Sleep(settling)
	after := weigh()
	runtime.KeepAlive(wait)
	n := uint64(a.N)
	return reading{
		waiterBytes: float64((after.HeapAlloc + after.StackInuse - before.HeapAlloc - before.StackInuse) / n),
		stackBytes:  float64((after.StackInuse - before.StackInuse) / n),
	}, nil
}

// weigh is the memory in use after a collection; the second one shrinks stacks
// that the first found large.
func weigh() (m runtime.MemStats) {
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m
}

// waiters has, by name, what lets caller i wait. The process ends with them.
func waiters() map[string]func(ctxs []context.Context) func(i int) {
	return map[string]func(ctxs []context.Context) func(i int){
		bareWaiter: func([]context.Context) func(int) {
			never := make(chan struct{})
			return func(int) { go func() { <-never }() }
		},
		axDoWaiter:     func(ctxs []context.Context) func(int) { return axWaiters(ctxs, false) },
		axJoinedWaiter: func(ctxs []context.Context) func(int) { return axWaiters(ctxs, true) },
		axOwnCtxWaiter: axCallWaiters,
		axCallWaiter: func(ctxs []context.Context) func(int) {
			for i := range ctxs {
				ctxs[i] = ctxs[0]
			}
			return axCallWaiters(ctxs)
		},
		semaphoreWaiter: func(ctxs []context.Context) func(int) {
			gate := semaphore.NewWeighted(1)
			gate.TryAcquire(1)
			return func(i int) { go func() { _ = gate.Acquire(ctxs[i], 1) }() }
		},
		floorWaiterLabel: func(ctxs []context.Context) func(int) {
			gate := newFloorGate(0)
			return func(i int) { go func() { _ = gate.enter(ctxs[i], 0) }() }
		},
		clientWaiter: func(ctxs []context.Context) func(int) { return clientWaiters(ctxs, blockedTransport{}) },
		failsafehttpWaiter: func(ctxs []context.Context) func(int) {
			policies := failsafePolicies(job{slots: 1})
			policies[len(policies)-1].(bulkhead.Bulkhead[*http.Response]).TryAcquirePermit()
			return clientWaiters(ctxs, failsafehttp.NewRoundTripper(blockedTransport{}, policies...))
		},
	}
}

// blockedScheduler has a gate of one that a task holds for good.
func blockedScheduler(deduped bool) *ax.Scheduler {
	cfg := axConfig(job{slots: 1, work: func(ctx context.Context) (*http.Response, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	if deduped {
		cfg.Dedupe = &ax.Dedupe{}
	}
	s := axNew(cfg)
	s.Submit(context.Background(), ax.Must(ax.Request{URL: "http://api.test/first", NoDedupe: true}.Task()))
	return s
}

func axWaiters(ctxs []context.Context, deduped bool) func(int) {
	s := blockedScheduler(deduped)
	task := axTasks(1)[0]
	return func(i int) { go func() { _, _ = s.Do(ctxs[i], task) }() }
}

func axCallWaiters(ctxs []context.Context) func(int) {
	s := blockedScheduler(false)
	task := axTasks(1)[0]
	calls := make([]*ax.Call, len(ctxs))
	return func(i int) { calls[i] = s.Submit(ctxs[i], task) }
}

// blockedTransport answers when the caller has gone.
type blockedTransport struct{}

func (blockedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	<-req.Context().Done()
	return nil, req.Context().Err()
}

func clientWaiters(ctxs []context.Context, rt http.RoundTripper) func(int) {
	c := &http.Client{Transport: rt}
	reqs := make([]*http.Request, len(ctxs))
	for i := range reqs {
		req, err := http.NewRequestWithContext(ctxs[i], http.MethodGet, "http://api.test/items/0", nil)
		if err != nil {
			panic(err) // a constant URL
		}
		reqs[i] = req
	}
	return func(i int) {
		go func() {
			if resp, err := c.Do(reqs[i]); err == nil {
				resp.Body.Close()
			}
		}()
	}
}
