package ax_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/axsched/ax"
)

func ExampleExecutor() {
	server := newDemo(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Header.Get("X-Region")) })
	defer server.Close()

	next := ax.HTTPExecutor(http.DefaultClient)
	sched := newScheduler(ax.Config{Executor: ax.ExecutorFunc(
		func(ctx context.Context, t *ax.Task) (*http.Response, error) {
			start := time.Now()
			resp, err := next.Execute(ctx, t) // one attempt
			_ = time.Since(start)             // measure it, log it, change it
			return resp, err
		})})
	defer sched.Close()

	resp, err := sched.Send(context.Background(), ax.Request{URL: server.URL, Header: http.Header{"X-Region": {"eu"}}})
	if err != nil {
		log.Fatal(err)
	}
	body, _ := resp.Bytes()
	fmt.Println(string(body))
	// Output: eu
}

func ExampleExecutorFunc() {
	// For tests: no network at all.
	sched := newScheduler(ax.Config{Executor: ax.ExecutorFunc(
		func(_ context.Context, t *ax.Task) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("fake " + t.Method()))}, nil
		})})
	defer sched.Close()

	resp, _ := sched.Get(context.Background(), "https://api.example.com/users")
	body, _ := resp.Bytes()
	fmt.Println(string(body))
	// Output: fake GET
}

func ExampleRequest_prepare() {
	server := newDemo(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Header.Get("Authorization")) })
	defer server.Close()
	sched := newScheduler(ax.Config{})
	defer sched.Close()

	resp, err := sched.Send(context.Background(), ax.Request{
		URL: server.URL,
		Prepare: func(r *http.Request) error { // on every attempt: a fresh signature each time
			r.Header.Set("Authorization", "Signature of "+r.Method)
			return nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	body, _ := resp.Bytes()
	fmt.Println(string(body))
	// Output: Signature of GET
}

func ExampleRequest_stream() {
	server := newDemo(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: one\n\ndata: two\n\n")
	})
	defer server.Close()
	sched := newScheduler(ax.Config{IdleTimeout: 30 * time.Second})
	defer sched.Close()

	resp, err := sched.Send(context.Background(), ax.Request{URL: server.URL, Stream: true})
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close() // the slot is held until here, or the end of the body
	body, _ := io.ReadAll(resp.Body)
	fmt.Println(strings.Count(string(body), "data:"), "events")
	// Output: 2 events
}

// fleet is a Governor that lets the whole fleet have so many at once. Package
// axredis has one for real.
type fleet struct{ free atomic.Int64 }

// Acquire takes one of the free places, or says when to ask again.
func (f *fleet) Acquire(_ context.Context, ask ax.Ask) (ax.Grant, error) {
	if f.free.Add(-1) < 0 {
		f.free.Add(1)
		return ax.Grant{RetryIn: 10 * time.Millisecond}, nil
	}
	return ax.Grant{Release: func() { f.free.Add(1) }}, nil
}

// PauseUntil makes it a Pauser: it is told when a server asks for a pause.
func (f *fleet) PauseUntil(lane string, until time.Time) {}

var _ ax.Pauser = (*fleet)(nil)

func ExampleGovernor() {
	server := newDemo(echo)
	defer server.Close()
	shared := &fleet{}
	shared.free.Store(2)
	sched := newScheduler(ax.Config{Governor: shared}) // every process has one over the same store
	defer sched.Close()

	resp, err := sched.Get(context.Background(), server.URL)
	fmt.Println(resp.StatusCode, err)
	// Output: 200 <nil>
}

func ExampleAsk() {
	f := &fleet{}
	grant, err := f.Acquire(context.Background(), ax.Ask{Lane: "maps", Owner: "search", Priority: ax.Urgent})
	fmt.Println(grant.RetryIn, err)
	// Output: 10ms <nil>
}

func ExampleGrant() {
	f := &fleet{}
	f.free.Store(1)
	grant, _ := f.Acquire(context.Background(), ax.Ask{Lane: "maps"})
	fmt.Println(grant.RetryIn, f.free.Load())
	grant.Release()
	fmt.Println(f.free.Load())
	// Output:
	// 0s 0
	// 1
}

func ExamplePauser() {
	var governor ax.Governor = &fleet{}
	if p, ok := governor.(ax.Pauser); ok {
		p.PauseUntil("maps", time.Now().Add(time.Second)) // the rest of the fleet waits too
	}
	// Output:
}
