package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/axsched/ax"
	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/cachepolicy"
	"golang.org/x/sync/singleflight"
)

const (
	upstream  metric = "sent upstream"
	cpuHerd   metric = "CPU ns/caller"
	herdTail  metric = "last caller after the answer, ms"
	herdBytes metric = "B/caller"
)

const (
	doChanLabel    = "singleflight.DoChan + ctx"
	doChanOwnLabel = "singleflight.DoChan + ctx, own response"
	cacheLabel     = "failsafe-go cache"
	nobodyLabel    = "nobody shares"
)

// herd is c: many callers come for one key while its attempt is under way.
func herd(e effort) experiment {
	n := e.size(10_000)
	up := &herdUpstream{callers: int64(n)}
	work := up.work()
	one := func(label, how string, begin func() (call, func())) contestant {
		return &stampede{label: label, notes: how, callers: n, begin: begin, up: up}
	}
	label := fmt.Sprintf("%d callers", n)
	it := contender{label, axLabel, cpuHerd}
	return experiment{
		id:      "c",
		title:   "A herd on one key",
		about:   "All callers ask for the same key at once; the answer (1 KiB) comes when all of them have joined. CPU is that of the whole process from the first call to the last answer; the tail is the time from the answer to the last caller that has it.",
		short:   shortHerd,
		columns: []metric{cpuHerd, herdTail, upstream, herdBytes}, rounds: e.rounds(15),
		groups: []group{{label, []contestant{
			one(doChanLabel, "one response for all: nobody may read its body or change its headers", func() (call, func()) { return doChanHerd(n, work, false) }),
			one(doChanOwnLabel, "the same, each caller then copies headers and makes a reader of its own over the body", func() (call, func()) { return doChanHerd(n, work, true) }),
			one(axLabel, "Do with Dedupe: a response of its own for every caller", func() (call, func()) { return axHerd(n, work) }),
			one(cacheLabel, "CachePolicy over a map under a mutex", func() (call, func()) { return cacheHerd(n, work) }),
			one(nobodyLabel, "every caller sends", func() (call, func()) { return nobodyHerd(n, work) }),
		}}},
		marks: []mark{
			atMost(1, contender{label, axLabel, upstream}),
			ratioAtMost(1.6, it, doChanLabel),
		},
	}
}

// herdTime is how long a caller may take from the call to its place in the flight.
const herdTime = 150 * time.Millisecond

// herdUpstream answers some time after the last of the callers has called.
type herdUpstream struct {
	callers  int64
	came     atomic.Int64  // callers that have called
	all      chan struct{} // closed by the last of them
	sent     atomic.Int64  // requests that it has seen
	answered atomic.Int64  // when it answered last, in Unix nanoseconds
}

// reset is for a new herd, once nobody is left of the old one.
func (u *herdUpstream) reset() {
	u.came.Store(0)
	u.sent.Store(0)
	u.all = make(chan struct{})
}

// come is a caller about to call.
func (u *herdUpstream) come() {
	if u.came.Add(1) == u.callers {
		close(u.all)
	}
}

func (u *herdUpstream) work() work {
	body := bytes.Repeat([]byte("x"), 1024)
	return func(context.Context) (*http.Response, error) {
		u.sent.Add(1)
		<-u.all
		time.Sleep(herdTime)
		header := http.Header{"Content-Type": {"text/plain"}, "Etag": {`"1"`}, "Date": {"now"}, "Cache-Control": {"max-age=60"}, "Vary": {"Accept"}}
		u.answered.Store(time.Now().UnixNano())
		return &http.Response{StatusCode: http.StatusOK, Header: header, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body))}, nil
	}
}

// stampede is a contestant: a fresh gate and all callers at once.
type stampede struct {
	label, notes string
	callers      int
	begin        func() (call, func())
	up           *herdUpstream
}

func (s *stampede) name() string { return s.label }
func (s *stampede) how() string  { return s.notes }
func (s *stampede) close()       {}

func (s *stampede) measure() (reading, error) {
	do, stop := s.begin()
	defer stop()
	s.up.reset()
	var last atomic.Int64
	l := &load{callers: s.callers, call: func(c int) error {
		s.up.come()
		err := do(c)
		for now := time.Now().UnixNano(); ; {
			old := last.Load()
			if now <= old || last.CompareAndSwap(old, now) {
				return err
			}
		}
	}}
	r, err := l.drive(1)
	if err != nil {
		return nil, err
	}
	return reading{
		cpuHerd:   r[cpuPerCall],
		herdBytes: r[allocBytes],
		herdTail:  float64(last.Load()-s.up.answered.Load()) / 1e6,
		upstream:  float64(s.up.sent.Load()),
	}, nil
}

func axHerd(callers int, w work) (call, func()) {
	s := axNew(ax.Config{
		MaxConcurrent: wideGate, MaxQueue: ax.NoLimit, Dedupe: &ax.Dedupe{},
		Executor: ax.ExecutorFunc(func(ctx context.Context, _ *ax.Task) (*http.Response, error) { return w(ctx) }),
	})
	ctxs, cancel := callerContexts(callers)
	t := axTasks(1)[0]
	return func(c int) error {
		_, err := s.Do(ctxs[c], t)
		return err
	}, func() { cancel(); axClose(s) }
}

func doChanHerd(callers int, w work, own bool) (call, func()) {
	var flights singleflight.Group
	ctxs, cancel := callerContexts(callers)
	return func(c int) error {
		ch := flights.DoChan("key", func() (any, error) {
			ctx, end := detach(ctxs[c])
			defer end()
			return readAnswer(w(ctx))
		})
		select {
		case <-ctxs[c].Done():
			return ctxs[c].Err()
		case r := <-ch:
			if r.Err == nil && own {
				_ = r.Val.(*answer).response()
			}
			return r.Err
		}
	}, cancel
}

// answer is a response that can be had many times.
type answer struct {
	resp *http.Response
	body []byte
}

func readAnswer(resp *http.Response, err error) (*answer, error) {
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(resp.Body)
	return &answer{resp, body}, errors.Join(err, resp.Body.Close())
}

// response is one that belongs to its caller.
func (a *answer) response() *http.Response {
	own := *a.resp
	own.Header = maps.Clone(a.resp.Header)
	own.Body = io.NopCloser(bytes.NewReader(a.body))
	return &own
}

func cacheHerd(callers int, w work) (call, func()) {
	policy := cachepolicy.NewBuilder[*answer](&mapCache{m: map[string]*answer{}}).WithKey("key").Build()
	x := failsafe.With[*answer](policy)
	ctxs, cancel := callerContexts(callers)
	return func(c int) error {
		_, err := x.WithContext(ctxs[c]).GetWithExecution(func(e failsafe.Execution[*answer]) (*answer, error) {
			return readAnswer(w(e.Context()))
		})
		return err
	}, cancel
}

func nobodyHerd(callers int, w work) (call, func()) {
	ctxs, cancel := callerContexts(callers)
	return func(c int) error {
		_, err := readAnswer(w(ctxs[c]))
		return err
	}, cancel
}

// mapCache is the cache that CachePolicy asks for.
type mapCache struct {
	mu sync.Mutex
	m  map[string]*answer
}

func (c *mapCache) Get(key string) (*answer, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a, ok := c.m[key]
	return a, ok
}

func (c *mapCache) Set(key string, a *answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.m[key] = a
}
