package bench

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/axsched/ax"
	"golang.org/x/sync/semaphore"
)

const (
	peakMiB     metric = "peak heap and stacks, MiB"
	peakRoutine metric = "peak goroutines"
	socketsLeft metric = "sockets 0.25 s after"
	tasksLeft   metric = "request goroutines 0.25 s after"
	socketsFor  metric = "s until at most 2 sockets"
	doomed      metric = "doomed starts"
	answeredPct metric = "answered, %"
)

const (
	plainAbandon   = "ctx of each caller"
	leavingAbandon = "callers leave, requests go on"
	semAbandon     = "x/sync semaphore of 256"
	axOpenAbandon  = "ax, no gate"
	axGateAbandon  = "ax, gate of 256"
	axMinAbandon   = "ax, gate of 256, MinRemaining 50 ms"
)

const (
	abandonGate  = 256
	minRemaining = 50 * time.Millisecond
	// doomedBelow is how little time a start may have left before it is no use:
	// hardly a round trip to a busy server.
	doomedBelow = 10 * time.Millisecond
)

// abandonment is h: callers give up long before the server answers.
func abandonment(e effort) experiment {
	n := e.size(10_000)
	label := fmt.Sprintf("%d callers", n)
	g := group{label: label}
	patience := 2 * time.Second
	if e.quick {
		patience /= 4
	}
	shared := &sharedServer{}
	for _, w := range []struct{ name, how string }{
		{plainAbandon, "http.Client, each request with the context of its caller"},
		{leavingAbandon, "the caller stops waiting, nobody stops the request"},
		{semAbandon, "as the first, behind a semaphore"},
		{axOpenAbandon, "Do, MaxConcurrent NoLimit"},
		{axGateAbandon, "Do, MaxConcurrent 256"},
		{axMinAbandon, "the same with MinRemaining"},
	} {
		shared.users++
		g.contestants = append(g.contestants, &abandoned{server: shared, label: w.name, notes: w.how, callers: n, patience: patience})
	}
	it := func(name string, m metric) contender { return contender{label, name, m} }
	x := experiment{
		id:    "h",
		title: "Abandoned requests",
		about: fmt.Sprintf("%d callers at once, each with %v of patience; the server takes 0 to 2.5 times that. The client is a process of its own. After means after the last caller's time was up. A start is doomed if its caller has less than %v left. A request goroutine is any that was not there before, less two for each connection that is kept.",
			n, patience, doomedBelow),
		short:   shortAbandoned,
		columns: []metric{peakMiB, peakRoutine, socketsLeft, tasksLeft, socketsFor, doomed, answeredPct}, rounds: e.rounds(3), fresh: true,
		groups: []group{g},
	}
	for _, name := range []string{axOpenAbandon, axGateAbandon, axMinAbandon} {
		x.marks = append(x.marks, atMost(2, it(name, socketsLeft)), atMost(0, it(name, tasksLeft)))
	}
	x.marks = append(x.marks, ratioAtMost(0.3, it(axGateAbandon, peakMiB), plainAbandon), atMost(10, it(axMinAbandon, doomed)))
	return x
}

// abandoned is a contestant: it measures in a fresh process.
type abandoned struct {
	server       *sharedServer
	label, notes string
	callers      int
	patience     time.Duration
}

func (a *abandoned) name() string { return a.label }
func (a *abandoned) how() string  { return a.notes }
func (a *abandoned) close()       { a.server.release() }

func (a *abandoned) measure() (reading, error) {
	if err := a.server.start(); err != nil {
		return nil, err
	}
	return measureInChild("abandoned", abandonedArg{a.label, a.server.url, a.callers, a.patience})
}

type abandonedArg struct {
	Name, URL string
	Callers   int
	Patience  time.Duration
}

