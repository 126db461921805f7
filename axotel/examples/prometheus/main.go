// Command prometheus serves what an instrumented scheduler does as Prometheus
// text, while it works through a small synthetic load against a server of its
// own.
//
//	go run ./examples/prometheus            # then: curl http://127.0.0.1:9464/metrics
//	go run ./examples/prometheus -for 10s   # ends by itself
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"time"

	"github.com/axsched/ax"
	"github.com/axsched/ax/axotel"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:9464", "where to serve /metrics")
	limit := flag.Duration("for", 0, "how long to run; 0 = until interrupted")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if *limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, *limit)
		defer cancel()
	}
	if err := run(ctx, *addr, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, addr string, out io.Writer) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	registry := prometheus.NewRegistry()
	exporter, err := otelprom.New(otelprom.WithRegisterer(registry), otelprom.WithoutScopeInfo())
	if err != nil {
		return err
	}
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter))
	defer func() { _ = meters.Shutdown(context.WithoutCancel(ctx)) }()

	cfg := ax.Recommended()
	if err := axotel.Instrument(&cfg, nil, meters); err != nil {
		return err
	}
	sched, err := ax.New(nil, cfg)
	if err != nil {
		return err
	}
	defer sched.Close()

	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	defer context.AfterFunc(ctx, func() { srv.Close() })()
	var working sync.WaitGroup
	defer func() { stop(); working.Wait() }()
	working.Go(func() { load(ctx, sched) }) // ends with ctx
	fmt.Fprintf(out, "metrics: http://%s/metrics\n", listener.Addr())
	if err := srv.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// load sends a task every few milliseconds to a server that is slow and now and
// then fails.
func load(ctx context.Context, sched *ax.Scheduler) {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(time.Duration(rand.IntN(80)) * time.Millisecond)
		if rand.IntN(20) == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer backend.Close()
	owners := [...]string{"search", "checkout", ""}
	for i := 0; ctx.Err() == nil; i++ {
		task := ax.Must(ax.Request{URL: backend.URL + "/items/" + strconv.Itoa(rand.IntN(200)), Owner: owners[i%len(owners)]}.Task())
		sched.Submit(ctx, task).Discard()
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
}
