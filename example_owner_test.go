package ax_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/axsched/ax"
)

func ExampleRequest_doubleSubmit() {
	server := newDemo(echo)
	defer server.Close()
	sched := newScheduler(ax.Config{})
	defer sched.Close()

	order := ax.Request{
		Method:         "POST",
		URL:            server.URL + "/orders",
		JSON:           map[string]int{"item": 7},
		IdempotencyKey: "cart-4711",
		Cooldown:       2 * time.Second, // the same order again: not while it runs, not for two seconds after
	}
	_, first := sched.Send(context.Background(), order)
	_, second := sched.Send(context.Background(), order)
	fmt.Println(first, errors.Is(second, ax.ErrCooldown))
	fmt.Println(server.requests.Load(), "order")
	// Output:
	// <nil> true
	// 1 order
}

func ExampleRequest_latestWins() {
	server := newDemo(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/suggest/ax" { // the short word takes long
			<-r.Context().Done()
			return
		}
		echo(w, r)
	})
	defer server.Close()
	sched := newScheduler(ax.Config{})
	defer sched.Close()

	var typed []*ax.Call
	for _, word := range []string{"ax", "axios"} {
		typed = append(typed, sched.Submit(context.Background(), ax.Must(ax.Request{
			URL:       server.URL + "/suggest/" + word,
			Supersede: "search box", // the newest one ends the others
		}.Task())))
	}
	_, err := typed[0].Result()
	fmt.Println(errors.Is(err, ax.ErrSuperseded))
	resp, _ := typed[1].Result()
	body, _ := resp.Bytes()
	fmt.Println(string(body))
	// Output:
	// true
	// /suggest/axios
}

func ExampleScope() {
	sched := newScheduler(ax.Config{MaxConcurrent: 1})
	defer sched.Close()
	defer busy(sched)()

	page := sched.Scope(context.Background()) // ends with its ctx, or by hand
	call := page.Submit(context.Background(), ax.Must(ax.Request{URL: "https://example.com/feed"}.Task()))

	ended := page.Cancel(errors.New("the reader went to another page"))
	_, err := call.Result()
	fmt.Println(ended, errors.Is(err, ax.ErrScopeEnded), errors.Is(err, context.Canceled))
	// Output: 1 true true
}

func ExampleScopeHandler() {
	server := newDemo(echo)
	defer server.Close()
	sched := newScheduler(ax.Config{})
	defer sched.Close()

	handler := ax.ScopeHandler(sched, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// If the client leaves, this call ends too.
		resp, err := ax.ContextScope(r.Context()).Send(r.Context(), ax.Request{URL: server.URL + "/upstream"})
		if err != nil {
			http.Error(w, "upstream", http.StatusBadGateway)
			return
		}
		body, _ := resp.Bytes()
		w.Write(body)
	}))
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	fmt.Println(w.Code, w.Body)
	// Output: 200 /upstream
}

func ExampleScheduler_CancelTag() {
	sched := newScheduler(ax.Config{MaxConcurrent: 1})
	defer sched.Close()
	defer busy(sched)()

	for id := range 3 {
		sched.Submit(context.Background(), ax.Must(ax.Request{
			URL:  fmt.Sprintf("https://example.com/export/%d", id),
			Tags: []string{"export", "user-7"},
		}.Task()))
	}
	fmt.Println(sched.CancelTag("user-7"), "ended")
	// Output: 3 ended
}

func ExampleBudget() {
	server := newDemo(echo)
	defer server.Close()
	sched := newScheduler(ax.Config{
		Budgets: map[string]ax.Budget{
			"checkout": {}, // named, so that Stats shows it: no limit
			"crawler":  {Rate: ax.PerMinute(2), MaxConcurrent: 1, Over: ax.OverReject},
		},
		Owners: &ax.Budget{Rate: ax.PerMinute(500)}, // everybody else, each
	})
	defer sched.Close()

	for range 3 {
		_, err := sched.Send(context.Background(), ax.Request{URL: server.URL, Owner: "crawler"})
		var e *ax.Error
		fmt.Println(errors.Is(err, ax.ErrBudget), errors.As(err, &e) && e.RetryAfter > 50*time.Second)
	}
	fmt.Println(sched.Stats().Owners["crawler"].Over, "over budget")
	// Output:
	// false false
	// false false
	// true true
	// 1 over budget
}

func ExampleOverAction() {
	server := newDemo(echo)
	defer server.Close()
	sched := newScheduler(ax.Config{Budgets: map[string]ax.Budget{"batch": {Rate: ax.PerMinute(1), Over: ax.OverQueue}}})
	defer sched.Close()

	task := ax.Must(ax.Request{URL: server.URL, Owner: "batch"}.Task())
	sched.Do(context.Background(), task)
	waiting := sched.Submit(context.Background(), task) // parked, and in nobody's way
	fmt.Println(sched.Stats().Parked, "parked")

	if err := sched.SetBudget("batch", ax.Budget{}); err != nil { // live
		log.Fatal(err)
	}
	resp, err := waiting.Result()
	fmt.Println(resp.StatusCode, err)
	// Output:
	// 1 parked
	// 200 <nil>
}

func ExampleHints() {
	server := newDemo(echo)
	defer server.Close()
	sched := newScheduler(ax.Config{Budgets: map[string]ax.Budget{"tenant-7": {}}})
	defer sched.Close()

	// One client is background work, whatever it sends …
	client := &http.Client{Transport: sched.TransportWith(ax.Hints{Priority: ax.Low})}
	// … and a middleware knows the tenant.
	ctx := ax.ContextWith(context.Background(), ax.Hints{Owner: "tenant-7"})

	req, _ := http.NewRequestWithContext(ctx, "GET", server.URL, nil)
	resp, err := client.Do(req)
	if err != nil {
		log.Fatal(err)
	}
	resp.Body.Close()
	fmt.Println(sched.Stats().Owners["tenant-7"].Started, "start paid by", ax.HintsFrom(ctx).Owner)
	// Output: 1 start paid by tenant-7
}
