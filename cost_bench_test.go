package ax_test

import (
	"context"
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/axsched/ax"
)

// BenchmarkDo is the cost of a call that nothing holds back, by one caller and by
// many at once.
func BenchmarkDo(b *testing.B) {
	all := ax.Config{
		MaxConcurrent: 8192, Rate: []ax.Rate{{Limit: 1_000_000_000, Burst: 1_000_000}},
		Retry: &ax.Retry{}, Breaker: &ax.Breaker{},
	}
	with := func(change func(*ax.Config)) ax.Config {
		cfg := all
		change(&cfg)
		return cfg
	}
	for name, cfg := range map[string]ax.Config{
		"all":     all,
		"timeout": with(func(c *ax.Config) { c.AttemptTimeout = 30 * time.Second }),
		"exact":   with(func(c *ax.Config) { c.Rate = []ax.Rate{{Limit: 10_000, Per: time.Millisecond}} }),
		"dedupe":  with(func(c *ax.Config) { c.Dedupe = &ax.Dedupe{} }),
		"event":   with(func(c *ax.Config) { c.OnEvent = func(ax.Event) {} }),
		"full":    with(func(c *ax.Config) { c.MaxConcurrent = 2 }),
	} {
		b.Run(name, func(b *testing.B) {
			header := http.Header{}
			s := qReal(b, cfg, func(context.Context, *ax.Task) (*http.Response, error) {
				if cfg.MaxConcurrent == 2 {
					runtime.Gosched() // everybody else comes to the gate
				}
				return &http.Response{StatusCode: http.StatusOK, Header: header, Body: http.NoBody}, nil
			})
			task := ax.Must(ax.Request{URL: "http://a.test/"}.Task())
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			do := func() {
				if _, err := s.Do(ctx, task); err != nil {
					b.Error(err)
				}
			}
			b.Run("one", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					do()
				}
			})
			b.Run("many", func(b *testing.B) {
				b.ReportAllocs()
				b.SetParallelism(32)
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						do()
					}
				})
			})
		})
	}
}
