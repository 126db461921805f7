package migrate_test

import (
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/axsched/ax"
	"github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
)

func Example_failsafeBefore() {
	server := flaky()
	defer server.Close()

	retry := failsafehttp.NewRetryPolicyBuilder().WithBackoff(10*time.Millisecond, time.Second).WithMaxRetries(2).Build()
	limit := ratelimiter.NewSmoothBuilder[*http.Response](100, time.Second).WithMaxWaitTime(time.Second).Build()
	gate := bulkhead.NewBuilder[*http.Response](10).WithMaxWaitTime(time.Second).Build()
	breaker := circuitbreaker.NewBuilder[*http.Response]().WithFailureThresholdRatio(4, 10).WithDelay(3 * time.Second).Build()
	client := &http.Client{Transport: failsafehttp.NewRoundTripper(nil, retry, limit, gate, breaker)}

	resp, err := client.Get(server.URL)
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	fmt.Println(resp.StatusCode)
	// Output: 200
}

func Example_failsafeAfter() {
	server := flaky()
	defer server.Close()

	sched, err := ax.New(nil, ax.Config{
		MaxConcurrent: 10,
		Rate:          []ax.Rate{{Limit: 100, Smooth: true}},
		QueueTimeout:  time.Second,
		Retry:         &ax.Retry{Max: 2, BaseDelay: 10 * time.Millisecond, MaxDelay: time.Second},
		Breaker:       &ax.Breaker{Window: 10, FailureRate: 0.3, OpenFor: 3 * time.Second, WhenOpen: ax.OpenReject},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer sched.Close()
	client := &http.Client{Transport: sched.Transport()}

	resp, err := client.Get(server.URL)
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	fmt.Println(resp.StatusCode)
	// Output: 200
}
