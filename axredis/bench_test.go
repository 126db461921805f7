package axredis_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// evals counts the scripts that Redis has run.
func (f *fleet) evals(t testing.TB) (n int) {
	for _, line := range strings.Split(f.rdb.Info(t.Context(), "commandstats").Val(), "\n") {
		name, rest, _ := strings.Cut(line, ":calls=")
		if name == "cmdstat_evalsha" || name == "cmdstat_eval" {
			calls, _, _ := strings.Cut(rest, ",")
			c, err := strconv.Atoi(calls)
			require.NoError(t, err)
			n += c
		}
	}
	return n
}

// TestAStartCostsAtMostTwoRoundTrips, its release included.
func TestAStartCostsAtMostTwoRoundTrips(t *testing.T) {
	f := newFleetAt(t, startServer(t).addr, lanes("api", ax.Limits{MaxConcurrent: 3, Rate: []ax.Rate{{Limit: 1000}}}))
	g := f.join()
	wait(t, g, ask("api", 0)).Release() // announces the version, loads the script
	time.Sleep(100 * ms)
	before := f.evals(t)
	for range 50 {
		wait(t, g, ask("api", 0)).Release()
		time.Sleep(20 * ms)
	}
	require.LessOrEqual(t, f.evals(t)-before, 100)
}

// benchmark starts and ends b.N attempts on some machines, with so many callers
// each.
func benchmark(b *testing.B, machines, callers int, l ax.Limits) {
	f := newFleetAt(b, startServer(b).addr, lanes("api", l))
	var all sync.WaitGroup
	work := make(chan struct{}, 1000)
	before := f.evals(b)
	b.ResetTimer()
	for range machines {
		g := f.join()
		for range callers {
			all.Go(func() {
				for range work {
					wait(b, g, ask("api", 0)).Release()
				}
			})
		}
	}
	for range b.N {
		work <- struct{}{}
	}
	close(work)
	all.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "starts/s")
	b.ReportMetric(float64(f.evals(b)-before)/float64(b.N), "trips/start")
}

func BenchmarkStart(b *testing.B) {
	slots := ax.Limits{MaxConcurrent: 10_000}
	both := ax.Limits{MaxConcurrent: 10_000, Rate: []ax.Rate{{Limit: 1_000_000, Burst: 1_000_000}}}
	window := ax.Limits{MaxConcurrent: 10_000, Rate: []ax.Rate{{Limit: 1_000_000}}}
	b.Run("slots/1x1", func(b *testing.B) { benchmark(b, 1, 1, slots) })
	b.Run("slots/4x1", func(b *testing.B) { benchmark(b, 4, 1, slots) })
	b.Run("slots/16x1", func(b *testing.B) { benchmark(b, 16, 1, slots) })
	b.Run("slots/4x64", func(b *testing.B) { benchmark(b, 4, 64, slots) })
	b.Run("slots+bucket/4x64", func(b *testing.B) { benchmark(b, 4, 64, both) })
	b.Run("slots+window/4x64", func(b *testing.B) { benchmark(b, 4, 64, window) })
}

// BenchmarkWaiting is what machines cost that all wait for one slot.
func BenchmarkWaiting(b *testing.B) {
	for _, machines := range []int{10, 50, 200} {
		b.Run(strconv.Itoa(machines), func(b *testing.B) {
			f := newFleetAt(b, startServer(b).addr, lanes("api", ax.Limits{MaxConcurrent: 1}))
			held := granted(b, f.join(), ask("api", -time.Hour))
			stop := make(chan struct{})
			var all sync.WaitGroup
			for range machines {
				g := f.join()
				all.Go(func() {
					for a := ask("api", 0); ; {
						select {
						case <-stop:
							return
						case <-time.After(must(b, g, a).RetryIn):
						}
					}
				})
			}
			time.Sleep(time.Second)
			before := f.evals(b)
			b.ResetTimer()
			for b.Loop() {
				time.Sleep(100 * ms)
			}
			b.ReportMetric(float64(f.evals(b)-before)/b.Elapsed().Seconds(), "trips/s")
			close(stop)
			all.Wait()
			held.Release()
		})
	}
}

// BenchmarkLanes is how well lanes that share 10 slots use them, with tasks of 20 ms:
// at best 500 starts/s.
func BenchmarkLanes(b *testing.B) {
	for _, c := range []struct{ machines, lanes int }{{1, 1}, {1, 20}, {1, 100}, {1, 1000}, {4, 25}, {10, 1}, {50, 1}} {
		b.Run(fmt.Sprintf("%dx%d", c.machines, c.lanes), func(b *testing.B) {
			f := newFleetAt(b, startServer(b).addr, together(ax.Limits{MaxConcurrent: 10}))
			var work busy
			var all sync.WaitGroup
			before := f.evals(b)
			b.ResetTimer()
			for range c.machines {
				s := f.schedulerWith(ax.Config{Governor: f.join(), Executor: &work, MaxQueue: ax.NoLimit})
				for i := range 1 + b.N/c.machines {
					all.Go(func() {
						_, err := s.Send(b.Context(), ax.Request{Method: "POST", URL: "http://host" + strconv.Itoa(i%c.lanes) + ".example/"})
						require.NoError(b, err)
					})
				}
			}
			all.Wait()
			b.StopTimer()
			b.ReportMetric(float64(work.sent.Load())/b.Elapsed().Seconds(), "starts/s")
			b.ReportMetric(float64(f.evals(b)-before)/float64(work.sent.Load()), "trips/start")
		})
	}
}