// measureAbandoned is the child's part.
func measureAbandoned(a abandonedArg) (reading, error) {
	rt := &doomTransport{RoundTripper: http.DefaultTransport.(*http.Transport).Clone()}
	send, stop := abandoners(&http.Client{Transport: rt})[a.Name]()
	defer stop()
	before := runtime.NumGoroutine()
	peak := watchPeaks()
	var answered atomic.Int64
	var all sync.WaitGroup
	end := time.Now().Add(a.Patience)
	slowest := int(a.Patience.Milliseconds()) * 5 / 2
	for i := range a.Callers {
		all.Go(func() {
			ctx, cancel := context.WithDeadline(context.Background(), end)
			defer cancel()
			url := fmt.Sprintf("%s/?ms=%d", a.URL, i*7919%slowest)
			if send(ctx, url) == nil {
				answered.Add(1)
			}
		})
	}
	all.Wait()
	last := time.Now()
	time.Sleep(250 * time.Millisecond)
	left := openSockets()
	r := peak.stop()
	r[socketsLeft] = float64(left)
	r[tasksLeft] = float64(max(0, runtime.NumGoroutine()-before-2*left))
	r[doomed] = float64(rt.doomed.Load())
	r[answeredPct] = 100 * float64(answered.Load()) / float64(a.Callers)
	for openSockets() > 2 && time.Since(last) < 5*a.Patience {
		time.Sleep(50 * time.Millisecond)
	}
	r[socketsFor] = time.Since(last).Seconds()
	return r, nil
}

// doomTransport counts the requests that are sent too late.
type doomTransport struct {
	http.RoundTripper
	doomed atomic.Int64
}

func (t *doomTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if end, ok := req.Context().Deadline(); ok && time.Until(end) < doomedBelow {
		t.doomed.Add(1)
	}
	return t.RoundTripper.RoundTrip(req)
}

// abandoners has, by name, how a caller sends.
func abandoners(c *http.Client) map[string]func() (func(ctx context.Context, url string) error, func()) {
	plain := func(ctx context.Context, url string) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		return drain(c.Do(req))
	}
	none := func() {}
	type sender = func(ctx context.Context, url string) error
	return map[string]func() (func(ctx context.Context, url string) error, func()){
		plainAbandon:   func() (sender, func()) { return plain, none },
		leavingAbandon: func() (sender, func()) { return leaving(plain), none },
		semAbandon:     func() (sender, func()) { return gated(plain), none },
		axOpenAbandon:  func() (sender, func()) { return axAbandoner(c, ax.Config{MaxConcurrent: ax.NoLimit}) },
		axGateAbandon:  func() (sender, func()) { return axAbandoner(c, ax.Config{MaxConcurrent: abandonGate}) },
		axMinAbandon: func() (sender, func()) {
			return axAbandoner(c, ax.Config{MaxConcurrent: abandonGate, MinRemaining: minRemaining})
		},
	}
}

// leaving has the caller go while its request stays.
func leaving(send func(ctx context.Context, url string) error) func(ctx context.Context, url string) error {
	return func(ctx context.Context, url string) error {
		done := make(chan error, 1)
		go func() { done <- send(context.WithoutCancel(ctx), url) }() // ends when the server answers
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func gated(send func(ctx context.Context, url string) error) func(ctx context.Context, url string) error {
	gate := semaphore.NewWeighted(abandonGate)
	return func(ctx context.Context, url string) error {
		if err := gate.Acquire(ctx, 1); err != nil {
			return err
		}
		defer gate.Release(1)
		return send(ctx, url)
	}
}

func axAbandoner(c *http.Client, cfg ax.Config) (func(ctx context.Context, url string) error, func()) {
	cfg.MaxQueue = ax.NoLimit
	s, err := ax.New(c, cfg)
	if err != nil {
		panic(err) // the configurations are constants
	}
	return func(ctx context.Context, url string) error {
		_, err := s.Get(ctx, url)
		return err
	}, func() { axClose(s) }
}

// openSockets counts this process's; 0 where the system does not tell.
func openSockets() int {
	const dir = "/proc/self/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0
	}
	n := 0
	for _, e := range entries {
		if to, err := os.Readlink(dir + "/" + e.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

// peaks watches the process until it is stopped.
type peaks struct {
	bytes    uint64
	routines int
	quit     chan struct{}
	done     chan struct{}
}

func watchPeaks() *peaks {
	p := &peaks{quit: make(chan struct{}), done: make(chan struct{})}
	go func() { // until stop
		defer close(p.done)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			p.bytes = max(p.bytes, memoryInUse())
			p.routines = max(p.routines, runtime.NumGoroutine())
			select {
			case <-tick.C:
			case <-p.quit:
				return
			}
		}
	}()
	return p
}

func (p *peaks) stop() reading {
	close(p.quit)
	<-p.done
	return reading{peakMiB: float64(p.bytes) / (1 << 20), peakRoutine: float64(p.routines)}
}

// memoryInUse is the heap in use, garbage included, and the stacks.
func memoryInUse() uint64 {
	s := []metrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/memory/classes/heap/stacks:bytes"},
	}
	metrics.Read(s)
	return s[0].Value.Uint64() + s[1].Value.Uint64() + s[2].Value.Uint64()
}
