package bench

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/axsched/ax"
	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/failsafe-go/failsafe-go/priority"
	"golang.org/x/sync/semaphore"
)

const (
	urgentP99  metric = "urgent p99 wait, service times"
	urgentLast metric = "urgent p99 to the end, service times"
	otherP99   metric = "others' p99 wait, service times"
	refused    metric = "refused, %"
	makespan   metric = "makespan, ms"
)

const (
	burstLabel    = "burst"
	trickleLabel  = "trickle"
	fifoLabel     = "FIFO (x/sync semaphore)"
	bulkheadLabel = "failsafe-go Bulkhead"
	adaptiveLabel = "failsafe-go adaptive limiter"
)

const (
	serviceTime   = 20 * time.Millisecond
	backendSlots  = 10
	urgentEvery   = 20 // 5 % are urgent
	trickleBreath = 31 * time.Millisecond
)

// urgency is e: what an urgent call waits while the backend is overloaded.
func urgency(e effort) experiment {
	n := e.size(500)
	x := experiment{
		id:    "e",
		title: "Urgent calls under overload",
		about: fmt.Sprintf("The backend serves %d calls at a time, each in %v. %d callers come, 5 %% of them urgent: in the burst all at once; in the trickle the urgent ones come one by one every %v while the others wait. Wait is the time from the call to the start of its service.",
			backendSlots, serviceTime, n, trickleBreath),
		short:   shortUrgent,
		columns: []metric{urgentP99, urgentLast, otherP99, refused, makespan}, rounds: e.rounds(5), fresh: true,
	}
	for _, trickle := range []bool{false, true} {
		x.groups = append(x.groups, urgencyGroup(n, trickle))
	}
	p99 := func(group string) contender { return contender{group, axLabel, urgentP99} }
	x.marks = []mark{atMost(1.2, p99(trickleLabel)), atMost(3.3, p99(burstLabel))}
	for _, g := range []string{trickleLabel, burstLabel} {
		x.marks = append(x.marks, atMost(0, contender{g, axLabel, refused}),
			ratioAtMost(1.02, contender{g, axLabel, makespan}, fifoLabel))
	}
	return x
}

func urgencyGroup(n int, trickle bool) group {
	label := burstLabel
	if trickle {
		label = trickleLabel
	}
	one := func(label, how string, begin func() (overloaded, func())) contestant {
		return &overload{label: label, notes: how, callers: n, trickle: trickle, begin: begin}
	}
	return group{label, []contestant{
		one(fifoLabel, "knows no priorities", fifoOverload),
		one(axLabel, "MaxConcurrent 10; Priority: Urgent or Normal", axOverload),
		one(floorLabel, floorHow, floorOverload),
		one(bulkheadLabel, "knows no priorities; told to wait", bulkheadOverload),
		one(adaptiveLabel, "10 at a time, with its Prioritizer; priority VeryHigh or Low; recalibrated every 50 ms", adaptiveOverload),
	}}
}

// overloaded runs w through a gate of backendSlots.
type overloaded func(ctx context.Context, urgent bool, w work) error

// overload is a contestant: a fresh gate and too many callers.
type overload struct {
	label, notes string
	callers      int
	trickle      bool
	begin        func() (overloaded, func())
}

func (o *overload) name() string { return o.label }
func (o *overload) how() string  { return o.notes }
func (o *overload) close()       {}

// waits are how long callers waited and took, by urgency.
type waits struct {
	mu     sync.Mutex
	wait   [2][]float64
	end    [2][]float64
	denied int
}

func (o *overload) measure() (reading, error) {
	do, stop := o.begin()
	defer stop()
	var w waits
	var all sync.WaitGroup
	began := time.Now()
	late := 0
	for i := range o.callers {
		urgent := i%urgentEvery == urgentEvery/2
		var after time.Duration
		if urgent && o.trickle {
			late++
			after = time.Duration(late) * trickleBreath
		}
		all.Go(func() {
			time.Sleep(after)
			w.call(do, urgent)
		})
	}
	all.Wait()
	span := time.Since(began)
	return reading{
		urgentP99:  p99(w.wait[1]),
		urgentLast: p99(w.end[1]),
		otherP99:   p99(w.wait[0]),
		refused:    100 * float64(w.denied) / float64(o.callers),
		makespan:   span.Seconds() * 1e3,
	}, nil
}

