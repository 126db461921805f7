package bench

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/pprof/profile"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	if ServeChild() {
		return
	}
	os.Exit(m.Run())
}

func TestQuantile(t *testing.T) {
	for _, tc := range []struct {
		name   string
		sorted []float64
		q      float64
		want   float64
	}{
		{"one", []float64{3}, 0.9, 3},
		{"middle of two", []float64{1, 3}, 0.5, 2},
		{"on a value", []float64{1, 2, 4}, 0.5, 2},
		{"between", []float64{0, 10}, 0.25, 2.5},
		{"least", []float64{1, 2}, 0, 1},
		{"greatest", []float64{1, 2}, 1, 2},
	} {
		require.Equal(t, tc.want, quantile(tc.sorted, tc.q), tc.name)
	}
	require.True(t, math.IsNaN(quantile(nil, 0.5)))
}

func TestEstimate(t *testing.T) {
	require.Equal(t, estimate{2, 2, 2}, estimateOf([]float64{2, 2, 2, 2}))
	require.True(t, math.IsNaN(estimateOf(nil).mid))
	values := []float64{1, 9, 2, 8, 3, 7, 4, 6, 5}
	e := estimateOf(values)
	require.Equal(t, e, estimateOf(values), "the draws are seeded")
	require.Equal(t, 5.0, e.mid)
	require.Less(t, e.low, e.mid)
	require.Greater(t, e.high, e.mid)
}

// The true median lies in nineteen intervals of twenty.
func TestEstimateCovers(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	const runs = 200
	covered := 0
	for range runs {
		values := make([]float64, 25)
		for i := range values {
			values[i] = r.NormFloat64()
		}
		if e := estimateOf(values); e.low <= 0 && 0 <= e.high {
			covered++
		}
	}
	require.GreaterOrEqual(t, covered, runs*90/100)
}

// A machine that is twice as slow in one round changes no ratio.
func TestRatioIsOfTheSameRound(t *testing.T) {
	require.Equal(t, estimate{2, 2, 2}, ratioOf([]float64{2, 4, 20, 6}, []float64{1, 2, 10, 3}))
	require.Equal(t, estimate{1, 1, 1}, differenceOf([]float64{2, 3, 11}, []float64{1, 2, 10}))
}

func TestMarkVerdict(t *testing.T) {
	for _, tc := range []struct {
		name string
		m    mark
		e    estimate
		want verdict
	}{
		{"below", mark{limit: 1}, estimate{0.5, 0.4, 0.6}, met},
		{"up to it", mark{limit: 1}, estimate{0.9, 0.8, 1}, met},
		{"across", mark{limit: 1}, estimate{0.9, 0.8, 1.1}, open},
		{"above", mark{limit: 1}, estimate{1.3, 1.1, 1.4}, missed},
		{"least: above", mark{limit: 1, atLeast: true}, estimate{1.3, 1.1, 1.4}, met},
		{"least: across", mark{limit: 1, atLeast: true}, estimate{1, 0.9, 1.4}, open},
		{"least: below", mark{limit: 1, atLeast: true}, estimate{0.5, 0.4, 0.6}, missed},
		{"nothing measured", mark{limit: 1}, estimateOf(nil), open},
	} {
		require.Equal(t, tc.want, tc.m.judge(tc.e), tc.name)
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 1: "1", 0.2: "0.2", 0.995: "0.995", 1.0004: "1", 12.34: "12.3", 123.4: "123",
		1e9: "1000000000", -0.0001: "0", math.Inf(1): "–",
	} {
		require.Equal(t, want, number(v))
	}
}

// scripted is a contestant whose readings are known.
type scripted struct {
	label  string
	values []float64
	closed int
	err    error
}

func (s *scripted) name() string { return s.label }
func (s *scripted) how() string  { return "made up" }
func (s *scripted) close()       { s.closed++ }

func (s *scripted) measure() (reading, error) {
	v := s.values[0]
	s.values = s.values[1:]
	return reading{nsPerCall: v}, s.err
}

func scriptedExperiment(rounds int, contestants ...contestant) experiment {
	return experiment{
		id: "x", title: "Made up", about: "Nothing.", short: "It is made up.", columns: []metric{nsPerCall}, rounds: rounds,
		groups: []group{{"all", contestants}},
		marks: []mark{
			ratioAtMost(0.5, contender{"all", "b", nsPerCall}, "a"),
			atLeast(10, contender{"all", "b", nsPerCall}),
			beyondAtMost(3, contender{"all", "a", nsPerCall}, "b"),
		},
	}
}

