package migrate_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/axsched/ax"
	"github.com/sony/gobreaker/v2"
)

func Example_gobreakerBefore() {
	server := steady()
	defer server.Close()

	breaker := gobreaker.NewCircuitBreaker[*http.Response](gobreaker.Settings{
		Name:    "users",
		Timeout: 3 * time.Second,
		ReadyToTrip: func(c gobreaker.Counts) bool {
			return c.Requests >= 10 && float64(c.TotalFailures) > 0.3*float64(c.Requests)
		},
	})
	resp, err := breaker.Execute(func() (*http.Response, error) {
		resp, err := http.Get(server.URL)
		if err == nil && resp.StatusCode >= 500 {
			resp.Body.Close()
			return nil, fmt.Errorf("status %d", resp.StatusCode)
		}
		return resp, err
	})
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	fmt.Println(resp.StatusCode)
	// Output: 200
}

func Example_gobreakerAfter() {
	server := steady()
	defer server.Close()

	sched, err := ax.New(nil, ax.Config{
		Breaker: &ax.Breaker{Window: 10, FailureRate: 0.3, OpenFor: 3 * time.Second, WhenOpen: ax.OpenReject},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer sched.Close()

	resp, err := sched.Get(context.Background(), server.URL) // 5xx counts, 4xx and the caller's cancel do not
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	fmt.Println(resp.StatusCode)
	// Output: 200
}
