package axotel

import (
	"context"
	"net/http"
	"testing"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// BenchmarkDo is the cost of a task that does nothing, by what is recorded of it.
func BenchmarkDo(b *testing.B) {
	nothing := ax.ExecutorFunc(func(context.Context, *ax.Task) (*http.Response, error) {
		return &http.Response{StatusCode: 200}, nil
	})
	task := ax.Must(ax.Request{Method: "POST", URL: "http://a.test/"}.Task())
	for _, c := range []struct {
		name       string
		instrument func(*ax.Config) error
	}{
		{"plain", func(*ax.Config) error { return nil }},
		{"metrics", func(cfg *ax.Config) error {
			return Instrument(cfg, nil, sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())))
		}},
		{"unsampled", func(cfg *ax.Config) error {
			return Instrument(cfg, sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample())), nil)
		}},
		{"spans", func(cfg *ax.Config) error { return Instrument(cfg, sdktrace.NewTracerProvider(), nil) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			cfg := ax.Config{Executor: nothing}
			require.NoError(b, c.instrument(&cfg))
			s, err := ax.New(nil, cfg)
			require.NoError(b, err)
			defer s.Close()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Do(b.Context(), task); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