func TestExperimentRuns(t *testing.T) {
	for _, together := range []bool{false, true} {
		a := &scripted{label: "a", values: []float64{99, 4, 8}}
		b := &scripted{label: "b", values: []float64{99, 2, 4}}
		x := scriptedExperiment(2, a, b)
		x.together = together
		out, err := x.run(rand.New(rand.NewPCG(1, 2)), func(string) {})
		require.NoError(t, err)
		require.Equal(t, []float64{4, 8}, out.results["all"]["a"].of(nsPerCall), "the first round only warms up")
		require.Equal(t, []float64{2, 4}, out.results["all"]["b"].of(nsPerCall))
		require.Equal(t, 1, a.closed)
		require.Equal(t, 1, b.closed)
	}
}

func TestExperimentFails(t *testing.T) {
	broken := errors.New("broken")
	for _, together := range []bool{false, true} {
		a := &scripted{label: "a", values: []float64{1, 1}, err: broken}
		x := scriptedExperiment(1, a)
		x.together = together
		_, err := x.run(rand.New(rand.NewPCG(1, 2)), func(string) {})
		require.ErrorIs(t, err, broken)
		require.EqualError(t, err, "x, all: a: broken")
		require.Equal(t, 1, a.closed)
	}
}

func TestReport(t *testing.T) {
	a := &scripted{label: "a", values: []float64{4, 8}}
	b := &scripted{label: "b", values: []float64{2, 4}}
	x := scriptedExperiment(2, a, b)
	x.fresh = true
	out, err := x.run(rand.New(rand.NewPCG(1, 2)), func(string) {})
	require.NoError(t, err)
	r := report{
		date: time.Date(2030, 1, 2, 3, 4, 0, 0, time.UTC), took: 90 * time.Second,
		machine: "a machine", versions: []string{"peer v1"}, outcomes: []outcome{out},
	}
	var got bytes.Buffer
	require.NoError(t, r.write(&got))
	want, err := os.ReadFile("testdata/report.md")
	require.NoError(t, err)
	require.Equal(t, string(want), got.String())
	require.Equal(t, map[verdict]int{met: 1, missed: 1, open: 1}, r.counts())
	r.quick = true
	require.Equal(t, map[verdict]int{open: 3}, r.counts())
}

func TestLoad(t *testing.T) {
	var calls [3]atomic.Int64
	l := &load{callers: 3, call: func(c int) error { calls[c].Add(1); return nil }}
	r, err := l.drive(7)
	require.NoError(t, err)
	for c := range calls {
		require.Equal(t, int64(7), calls[c].Load())
	}
	for _, m := range callMetrics() {
		require.Contains(t, r, m)
	}
	broken := errors.New("broken")
	l.call = func(int) error { return broken }
	_, err = l.drive(1)
	require.ErrorIs(t, err, broken)
}

func TestMostInWindow(t *testing.T) {
	at := func(ms ...int) (all []time.Duration) {
		for _, m := range ms {
			all = append(all, time.Duration(m)*time.Millisecond)
		}
		return all
	}
	for _, tc := range []struct {
		name   string
		starts []time.Duration
		want   int
	}{
		{"none", nil, 0},
		{"one", at(5), 1},
		{"a window later is another window", at(0, 100), 1},
		{"just within", at(0, 99, 100), 2},
		{"across the grid", at(80, 90, 110, 120), 4},
	} {
		require.Equal(t, tc.want, most(tc.starts, 100*time.Millisecond), tc.name)
	}
}

func TestQuotaUsed(t *testing.T) {
	var smooth, bursts, half []time.Duration
	for i := range 5 * quota {
		smooth = append(smooth, time.Duration(i)*time.Second/quota)
		bursts = append(bursts, time.Duration(i/quota)*time.Second)
		half = append(half, time.Duration(i)*2*time.Second/quota)
	}
	require.InDelta(t, 1, quotaUsed(smooth), 1e-9)
	require.InDelta(t, 1, quotaUsed(bursts), 1e-9)
	require.InDelta(t, 0.5, quotaUsed(half), 1e-9)
	require.Zero(t, quotaUsed(smooth[:quota]))
}

func TestBenchmarkLine(t *testing.T) {
	r := reading{}
	for _, line := range []string{
		"goos: linux",
		"BenchmarkHeap/op=turn/n=100-2   \t  304693\t        86.10 ns/op\t       0 B/op\t       3 allocs/op",
		"BenchmarkHeap/op=remove/n=1000  \t    6921\t      3412 ns/op\t        30.85 ns/remove\t        80.10 ns/replace",
		"BenchmarkHeap/op=turn/n=many-2 1 1 ns/op",
		"PASS",
	} {
		r.addBenchmarkLine(line)
	}
	require.Equal(t, reading{turnAt(100): 86.10, heapAllocs: 3, removeAt(1000): 30.85, replaceAt(1000): 80.10}, r)
}

