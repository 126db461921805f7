package axredis_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/axsched/ax"
	"github.com/axsched/ax/axredis"
	"github.com/redis/go-redis/v9"
)

// Ten replicas with this configuration send 50 requests a second, not 500.
func ExampleNew() {
	rdb := redis.NewClient(&redis.Options{Addr: "redis.internal:6379"})
	gov, err := axredis.New(rdb, axredis.Config{Lanes: map[string]ax.Limits{
		"api": {MaxConcurrent: 10, Rate: ax.PerSecond(50)},
	}})
	if err != nil {
		log.Fatal(err)
	}
	defer gov.Close() // after the scheduler
	sched, err := ax.New(nil, ax.Config{
		Governor: gov,
		Lanes:    []ax.Lane{{Name: "api", Match: []string{"api.example.com"}}},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer sched.Close()
	client := &http.Client{Transport: sched.Transport()}
	_ = client // every request to api.example.com now passes the fleet's gate
}

// Without Redis, FailLocal keeps each process to the fleet's limits.
func ExampleConfig_outage() {
	nowhere := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	gov, err := axredis.New(nowhere, axredis.Config{
		Lanes:  map[string]ax.Limits{"api": {MaxConcurrent: 2}},
		Outage: axredis.FailLocal,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer gov.Close()
	for range 3 {
		grant, err := gov.Acquire(context.Background(), ax.Ask{Lane: "api", Rank: time.Now()})
		fmt.Println(grant.RetryIn == 0, err)
	}
	// Output:
	// true <nil>
	// true <nil>
	// false <nil>
}

func ExampleConfig_validation() {
	_, err := axredis.New(redis.NewClient(&redis.Options{}), axredis.Config{
		Lanes: map[string]ax.Limits{"api": {MaxConcurrent: -1}},
	})
	fmt.Println(err)
	// Output:
	// axredis: Config.Lanes["api"].MaxConcurrent is -1; want 1 or more, or 0 for none
}
