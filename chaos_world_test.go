package ax

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"time"
)

// chaosWorld is everything beyond the gate: servers that misbehave, and the truth
// about what has reached them, which the scheduler's own books are compared with.
type chaosWorld struct {
	s       *Scheduler
	exec    Executor
	lanes   func(host string) string
	hedged  bool          // two attempts of one flight may be under way
	governs bool          // a Governor decides when a grant counts
	asking  time.Duration // how long that may take: between the token and the start

	mu      sync.Mutex
	rnd     *rand.Rand
	sick    map[string]float64 // share of failures, by host
	wires   map[*attempt]*chaosWire
	truth   map[string]*chaosTruth // by scope: "", "lane x", "owner y"
	nested  int                    // attempts inside others
	arrived int
	faults  []string
}

// chaosWire is one attempt as its server sees it, to the end of the body.
type chaosWire struct {
	w           *chaosWorld
	at          *attempt
	ctx         context.Context
	lane, owner string
	url         string
	begun       instant // of this request
	since       instant // of what the attempt holds of the lane: earlier after a hop within it
	keep        bool    // a redirect within its lane: the slot stays taken
}

// chaosTruth is what has reached the servers within one scope.
type chaosTruth struct {
	active, limit, ceiling int // 0 = no limit; the ceiling sinks to a lowered limit as attempts end
	starts                 []instant
	quotas                 []chaosQuota // those in force, the last since its moment
	bucket                 int          // size of a token bucket of chaosBurstRate; 0 = none
	failed                 instant      // begin of the latest attempt that ended in a failure
	why                    string       // which, and how
	pauseFrom, pauseUntil  instant
	held                   instant // Pause; never = not
}

// chaosNarrow is a rate with a second window beside it, so narrow that all its starts
// may be on their way to the executor at once.
func chaosNarrow(perSecond int) []Rate {
	return append(PerSecond(perSecond), Rate{Limit: chaosNarrowLimit, Per: chaosNarrowPer})
}

const (
	chaosNarrowLane  = "lane a"
	chaosNarrowLimit = 2
	chaosNarrowPer   = 30 * time.Millisecond
)

// chaosBurstRate is the tokens a second of the one lane with a bucket.
const chaosBurstRate = 50

type chaosQuota struct {
	since instant
	limit int
}

var errChaosReset = errors.New("connection reset by chaos")

func newChaosWorld(seed uint64) *chaosWorld {
	w := &chaosWorld{
		rnd: rand.New(rand.NewPCG(seed, 7)), sick: map[string]float64{},
		wires: map[*attempt]*chaosWire{}, truth: map[string]*chaosTruth{},
	}
	w.exec = HTTPExecutor(&http.Client{Transport: w})
	return w
}

// scope is the truth about one scope; w.mu is held.
func (w *chaosWorld) scope(name string) *chaosTruth {
	t := w.truth[name]
	if t == nil {
		t = &chaosTruth{failed: -1, pauseFrom: -1, held: never}
		w.truth[name] = t
	}
	return t
}

// wrong notes a broken promise.
func (w *chaosWorld) wrong(format string, args ...any) {
	if len(w.faults) < 10 {
		w.faults = append(w.faults, fmt.Sprintf("at %v: ", time.Duration(w.s.now()))+fmt.Sprintf(format, args...))
	}
}

func (w *chaosWorld) broken() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.faults
}

// Execute is the executor under the scheduler: the real one, and the end of what
// it left open.
func (w *chaosWorld) Execute(ctx context.Context, t *Task) (resp *http.Response, err error) {
	at := ctx.Value(attemptKey{}).(*attempt)
	ok := false
	defer func() {
		if !ok || err != nil {
			w.leave(at)
		}
	}()
	resp, err = w.exec.Execute(ctx, t)
	ok = true
	return resp, err
}

// RoundTrip is one request that has reached a server.
func (w *chaosWorld) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		_, _ = io.Copy(io.Discard, req.Body)
		req.Body.Close()
	}
	wire := w.enter(req)
	ok := false
	defer func() {
		if !ok {
			w.leave(wire.at)
		}
	}()
	resp, err := w.answer(req, wire)
	if err != nil {
		w.note(wire, true, err.Error())
		return nil, err
	}
	ok = true
	resp.Request = req
	return resp, nil
}