func TestLockedShare(t *testing.T) {
	fn := func(id uint64, name string) *profile.Location {
		return &profile.Location{ID: id, Line: []profile.Line{{Function: &profile.Function{ID: id, Name: name}}}}
	}
	held := fn(1, "github.com/axsched/ax.(*Scheduler).admitLocked")
	inside := fn(2, "github.com/axsched/ax.(*Scheduler).admitLocked.func1")
	free := fn(3, "github.com/axsched/ax.(*Scheduler).Do")
	other := fn(4, "example.com/other.doLocked")
	leaf := fn(5, "runtime.mallocgc")
	sample := func(n int64, stack ...*profile.Location) *profile.Sample {
		return &profile.Sample{Value: []int64{n}, Location: stack}
	}
	all := []*profile.Location{held, inside, free, other, leaf}
	p := &profile.Profile{
		SampleType: []*profile.ValueType{{Type: "samples", Unit: "count"}},
		Sample:     []*profile.Sample{sample(1, leaf, held, free), sample(2, inside, free), sample(3, leaf, free), sample(4, other)},
		Location:   all,
	}
	for _, at := range all {
		p.Function = append(p.Function, at.Line[0].Function)
	}
	var raw bytes.Buffer
	require.NoError(t, p.Write(&raw))
	share, err := lockedShare(&raw)
	require.NoError(t, err)
	require.InDelta(t, 0.3, share, 1e-9)
}

// The floor must do what it is compared for: order, no barging, no lost slot.
func TestFloorGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newFloorGate(1)
		require.NoError(t, g.enter(t.Context(), 0))
		var order []int
		var mu sync.Mutex
		for i, level := range []int{0, 1, 0, 2} {
			go func() {
				_ = g.enter(t.Context(), level) // the context outlives the test's body
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				g.exit(nil)
			}()
			synctest.Wait()
		}
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error)
		go func() { left <- g.enter(ctx, 9) }()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-left, context.Canceled)
		g.exit(nil)
		synctest.Wait()
		require.Equal(t, []int{3, 1, 0, 2}, order)
		require.Equal(t, 1, g.free)
	})
}

// The hand-written sharing is what ax's is compared with: one attempt, and a
// caller who leaves hurts nobody.
func TestDetachedStack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := 0
		d := newDetachedStack(job{slots: 1, timeout: time.Hour, work: func(ctx context.Context) (*http.Response, error) {
			sent++
			select {
			case <-time.After(time.Second):
				return &http.Response{StatusCode: 200, Body: newHeldBody([]byte("whole"))}, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}})
		first, leave := context.WithCancel(t.Context())
		errs := make(chan error, 1)
		go func() { _, err := d.do(first, "k"); errs <- err }()
		synctest.Wait()
		bodies := make(chan io.Reader, 2)
		for range cap(bodies) {
			go func() {
				resp, err := d.do(t.Context(), "k")
				assert.NoError(t, err)
				bodies <- resp.Body
			}()
		}
		synctest.Wait()
		leave()
		require.ErrorIs(t, <-errs, context.Canceled)
		for range cap(bodies) {
			whole, err := io.ReadAll(<-bodies)
			require.NoError(t, err)
			require.Equal(t, "whole", string(whole))
		}
		require.Equal(t, 1, sent)
		require.Empty(t, d.flights)
	})
}

func TestEveryExperimentIsWellFormed(t *testing.T) {
	for _, quick := range []bool{false, true} {
		for _, entry := range experiments() {
			x := entry.build(effort{quick: quick})
			require.Equal(t, entry.id, x.id)
			require.NotEmpty(t, x.title)
			require.NotEmpty(t, x.about)
			require.Positive(t, x.rounds)
			require.NotEmpty(t, x.columns)
			results := map[string]map[string]readings{}
			for _, g := range x.groups {
				results[g.label] = map[string]readings{}
				for _, c := range g.contestants {
					require.NotContains(t, results[g.label], c.name(), x.id)
					require.NotEmpty(t, c.how(), "%s, %s", x.id, c.name())
					one := reading{}
					for _, m := range append(x.columns, allocs) {
						one[m] = 1
					}
					results[g.label][c.name()] = readings{one}
				}
				g.close()
			}
			for _, m := range x.marks {
				require.False(t, math.IsNaN(m.of(outcome{x, results}).mid), "%s: %s names nobody", x.id, m.what)
			}
		}
	}
}

// A few whole experiments, as small as they get: one of each kind.
func TestRunQuick(t *testing.T) {
	for _, id := range []string{"a3", "c", "d1", "e", "g"} {
		t.Run(id, func(t *testing.T) {
			r, err := Run(Options{Quick: true, Only: []string{id}})
			require.NoError(t, err)
			var out bytes.Buffer
			require.NoError(t, r.Write(&out))
			require.Contains(t, out.String(), "## "+id+". ")
			require.Zero(t, r.Missed(), "nothing is judged in a quick run")
		})
	}
}

func TestRunUnknown(t *testing.T) {
	_, err := Run(Options{Only: []string{"z9"}})
	require.EqualError(t, err, `bench: no experiment is called ["z9"]`)
}
