package axotel_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/axsched/ax"
	"github.com/axsched/ax/axotel"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// Metrics go to a Prometheus registry through the exporter of OpenTelemetry.
func ExampleInstrument() {
	registry := prometheus.NewRegistry()
	exporter, err := otelprom.New(otelprom.WithRegisterer(registry), otelprom.WithoutScopeInfo())
	if err != nil {
		log.Fatal(err)
	}
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter))

	cfg := ax.Config{Lanes: []ax.Lane{{Name: "shop", Match: []string{"127.0.0.1"}}}}
	if err := axotel.Instrument(&cfg, nil, meters); err != nil {
		log.Fatal(err)
	}
	sched, err := ax.New(nil, cfg)
	if err != nil {
		log.Fatal(err)
	}
	defer sched.Close()

	shop := httptest.NewServer(http.NotFoundHandler())
	defer shop.Close()
	for range 3 {
		if _, err := sched.Send(context.Background(), ax.Request{URL: shop.URL, Owner: "search"}); err != nil {
			log.Fatal(err)
		}
	}

	page := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(page.Body.String()) {
		if strings.HasPrefix(line, "ax_tasks") || strings.HasPrefix(line, "ax_attempts") {
			fmt.Print(line)
		}
	}
	// Output:
	// ax_attempts_active{lane="shop",owner="search"} 0
	// ax_attempts_total{lane="shop",owner="search"} 3
	// ax_tasks_total{lane="shop",outcome="succeeded",owner="search",source="network"} 3
}

// A client of one's own belongs in the Executor, its Transport below
// axotel.Transport: then the server sees the trace of each attempt.
func ExampleTransport() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, len(r.Header.Get("Traceparent")))
	}))
	defer server.Close()

	client := server.Client()
	client.Transport = axotel.Transport(client.Transport)
	cfg := ax.Config{Executor: ax.HTTPExecutor(client)}
	if err := axotel.Instrument(&cfg, sdktrace.NewTracerProvider(), nil); err != nil {
		log.Fatal(err)
	}
	sched, err := ax.New(nil, cfg)
	if err != nil {
		log.Fatal(err)
	}
	defer sched.Close()

	resp, err := sched.Get(context.Background(), server.URL)
	if err != nil {
		log.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	fmt.Println(string(body), err)
	// Output: 55 <nil>
}
