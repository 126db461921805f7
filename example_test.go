package ax_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/axsched/ax"
)

func Example() {
	server := newDemo(echo)
	defer server.Close()
	client := &http.Client{}

	sched, err := ax.New(client, ax.Recommended())
	if err != nil {
		log.Fatal(err)
	}
	defer sched.Close()
	client.Transport = sched.Transport() // everything below stays as it is

	resp, err := client.Get(server.URL + "/hello")
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	io.Copy(os.Stdout, resp.Body)
	// Output: /hello
}

func ExampleNew() {
	_, err := ax.New(nil, ax.Config{
		MaxConcurrent: -1,
		Lanes:         []ax.Lane{{Name: "maps", Rate: []ax.Rate{{Limit: 0}}}},
	})
	fmt.Println(strings.Contains(err.Error(), "MaxConcurrent"))
	fmt.Println(strings.Contains(err.Error(), "Lanes[0].Rate[0].Limit"))
	// Output:
	// true
	// true
}

func ExampleRecommended() {
	cfg := ax.Recommended()
	cfg.AttemptTimeout = 2 * time.Second // a server that hangs has failed
	cfg.IdleTimeout = 30 * time.Second   // and so has a stream that falls silent
	cfg.QueueTimeout = 3 * time.Second   // a host that is down keeps nobody longer …
	cfg.Hosts.MaxQueue = 100             // … and does not fill the queue of the others

	sched, err := ax.New(nil, cfg)
	fmt.Println(sched != nil, err)
	// Output: true <nil>
}

func ExampleConfig() {
	sched, err := ax.New(nil, ax.Config{
		MaxConcurrent:  50,              // what the process may have on the wire
		AttemptTimeout: 2 * time.Second, // p99 × 1.5, for each attempt
		QueueTimeout:   5 * time.Second, // nobody waits longer for a turn
		Dedupe:         &ax.Dedupe{},
		Retry:          &ax.Retry{},
		Breaker:        &ax.Breaker{},
		Lanes: []ax.Lane{
			{Name: "search", Match: []string{"GET api.example.com/search"}, MaxConcurrent: 20},
			{Name: "maps", Match: []string{"maps.example.com"}, Rate: []ax.Rate{{Limit: 5, Guard: 50 * time.Millisecond}}},
		},
		Hosts: &ax.Lane{MaxConcurrent: 6}, // each host that is not listed
	})
	if err != nil {
		log.Fatal(err)
	}
	defer sched.Close()
	fmt.Println(len(sched.Stats().Lanes), "lanes")
	// Output: 2 lanes
}

func ExampleScheduler() {
	server := newDemo(echo)
	defer server.Close()
	sched := newScheduler(ax.Config{MaxConcurrent: 10, Rate: ax.PerSecond(30)})

	resp, err := sched.Get(context.Background(), server.URL+"/news")
	if err != nil {
		log.Fatal(err)
	}
	body, err := resp.Bytes()
	fmt.Println(string(body), err)

	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err = sched.Shutdown(ctx) // finishes what was accepted; what is left then is cancelled
	fmt.Println(err)
	// Output:
	// /news <nil>
	// <nil>
}

func ExampleRequest() {
	server := newDemo(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s", r.Method, r.URL.RequestURI(), body)
	})
	defer server.Close()
	sched := newScheduler(ax.Config{})
	defer sched.Close()

	resp, err := sched.Send(context.Background(), ax.Request{
		Method:         "POST",
		URL:            server.URL + "/orders",
		JSON:           map[string]int{"item": 7},
		Priority:       ax.Urgent,
		Owner:          "checkout",
		IdempotencyKey: "order-4711", // so that it may be retried
		AttemptTimeout: time.Second,
	})
	if err != nil {
		log.Fatal(err)
	}
	body, _ := resp.Bytes()
	fmt.Println(string(body))
	// Output: POST /orders {"item":7}
}

func ExampleTask() {
	// Built once, checked once, sent as often as you like.
	health := ax.Must(ax.Request{URL: "https://api.example.com/health", Priority: ax.Low}.Task())

	stored, _ := json.Marshal(health) // and it outlives the process
	var again ax.Task
	fmt.Println(json.Unmarshal(stored, &again), again.Method(), again.URL())
	// Output: <nil> GET https://api.example.com/health
}

func ExampleTaskFrom() {
	server := newDemo(echo)
	defer server.Close()
	sched := newScheduler(ax.Config{})
	defer sched.Close()

	req, _ := http.NewRequest("GET", server.URL+"/from", nil)
	task, err := ax.TaskFrom(req, ax.Request{Priority: ax.Important})
	if err != nil {
		log.Fatal(err)
	}
	resp, err := sched.Do(context.Background(), task)
	fmt.Println(resp.StatusCode, err)
	// Output: 200 <nil>
}

func ExampleJSON() {
	type user struct{ Name string }
	server := newDemo(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"Name":"Ada"}`) })
	defer server.Close()
	sched := newScheduler(ax.Recommended())
	defer sched.Close()

	u, err := ax.JSON[user](sched.Get(context.Background(), server.URL+"/users/1"))
	fmt.Println(u.Name, err)
	// Output: Ada <nil>
}

func ExampleResponse() {
	server := newDemo(echo)
	defer server.Close()
	sched := newScheduler(ax.Config{Dedupe: &ax.Dedupe{Window: time.Minute}})
	defer sched.Close()

	for range 2 {
		resp, err := sched.Get(context.Background(), server.URL+"/rates")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(resp.StatusCode, resp.Source, resp.Attempts)
	}
	fmt.Println(server.requests.Load(), "request")
	// Output:
	// 200 network 1
	// 200 window 0
	// 1 request
}

func ExampleCall() {
	server := newDemo(echo)
	defer server.Close()
	sched := newScheduler(ax.Config{MaxConcurrent: 4})
	defer sched.Close()

	var calls []*ax.Call
	for page := range 3 { // none of them blocks, and none costs a goroutine while it waits
		task := ax.Must(ax.Request{URL: fmt.Sprintf("%s/page/%d", server.URL, page)}.Task())
		calls = append(calls, sched.Submit(context.Background(), task))
	}
	for _, call := range calls {
		resp, err := call.Result()
		if err != nil {
			log.Fatal(err)
		}
		body, _ := resp.Bytes()
		fmt.Println(string(body))
	}
	// Output:
	// /page/0
	// /page/1
	// /page/2
}

func ExampleRun() {
	sched := newScheduler(ax.Config{Lanes: []ax.Lane{{Name: "database", MaxConcurrent: 4}}})
	defer sched.Close()

	query := ax.Must(ax.Request{URL: "sql://orders/count", Lane: "database"}.Task())
	n, err := ax.Run(context.Background(), sched, query, func(ctx context.Context) (int, error) {
		return 42, ctx.Err() // db.QueryRowContext(ctx, …)
	})
	fmt.Println(n, err)
	// Output: 42 <nil>
}