// enter books an arrival and asks whether it should have come. It takes the
// scheduler's mutex before its own, as everybody does here.
func (w *chaosWorld) enter(req *http.Request) *chaosWire {
	at := req.Context().Value(attemptKey{}).(*attempt)
	s := w.s
	s.mu.Lock()
	defer s.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	lane := w.lanes(req.URL.Host)
	old := w.wires[at]
	stays := old != nil
	wire := &chaosWire{w: w, at: at, ctx: req.Context(), lane: lane, url: req.URL.String(), begun: s.now()}
	if at.hold.owner != nil {
		wire.owner = at.hold.owner.name
	}
	if at.hold.lane == nil || at.hold.lane.name != lane {
		w.wrong("a request to lane %s whose attempt holds none of it", lane)
	}
	if stays && old.lane != lane {
		w.wrong("a hop from %s to %s kept its slot", old.lane, lane)
	}
	if stays {
		wire.since = old.since
	} else {
		wire.since = wire.begun
	}
	w.arrived++
	w.wires[at] = wire
	w.checkRates(wire)
	if at.outer() != nil {
		if !stays {
			w.nested++
		}
		return wire
	}
	if !at.hold.slot {
		w.wrong("an outermost attempt without a slot in %s", lane)
	}
	if !stays {
		w.checkGates(wire)
		w.checkTurn(wire)
	}
	return wire
}

func (wire *chaosWire) scopes() []string {
	return []string{"", "lane " + wire.lane, "owner " + wire.owner}
}

// checkRates: no half-open window of a second holds more starts than the largest
// limit in force within it.
func (w *chaosWorld) checkRates(wire *chaosWire) {
	now := wire.begun
	for _, name := range wire.scopes() {
		t := w.scope(name)
		if b := t.bucket; b > 0 {
			for i, at := range t.starts {
				if n := len(t.starts) + 1 - i; float64(n) > float64(b)+chaosBurstRate*(now.sub(at)+w.asking).Seconds()+0.001 {
					w.wrong("scope %q: %d starts since %v from a bucket of %d", name, n, time.Duration(at), b)
				}
			}
		}
		t.starts = append(t.starts, now)
		if limit := t.mostAllowed(now); limit > 0 && len(t.starts) > limit {
			if first := t.starts[len(t.starts)-1-limit]; now.sub(first) < time.Second {
				w.wrong("scope %q: %d starts since %v, limit %d", name, limit+1, time.Duration(first), limit)
			}
		}
		if first := len(t.starts) - 1 - chaosNarrowLimit; name == chaosNarrowLane && first >= 0 && now.sub(t.starts[first]) < chaosNarrowPer {
			w.wrong("scope %q: %d starts since %v, limit %d", name, chaosNarrowLimit+1, time.Duration(t.starts[first]), chaosNarrowLimit)
		}
		for len(t.starts) > 0 && now.sub(t.starts[0]) >= 2*time.Second {
			t.starts = t.starts[1:]
		}
	}
}

// mostAllowed is the largest quota in force within the last second, 0 = none.
func (t *chaosTruth) mostAllowed(now instant) int {
	most := 0
	for i := len(t.quotas) - 1; i >= 0; i-- {
		most = max(most, t.quotas[i].limit)
		if now.sub(t.quotas[i].since) >= time.Second {
			break
		}
	}
	return most
}

// checkGates counts an outermost attempt and compares with the limits.
func (w *chaosWorld) checkGates(wire *chaosWire) {
	for _, name := range wire.scopes() {
		t := w.scope(name)
		t.active++
		if t.ceiling > 0 && t.active > t.ceiling {
			w.wrong("scope %q: %d in flight, limit %d", name, t.active, t.ceiling)
		}
	}
}

// leave ends an attempt's stay, once.
func (w *chaosWorld) leave(at *attempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	wire := w.wires[at]
	if wire == nil {
		return
	}
	delete(w.wires, at)
	if at.outer() != nil {
		w.nested--
		return
	}
	for _, name := range wire.scopes() {
		t := w.scope(name)
		t.active--
		if t.ceiling > t.limit && !w.governs { // which may have been asked for a slot before
			t.ceiling = max(t.limit, t.active)
		}
	}
}

