package ax_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/axsched/ax"
)

func ExampleEvent() {
	server := newDemo(echo)
	defer server.Close()
	sched := newScheduler(ax.Config{OnEvent: func(e ax.Event) {
		fmt.Println(e.Seq, e.Kind, e.Status)
	}})
	defer sched.Close()

	sched.Get(context.Background(), server.URL)
	// Output:
	// 1 submitted 0
	// 1 started 0
	// 1 attempt-done 200
	// 1 succeeded 200
}

func ExampleEventKind() {
	var slow []string
	_, err := ax.New(nil, ax.Config{OnEvent: func(e ax.Event) {
		switch e.Kind {
		case ax.EventStarted:
			if e.Waited > time.Second {
				slow = append(slow, e.Task.URL())
			}
		case ax.EventBreakerOpened:
			slog.Error("breaker opened", "lane", e.Lane, "for", e.Delay)
		}
	}})
	fmt.Println(len(slow), err)
	// Output: 0 <nil>
}

func ExampleVerdict() {
	server := newDemo(echo)
	defer server.Close()
	sched := newScheduler(ax.Config{OnEvent: func(e ax.Event) {
		if e.Kind == ax.EventAttemptDone {
			fmt.Println(e.Status, e.Verdict)
		}
	}})
	defer sched.Close()

	sched.Get(context.Background(), server.URL)
	// Output: 200 success
}

func ExampleScheduler_Watch() {
	server := newDemo(echo)
	defer server.Close()
	sched := newScheduler(ax.Config{})
	defer sched.Close()

	stop := sched.Watch(func(e ax.Event) { // beside OnEvent, for as long as somebody looks
		fmt.Println(e.Kind)
	})
	sched.Get(context.Background(), server.URL)
	stop()
	sched.Get(context.Background(), server.URL)
	// Output:
	// submitted
	// started
	// attempt-done
	// succeeded
}

func ExampleWaiter() {
	sched := newScheduler(ax.Config{MaxConcurrent: 1})
	defer sched.Close()
	defer busy(sched)()
	sched.Submit(context.Background(), ax.Must(ax.Request{URL: "https://api.example.com/report", Priority: ax.Low}.Task()))
	sched.Submit(context.Background(), ax.Must(ax.Request{URL: "https://api.example.com/pay", Priority: ax.Urgent}.Task()))

	for _, w := range sched.Waiting(10) { // the ten that come next, best first
		fmt.Println(w.Priority, w.Method, w.URL, "in", w.Lane, "waits for", w.For)
	}
	// Output:
	// urgent GET https://api.example.com/pay in api.example.com waits for a slot: Config.MaxConcurrent
	// low GET https://api.example.com/report in api.example.com waits for a slot: Config.MaxConcurrent
}

func ExampleStats() {
	server := newDemo(echo)
	defer server.Close()
	sched := newScheduler(ax.Config{
		MaxConcurrent: 2,
		Lanes:         []ax.Lane{{Name: "search"}},
		Budgets:       map[string]ax.Budget{"web": {}},
		Logger:        slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Heartbeat:     time.Minute, // one line a minute while there is work
	})
	defer sched.Close()
	sched.Send(context.Background(), ax.Request{URL: server.URL, Lane: "search", Owner: "web"})

	stats := sched.Stats()
	fmt.Println(stats.Active, stats.Queued, stats.Parked, stats.Succeeded)
	lane := stats.Lanes["search"] // why did it wait? its queue, its breaker, its pause, its quantiles
	fmt.Println(lane.Queued, lane.Breaker, lane.PausedUntil.IsZero(), lane.Attempts, lane.Service.P95 > 0)
	fmt.Println(stats.Owners["web"].Started)
	// Output:
	// 0 0 0 1
	// 0 closed true 1 true
	// 1
}

func ExampleLaneStats() {
	sched := newScheduler(ax.Config{Lanes: []ax.Lane{{Name: "search", MaxConcurrent: 8}}})
	defer sched.Close()
	for name, lane := range sched.Stats().Lanes {
		fmt.Println(name, lane.Active, "of", lane.MaxConcurrent, "queued", lane.Queued, "failed", lane.Failures)
	}
	// Output: search 0 of 8 queued 0 failed 0
}

func ExampleQuantiles() {
	sched := newScheduler(ax.Config{Lanes: []ax.Lane{{Name: "search"}}})
	defer sched.Close()
	service := sched.Stats().Lanes["search"].Service
	timeout := service.P99 * 3 / 2 // for AttemptTimeout; nothing has been measured yet
	fmt.Println(timeout)
	// Output: 0s
}

func ExampleOwnerStats() {
	server := newDemo(echo)
	defer server.Close()
	sched := newScheduler(ax.Config{Budgets: map[string]ax.Budget{"crawler": {Rate: ax.PerSecond(1), Over: ax.OverReject}}})
	defer sched.Close()
	for range 3 {
		sched.Send(context.Background(), ax.Request{URL: server.URL, Owner: "crawler"})
	}
	for name, owner := range sched.Stats().Owners {
		fmt.Println(name, "runs", owner.Active, "waits", owner.Queued, "started", owner.Started, "over", owner.Over)
	}
	// Output: crawler runs 0 waits 0 started 1 over 2
}

func ExampleWouldStats() {
	together := make(chan struct{}, 3)
	server := newDemo(func(w http.ResponseWriter, r *http.Request) {
		together <- struct{}{}
		for len(together) < cap(together) { // all three are here at once
			time.Sleep(time.Millisecond)
		}
		echo(w, r)
	})
	defer server.Close()
	sched := newScheduler(ax.Config{DryRun: true, MaxConcurrent: 1})
	defer sched.Close()

	var callers sync.WaitGroup
	for range 3 {
		callers.Go(func() {
			if _, err := sched.Get(context.Background(), server.URL); err != nil {
				log.Fatal(err)
			}
		})
	}
	callers.Wait()
	fmt.Println(sched.Stats().Would.Queued, "of 3 would have waited")
	// Output: 2 of 3 would have waited
}

func ExampleAdvice() {
	sched := newScheduler(ax.Config{DryRun: true}) // look first, then limit
	defer sched.Close()
	for _, a := range sched.Advice() { // nothing until there is enough to go by
		fmt.Printf("%s.%s: %v -> %v, %s\n", a.Lane, a.Field, a.Current, a.Suggested, a.Why)
	}
	// Output:
}
