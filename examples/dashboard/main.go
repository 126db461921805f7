// Dashboard shows axdebug's page over a lively scheduler: services that are
// fast, slow, limited and sometimes down, all of them made up.
//
//	go run ./examples/dashboard           until Ctrl-C
//	go run ./examples/dashboard -for 30s  for half a minute
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/axsched/ax"
	"github.com/axsched/ax/axdebug"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:0", "where to listen; port 0 is any free one")
	length := flag.Duration("for", 0, "how long to run; 0 = until Ctrl-C")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if *length > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, *length)
		defer cancel()
	}
	if err := run(ctx, *addr); err != nil {
		fmt.Fprintln(os.Stderr, "dashboard:", err)
		os.Exit(1)
	}
}

// run serves the page and keeps the scheduler busy until ctx ends.
func run(ctx context.Context, addr string) error {
	sched, err := ax.New(nil, config(newWorld()))
	if err != nil {
		return err
	}
	defer sched.Close()

	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	page := axdebug.HandlerWith(sched, axdebug.Options{Title: "Dashboard example", Control: true, Record: true})
	server := &http.Server{Handler: page, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }() // ends with server.Close
	fmt.Printf("http://%s/\n", listener.Addr())

	visitors(ctx, sched) // returns when ctx has ended
	_ = server.Close()   // open streams too
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	st := sched.Stats()
	fmt.Printf("%d tasks, %d attempts, %d answered without one\n", st.Submitted, st.Attempts, st.Coalesced+st.WindowHits)
	return nil
}

// config is what a shop's front end might use.
func config(w *world) ax.Config {
	cfg := ax.Recommended()
	cfg.Executor = w
	cfg.MaxConcurrent = 40
	cfg.AgingStep = 2 * time.Second
	cfg.QueueTimeout = 12 * time.Second
	cfg.Dedupe = &ax.Dedupe{Window: 2 * time.Second}
	cfg.Breaker = &ax.Breaker{OpenFor: 5 * time.Second, Probes: 2, Ramp: 4 * time.Second}
	cfg.Lanes = []ax.Lane{
		{Name: "catalog", Match: []string{"catalog.example"}, MaxConcurrent: 12},
		{Name: "search", Match: []string{"search.example"}, MaxConcurrent: 4, AttemptTimeout: 3 * time.Second},
		{Name: "payments", Match: []string{"payments.example"}, MaxConcurrent: 6},
		{Name: "reports", Match: []string{"reports.example"}, MaxConcurrent: 4, Rate: ax.PerSecond(6)},
		{Name: "weather", Match: []string{"weather.example"}, Rate: ax.PerSecond(8)},
	}
	cfg.Budgets = map[string]ax.Budget{
		"mobile":   {MaxConcurrent: 10},
		"crawler":  {Rate: ax.PerSecond(6), MaxConcurrent: 3, MaxQueue: 60},
		"checkout": {MaxConcurrent: 5},
	}
	return cfg
}