// note remembers an outcome that the breaker must have counted.
func (w *chaosWorld) note(wire *chaosWire, failed bool, what string) {
	if !failed || wire.ctx.Err() != nil || wire.at.outer() != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.scope("lane " + wire.lane)
	if wire.since >= t.failed {
		t.failed, t.why = wire.since, fmt.Sprintf("attempt %d of %s at %v, %s", wire.at.n, wire.url, time.Duration(w.s.now()), what)
	}
}

// draw is n of the world's dice.
func (w *chaosWorld) draw(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rnd.IntN(n)
}

func chaosSleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// answer is what the server does, by the weather of its host and by chance.
func (w *chaosWorld) answer(req *http.Request, wire *chaosWire) (*http.Response, error) {
	host := req.URL.Host
	w.mu.Lock()
	sick := w.rnd.Float64() < w.sick[host]
	kind, took := w.rnd.IntN(100), time.Duration(1_000_000+w.rnd.IntN(60_000_000)) // no two things at one moment
	w.mu.Unlock()
	if strings.HasPrefix(req.URL.Path, "/nest") && wire.at.rare().depth < 3 {
		w.nest(req)
	}
	if kind == 99 && chaosWith("deaf") { // deaf: it answers when it likes
		time.Sleep(20 * took)
	} else if err := chaosSleep(req.Context(), took); err != nil {
		return nil, err
	}
	if sick {
		return w.failure(req, wire, kind)
	}
	switch {
	case kind < 2:
		return w.respond(wire, 429, "slow down", "Retry-After", w.retryAfter()), nil
	case kind < 4:
		return w.respond(wire, 404, "none"), nil
	case kind < 8 && req.Method == http.MethodGet && chaosWith("redirect"):
		to := []string{"free.test", "a.test", "b.test", "h1.test", host}[w.draw(5)]
		r := w.respond(wire, 302, "elsewhere", "Location", "http://"+to+"/landed")
		wire.keep = !wire.at.single && w.lanes(to) == wire.lane
		return r, nil
	case kind < 10: // more than is buffered
		return w.respond(wire, 200, strings.Repeat("flood ", 2000)), nil
	case kind < 12:
		r := w.respond(wire, 200, "a slow one")
		r.Body.(*chaosBody).gap = 30 * time.Millisecond
		return r, nil
	case kind < 13 && chaosWith("panic") && wire.at.outer() == nil:
		panic(errChaosPanic)
	case kind < 14 && chaosWith("goexit") && w.draw(4) == 0:
		runtime.Goexit()
	}
	return w.respond(wire, 200, "fine"), nil
}

var errChaosPanic = errors.New("chaos panics")

// failure is an answer of a sick server.
func (w *chaosWorld) failure(req *http.Request, wire *chaosWire, kind int) (*http.Response, error) {
	switch {
	case kind < 30:
		return w.respond(wire, 500, "broken"), nil
	case kind < 40:
		return w.respond(wire, 503, "later", "Retry-After", w.retryAfter()), nil
	case kind < 55:
		return nil, errChaosReset
	case kind < 70:
		r := w.respond(wire, 200, "cut off in the mid")
		r.Body.(*chaosBody).end = io.ErrUnexpectedEOF
		return r, nil
	case kind < 80: // it hangs
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	return w.respond(wire, 502, strings.Repeat("gateway ", 1000)), nil
}

// retryAfter tells the truth, or lies.
func (w *chaosWorld) retryAfter() string {
	return []string{"1", "1", "2", "0", "-5", "soon", "1000000000", time.Now().Add(2 * time.Second).UTC().Format(http.TimeFormat)}[w.draw(8)]
}

// nest calls the scheduler from within an attempt.
func (w *chaosWorld) nest(req *http.Request) {
	host := []string{"free.test", "a.test", req.URL.Host}[w.draw(3)]
	t := Must(Request{URL: "http://" + host + "/inner", NoDedupe: w.draw(2) == 0, NoRetry: w.draw(2) == 0}.Task())
	resp, err := w.s.Do(req.Context(), t)
	if err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
}

func (w *chaosWorld) respond(wire *chaosWire, status int, body string, header ...string) *http.Response {
	r := &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{},
		ContentLength: int64(len(body)),
	}
	if len(header) > 0 {
		r.Header.Set(header[0], header[1])
	}
	r.Body = &chaosBody{wire: wire, rest: body, status: status, wait: r.Header.Get("Retry-After")}
	return r
}
