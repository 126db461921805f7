package ax_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"

	"github.com/axsched/ax"
)

// demo is the server of the examples: on loopback, and counting.
type demo struct {
	*httptest.Server
	requests atomic.Int64
}

// newDemo serves h; call Close when done.
func newDemo(h http.HandlerFunc) *demo {
	d := &demo{}
	d.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.requests.Add(1)
		h(w, r)
	}))
	return d
}

// echo answers with the path that was asked for.
func echo(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.URL.Path) }

// failing answers 503 to everything.
func failing(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "down", http.StatusServiceUnavailable)
}

// newScheduler is ax.New for examples whose point is elsewhere.
func newScheduler(cfg ax.Config) *ax.Scheduler {
	sched, err := ax.New(nil, cfg)
	if err != nil {
		panic(err)
	}
	return sched
}

// busy takes the one slot of sched until the returned func is called, so that
// what comes next has to wait.
func busy(sched *ax.Scheduler) (free func()) {
	holding, done := make(chan struct{}), make(chan struct{})
	go ax.Run(context.Background(), sched, ax.Must(ax.Request{URL: "https://example.com/busy"}.Task()),
		func(context.Context) (int, error) {
			close(holding)
			<-done
			return 0, nil
		})
	<-holding
	return func() { close(done) }
}
