package migrate_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/axsched/ax"
	"golang.org/x/time/rate"
)

func Example_rateBefore() {
	server := steady()
	defer server.Close()
	ctx := context.Background()

	limiter := rate.NewLimiter(5, 1) // a burst of 5 would let 9 into some second
	if err := limiter.Wait(ctx); err != nil {
		log.Fatal(err)
	}
	resp, err := http.Get(server.URL)
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	fmt.Println(resp.StatusCode)
	// Output: 200
}

func Example_rateAfter() {
	server := steady()
	defer server.Close()
	ctx := context.Background()

	sched, err := ax.New(nil, ax.Config{Rate: []ax.Rate{{Limit: 5, Guard: 50 * time.Millisecond}}})
	if err != nil {
		log.Fatal(err)
	}
	defer sched.Close()

	resp, err := sched.Get(ctx, server.URL)
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	fmt.Println(resp.StatusCode)
	// Output: 200
}
