package ax_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"sync"
	"time"

	"github.com/axsched/ax"
)

func ExamplePriority() {
	server := newDemo(echo)
	defer server.Close()
	sched := newScheduler(ax.Config{MaxConcurrent: 1})
	defer sched.Close()

	free := busy(sched)
	var order []string
	var calls []*ax.Call
	sent := func(r *http.Request) error { order = append(order, r.URL.Path); return nil }
	for path, priority := range map[string]ax.Priority{"/report": ax.Low, "/page": ax.Normal, "/pay": ax.Urgent} {
		task := ax.Must(ax.Request{URL: server.URL + path, Priority: priority, Prepare: sent}.Task())
		calls = append(calls, sched.Submit(context.Background(), task))
	}
	free()
	for _, call := range calls {
		call.Result()
	}
	fmt.Println(order)
	// Output: [/pay /page /report]
}

func ExampleRate() {
	sched, err := ax.New(nil, ax.Config{
		Lanes: []ax.Lane{{
			Match: []string{"maps.example.com"},
			Rate: []ax.Rate{
				{Limit: 5, Guard: 50 * time.Millisecond}, // never a sixth in any second, if the way there takes no longer
				{Limit: 5000, Per: 24 * time.Hour},       // nor more than the contract allows a day
			},
		}},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer sched.Close()
	// Output:
}

func ExampleRate_burst() {
	server := newDemo(echo)
	defer server.Close()
	// A token bucket: ten at once after a quiet time, then one every 20 ms.
	sched := newScheduler(ax.Config{Rate: []ax.Rate{{Limit: 50, Burst: 10}}})
	defer sched.Close()

	start := time.Now()
	for range 12 {
		if _, err := sched.Get(context.Background(), server.URL); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(time.Since(start) >= 2*time.Second/50)
	// Output: true
}

func ExampleLane() {
	server := newDemo(echo)
	defer server.Close()
	sched := newScheduler(ax.Config{Lanes: []ax.Lane{
		{Name: "reports", MaxConcurrent: 1, AttemptTimeout: 30 * time.Second},
		{Name: "payments", MaxConcurrent: 10, AttemptTimeout: time.Second, NoRetry: true},
	}})
	defer sched.Close()

	if err := sched.Pause("reports"); err != nil { // nothing of it starts …
		log.Fatal(err)
	}
	report := sched.Submit(context.Background(), ax.Must(ax.Request{URL: server.URL + "/report", Lane: "reports"}.Task()))
	paid, err := sched.Send(context.Background(), ax.Request{URL: server.URL + "/pay", Lane: "payments"})
	fmt.Println(paid.StatusCode, err) // … and nobody else waits for that
	fmt.Println(sched.Stats().Parked)

	if err := sched.Resume("reports"); err != nil {
		log.Fatal(err)
	}
	resp, err := report.Result()
	fmt.Println(resp.StatusCode, err)
	// Output:
	// 200 <nil>
	// 1
	// 200 <nil>
}

func ExampleLimits() {
	sched := newScheduler(ax.Config{})
	defer sched.Close()

	// The backend's pool was doubled; no restart, and what waited starts now.
	err := sched.SetLimits("api.example.com", ax.Limits{MaxConcurrent: 40, Rate: ax.PerSecond(200)})
	fmt.Println(err, sched.Stats().Lanes["api.example.com"].MaxConcurrent)

	err = sched.SetLimits("api.example.com", ax.Limits{MaxConcurrent: ax.NoLimit, Rate: ax.Unlimited()})
	fmt.Println(err, sched.Stats().Lanes["api.example.com"].MaxConcurrent)
	// Output:
	// <nil> 40
	// <nil> 0
}

func ExampleOverflow() {
	sched := newScheduler(ax.Config{MaxConcurrent: 1, MaxQueue: 1, Overflow: ax.OverflowEvict})
	defer sched.Close()
	defer busy(sched)()

	waiting := sched.Submit(context.Background(), ax.Must(ax.Request{URL: "https://example.com/report", Priority: ax.Low}.Task()))
	urgent := sched.Submit(context.Background(), ax.Must(ax.Request{URL: "https://example.com/pay", Priority: ax.Urgent}.Task()))
	defer urgent.Cancel()

	_, err := waiting.Result() // the queue has one place, and urgent takes it
	fmt.Println(errors.Is(err, ax.ErrEvicted))
	// Output: true
}

func ExampleDedupe() {
	server := newDemo(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(50 * time.Millisecond)
		fmt.Fprint(w, "42")
	})
	defer server.Close()
	sched := newScheduler(ax.Config{Dedupe: &ax.Dedupe{Window: 5 * time.Second}})
	defer sched.Close()

	var callers sync.WaitGroup
	for range 10 {
		callers.Go(func() {
			resp, err := sched.Get(context.Background(), server.URL+"/answer?b=2&a=1")
			if err != nil {
				log.Fatal(err)
			}
			resp.Bytes() // each has a body of its own
		})
	}
	callers.Wait()
	sched.Get(context.Background(), server.URL+"/answer?a=1&b=2") // the same thing
	fmt.Println(server.requests.Load(), "request")
	// Output: 1 request
}

func ExampleScheduler_Invalidate() {
	server := newDemo(echo)
	defer server.Close()
	sched := newScheduler(ax.Config{Dedupe: &ax.Dedupe{Window: time.Hour}})
	defer sched.Close()

	task := ax.Must(ax.Request{URL: server.URL + "/prices"}.Task())
	sched.Do(context.Background(), task)
	sched.Invalidate(task.Key()) // a message said that the prices have changed
	resp, err := sched.Do(context.Background(), task)
	fmt.Println(resp.Source, err)
	// Output: network <nil>
}

func ExampleRequest_deadline() {
	sched := newScheduler(ax.Config{Rate: []ax.Rate{{Limit: 1, Per: time.Hour}}})
	defer sched.Close()
	server := newDemo(echo)
	defer server.Close()
	sched.Get(context.Background(), server.URL) // the only one in this hour

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	start := time.Now()
	_, err := sched.Get(ctx, server.URL) // cannot start in time: told at once
	fmt.Println(errors.Is(err, ax.ErrWouldExceedDeadline), errors.Is(err, context.DeadlineExceeded), time.Since(start) < time.Second)
	// Output: true true true
}

func ExampleRequest_noWait() {
	sched := newScheduler(ax.Config{MaxConcurrent: 1})
	defer sched.Close()
	defer busy(sched)()

	_, err := sched.Send(context.Background(), ax.Request{URL: "https://example.com/prefetch", NoWait: true})
	fmt.Println(errors.Is(err, ax.ErrWouldWait))
	// Output: true
}
