package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/axsched/ax"
)

// habit is what one sort of visitor asks for, and how often.
type habit struct {
	every time.Duration // on average
	ask   func() ax.Request
}

// habits make a shop's traffic: some of it alike, some urgent, some too much.
var habits = []habit{
	{25 * time.Millisecond, func() ax.Request {
		return ax.Request{URL: fmt.Sprintf("https://catalog.example/items/%d", rand.IntN(60)), Owner: "mobile"}
	}},
	{60 * time.Millisecond, func() ax.Request {
		word := []string{"tea", "lamp", "rope", "kettle", "bicycle"}[rand.IntN(5)]
		return ax.Request{URL: "https://search.example/find?q=" + word + "&session=s3cr3t", Priority: ax.Important}
	}},
	{90 * time.Millisecond, func() ax.Request {
		return ax.Request{
			Method: http.MethodPost, URL: "https://payments.example/charges", JSON: map[string]int{"cents": rand.IntN(9000)},
			Priority: ax.Urgent, Owner: "checkout", IdempotencyKey: fmt.Sprint("order-", rand.Uint64()),
		}
	}},
	{220 * time.Millisecond, func() ax.Request {
		return ax.Request{URL: fmt.Sprintf("https://reports.example/day/%d", rand.IntN(365)), Priority: ax.Low}
	}},
	{140 * time.Millisecond, func() ax.Request {
		return ax.Request{URL: fmt.Sprintf("https://weather.example/now?city=%d", rand.IntN(400))}
	}},
	{120 * time.Millisecond, func() ax.Request {
		return ax.Request{URL: fmt.Sprintf("https://catalog.example/pages/%d", rand.IntN(5000)), Owner: "crawler", Priority: ax.Low}
	}},
	{400 * time.Millisecond, func() ax.Request {
		return ax.Request{URL: fmt.Sprintf("https://cdn-%d.example/logo.svg", rand.IntN(3)), Owner: "mobile"}
	}},
}

// visitors follow their habits until ctx ends, then all of them leave.
func visitors(ctx context.Context, sched *ax.Scheduler) {
	var all sync.WaitGroup
	for _, h := range habits {
		all.Go(func() {
			for sleep(ctx, rand.N(2*h.every)) {
				sched.Submit(ctx, ax.Must(h.ask().Task())).Discard()
				if rand.IntN(200) == 0 { // a crowd
					for range 30 {
						sched.Submit(ctx, ax.Must(h.ask().Task())).Discard()
					}
				}
			}
		})
	}
	all.Wait()
}

// sleep waits for d; false = ctx has ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
