package migrate_test

import (
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/axsched/ax"
	"github.com/hashicorp/go-retryablehttp"
)

func Example_retryablehttpBefore() {
	server := flaky()
	defer server.Close()

	retrying := retryablehttp.NewClient()
	retrying.RetryMax = 2
	retrying.RetryWaitMin = 10 * time.Millisecond
	retrying.Logger = nil
	client := retrying.StandardClient()

	resp, err := client.Get(server.URL)
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	fmt.Println(resp.StatusCode)
	// Output: 200
}

func Example_retryablehttpAfter() {
	server := flaky()
	defer server.Close()

	sched, err := ax.New(nil, ax.Config{
		Retry: &ax.Retry{Max: 2, BaseDelay: 10 * time.Millisecond},
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