// call is one caller's.
func (w *waits) call(do overloaded, urgent bool) {
	came := time.Now()
	var started atomic.Int64
	err := do(context.Background(), urgent, func(context.Context) (*http.Response, error) {
		started.Store(int64(time.Since(came)))
		time.Sleep(serviceTime)
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Header: http.Header{}}, nil
	})
	took := time.Since(came)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.denied++
		return
	}
	i := 0
	if urgent {
		i = 1
	}
	w.wait[i] = append(w.wait[i], float64(started.Load())/float64(serviceTime))
	w.end[i] = append(w.end[i], float64(took)/float64(serviceTime))
}

func p99(values []float64) float64 { return quantile(slices.Sorted(slices.Values(values)), 0.99) }

func fifoOverload() (overloaded, func()) {
	gate := semaphore.NewWeighted(backendSlots)
	return func(ctx context.Context, _ bool, w work) error {
		if err := gate.Acquire(ctx, 1); err != nil {
			return err
		}
		defer gate.Release(1)
		_, err := w(ctx)
		return err
	}, func() {}
}

func floorOverload() (overloaded, func()) {
	gate := newFloorGate(backendSlots)
	return func(ctx context.Context, urgent bool, w work) error {
		level := 0
		if urgent {
			level = 1
		}
		if err := gate.enter(ctx, level); err != nil {
			return err
		}
		_, err := w(ctx)
		gate.exit(err)
		return err
	}, func() {}
}

// workKey is where a call's ctx carries what its executor is to do.
type workKey struct{}

func axOverload() (overloaded, func()) {
	s := axNew(ax.Config{
		MaxConcurrent: backendSlots, MaxQueue: ax.NoLimit,
		Executor: ax.ExecutorFunc(func(ctx context.Context, _ *ax.Task) (*http.Response, error) {
			return ctx.Value(workKey{}).(work)(ctx)
		}),
	})
	return func(ctx context.Context, urgent bool, w work) error {
		r := axRequest(0)
		if urgent {
			r.Priority = ax.Urgent
		}
		_, err := s.Send(context.WithValue(ctx, workKey{}, w), r)
		return err
	}, func() { axClose(s) }
}

func bulkheadOverload() (overloaded, func()) {
	x := failsafe.With(bulkhead.NewBuilder[*http.Response](backendSlots).WithMaxWaitTime(longWait).Build())
	return failsafeOverload(x), func() {}
}

// adaptiveOverload is failsafe-go's only policy with priorities: it sheds the
// lower ones instead of ordering them.
func adaptiveOverload() (overloaded, func()) {
	prioritizer := adaptivelimiter.NewPrioritizer()
	ctx, cancel := context.WithCancel(context.Background())
	go func() { // until the round ends
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				prioritizer.Calibrate()
			case <-ctx.Done():
				return
			}
		}
	}()
	limiter := adaptivelimiter.NewBuilder[*http.Response]().
		WithLimits(backendSlots, backendSlots, backendSlots).WithMaxWaitTime(longWait).
		BuildPrioritized(prioritizer)
	run := failsafeOverload(failsafe.With[*http.Response](limiter))
	return func(ctx context.Context, urgent bool, w work) error {
		level := priority.Low
		if urgent {
			level = priority.VeryHigh
		}
		return run(priority.ContextWithPriority(ctx, level), urgent, w)
	}, cancel
}

func failsafeOverload(x failsafe.Executor[*http.Response]) overloaded {
	return func(ctx context.Context, _ bool, w work) error {
		_, err := x.WithContext(ctx).GetWithExecution(func(e failsafe.Execution[*http.Response]) (*http.Response, error) {
			return w(e.Context())
		})
		return err
	}
}
