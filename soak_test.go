package ax

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var soakFor = flag.Duration("soak.for", 3*time.Second, "how long TestSoak runs; from 40s on it also wants everything flat")

// soakWarm is how long it takes until what comes and goes has begun to go: a host
// lane is forgotten after ten idle seconds.
const soakWarm = 15 * time.Second

// TestSoak keeps a scheduler busy over loopback, with everything on and names that
// come and go, and watches what could grow: heap, goroutines, file descriptors
// and every table.
func TestSoak(t *testing.T) {
	s := newSoak(t)
	defer s.close()
	ctx, cancel := context.WithTimeout(context.Background(), *soakFor)
	defer cancel()
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for ctx.Err() == nil {
				s.call(ctx)
			}
		})
	}
	for every := max(*soakFor/40, 50*time.Millisecond); chaosSleep(ctx, every) == nil; {
		s.sample()
	}
	all.Wait()
	t.Log(s.table())
	for _, g := range s.gauges {
		if *soakFor >= 40*time.Second {
			g.flat(t)
		}
	}
}

// soak is the scheduler, its server and what has been measured of it.
type soak struct {
	s      *Scheduler
	srv    *httptest.Server
	start  time.Time
	gauges []*soakGauge
}

// soakGauge is one thing that must not grow.
type soakGauge struct {
	name   string
	slack  float64 // what it may swing by, whatever its size
	read   func() int
	at     []float64 // seconds
	values []float64
}

func newSoak(t *testing.T) *soak {
	k := &soak{start: time.Now()}
	k.srv = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = chaosSleep(r.Context(), time.Duration(rand.IntN(3))*time.Millisecond)
		if rand.IntN(50) == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = io.WriteString(w, strings.Repeat("soak ", rand.IntN(2000)))
	}))
	s, err := New(k.srv.Client(), Config{
		MaxConcurrent: 12, Dedupe: &Dedupe{Window: 200 * time.Millisecond, MaxEntries: 100}, MaxBodyBytes: 8000,
		Retry: &Retry{BaseDelay: time.Millisecond}, Breaker: &Breaker{MaxAge: 2 * time.Second}, AttemptTimeout: time.Second,
		Fallback: &Fallback{Stale: time.Second}, Owners: &Budget{MaxConcurrent: 4},
		Hosts: &Lane{Rate: []Rate{{Limit: 500, Burst: 50}}}, OnEvent: func(Event) {},
	})
	require.NoError(t, err)
	k.s = s
	locked := func(read func() int) func() int {
		return func() int {
			s.mu.Lock()
			defer s.mu.Unlock()
			return read()
		}
	}
	k.gauges = []*soakGauge{
		{name: "heap KiB", slack: 4096, read: soakHeap}, // some 16 bytes a task in a minute: pools, caches, garbage afloat
		{name: "goroutines", slack: 40, read: runtime.NumGoroutine},
		{name: "fds", slack: 30, read: soakFDs},
		{name: "lanes", slack: 20, read: locked(func() int { return s.lanes.len() })},
		{name: "owners", slack: 20, read: locked(func() int { return s.owners.len() })},
		{name: "flights", slack: 20, read: locked(func() int { return s.flights.len() + s.byURL.sets.len() })},
		{name: "window", slack: 100, read: locked(func() int { return s.window.entries.len() })},
		{name: "stale", slack: 200, read: locked(func() int { return s.stale.entries.len() })},
		{name: "cooling", slack: 60, read: locked(func() int { return s.cooling.len() })},
		{name: "names+tags", slack: 20, read: locked(func() int { return len(s.names) + s.tags.sets.len() })},
		{name: "watched", slack: 20, read: locked(func() int { return s.watches.len() })},
		{name: "alarms", slack: 300, read: locked(func() int { return s.alarms.len() })},
	}
	return k
}

func soakHeap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc >> 10)
}

// soakFDs counts open files, 0 where the system does not tell.
func soakFDs() int {
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(files)
}

// call is one request. Lanes, owners and names are of a set that moves on with
// time, so that old ones must leave for the tables to stay as they are.
func (k *soak) call(ctx context.Context) {
	since := int(time.Since(k.start) / (200 * time.Millisecond))
	name := since + rand.IntN(30)
	if rand.IntN(4) == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(rand.IntN(4000))*time.Microsecond)
		defer cancel()
	}
	r := Request{
		URL: fmt.Sprintf("%s/%d", k.srv.URL, name*10+rand.IntN(10)), Lane: fmt.Sprintf("h%d.test", name),
		Priority: Priority(rand.IntN(4) - 1), Stream: rand.IntN(10) == 0, NoDedupe: rand.IntN(2) == 0,
	}
	switch rand.IntN(8) {
	case 0:
		r.Owner = fmt.Sprint("owner", name)
	case 1:
		r.Tags = []string{fmt.Sprint("tag", name)}
	case 2:
		r.Supersede = fmt.Sprint("name", name)
	case 3:
		r.Cooldown = 50 * time.Millisecond
	case 4:
		k.s.CancelTag(fmt.Sprint("tag", name))
	case 5:
		r.Method, r.Body = http.MethodPut, []byte("x")
	}
	resp, err := k.s.Send(ctx, r)
	if err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
}

// sample reads every gauge once.
func (k *soak) sample() {
	for _, g := range k.gauges {
		g.at = append(g.at, time.Since(k.start).Seconds())
		g.values = append(g.values, float64(g.read()))
	}
}

// fit is the mean after the warm-up, how far values swing around the straight
// line through them, and how much that line rises in all.
func (g *soakGauge) fit() (mean, noise, rise float64) {
	var from float64
	if *soakFor > 2*soakWarm {
		from = soakWarm.Seconds()
	}
	var n, x, y, xx, xy float64
	for i, at := range g.at {
		if at >= from {
			n, x, y, xx, xy = n+1, x+at, y+g.values[i], xx+at*at, xy+at*g.values[i]
		}
	}
	if n < 3 {
		return y / max(n, 1), 0, 0
	}
	slope := (n*xy - x*y) / (n*xx - x*x)
	base := (y - slope*x) / n
	for i, at := range g.at {
		if at >= from {
			off := g.values[i] - base - slope*at
			noise += off * off
		}
	}
	return y / n, math.Sqrt(noise / n), slope * (g.at[len(g.at)-1] - from)
}

// flat: what rises over the whole time by more than its noise and its slack grows.
func (g *soakGauge) flat(t *testing.T) {
	mean, noise, rise := g.fit()
	require.LessOrEqual(t, rise, max(3*noise, g.slack, mean/10), "%s grows", g.name)
}

func (k *soak) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v, %d tasks\n%-12s %10s %10s %10s %10s %10s\n", time.Since(k.start).Round(time.Second), k.s.Stats().Submitted,
		"", "first", "last", "mean", "noise", "rise")
	for _, g := range k.gauges {
		mean, noise, rise := g.fit()
		fmt.Fprintf(&b, "%-12s %10.0f %10.0f %10.1f %10.1f %10.1f\n", g.name, g.values[0], g.values[len(g.values)-1], mean, noise, rise)
	}
	return b.String()
}

// close ends all; then nothing may be left.
func (k *soak) close() {
	k.s.Close()
	k.srv.Close()
}
