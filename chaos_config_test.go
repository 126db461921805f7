package ax

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"
)

// config is a scheduler with everything on, or some of it.
func (d *chaos) config() Config {
	odds := func(n int) bool { return d.rnd.IntN(n) == 0 }
	cfg := Config{
		MaxConcurrent: 8 + d.rnd.IntN(8), MaxQueue: 60, Rate: PerSecond(300),
		AttemptTimeout: 500 * time.Millisecond, IdleTimeout: time.Second, MaxBodyBytes: 8 << 10,
		AgingStep: time.Second,
		Dedupe:    &Dedupe{Window: time.Duration(d.rnd.IntN(2)) * 100 * time.Millisecond, MaxEntries: 8},
		Retry:     &Retry{Max: 3, BaseDelay: 50 * time.Millisecond, MaxDelay: 3 * time.Second, Budget: 0.5},
		Breaker:   &Breaker{Window: 10, MinCalls: 5, OpenFor: 300 * time.Millisecond, Ramp: 500 * time.Millisecond, Probes: 1 + d.rnd.IntN(2)},
		Lanes: []Lane{
			{Name: "a", Match: []string{"a.test"}, MaxConcurrent: 4, MaxQueue: 20, Rate: chaosNarrow(60)},
			{Name: "b", Match: []string{"b.test"}, MaxConcurrent: 3},
			{Name: "free", Match: []string{"free.test"}, NoBreaker: true},
			{Name: "burst", Match: []string{"burst.test"}, MaxConcurrent: 4, Rate: []Rate{{Limit: chaosBurstRate, Burst: 5}}},
		},
		Hosts:   &Lane{MaxConcurrent: 3, Rate: PerSecond(50)},
		Budgets: map[string]Budget{"paul": {MaxConcurrent: 3, Rate: PerSecond(40), MaxQueue: 20, Over: OverAction(d.rnd.IntN(3))}},
		Owners:  &Budget{MaxConcurrent: 2},
		OnEvent: d.onEvent, Executor: d.w,
	}
	if odds(3) {
		cfg.Overflow = OverflowEvict
	}
	if odds(3) {
		cfg.QueueTimeout = 300 * time.Millisecond
	}
	if odds(4) {
		cfg.StrictPriority, cfg.AgingStep = true, 0
	}
	if odds(2) && chaosWith("swift") { // tasks may go without the mutex
		cfg.Rate, d.swift = nil, true
		if odds(2) {
			cfg.OnEvent = nil
		}
		if odds(2) {
			cfg.Dedupe = nil
		}
		return cfg
	}
	if odds(4) && chaosWith("hedge") {
		cfg.Hedge = &Hedge{After: 40 * time.Millisecond}
	}
	if odds(4) && chaosWith("governor") {
		cfg.Governor = &chaosGovernor{rnd: rand.New(rand.NewPCG(d.rnd.Uint64(), 3))}
	}
	if odds(3) {
		cfg.Rate = nil // one may come while it runs
	}
	if odds(2) {
		cfg.Breaker.WhenOpen = OpenReject
	}
	if odds(2) && chaosWith("fallback") {
		cfg.Fallback = &Fallback{Stale: time.Second, Static: func(context.Context, *Task, error) (*http.Response, error) {
			return &http.Response{StatusCode: 203}, nil
		}}
	}
	return cfg
}

// host is where a task goes: mostly where others go too.
func (d *chaos) host() string {
	return []string{"a.test", "a.test", "b.test", "free.test", "burst.test", "h0.test", "h1.test", fmt.Sprintf("h%d.test", d.rnd.IntN(10))}[d.rnd.IntN(8)]
}

// request is any request.
func (d *chaos) request() Request {
	odds := func(n int) bool { return d.rnd.IntN(n) == 0 }
	r := Request{
		URL: fmt.Sprintf("http://%s/%d", d.host(), d.rnd.IntN(40)), Priority: Priority(d.rnd.IntN(5) - 1),
		Owner:  []string{"", "", "paul", fmt.Sprintf("o%d", d.rnd.IntN(5))}[d.rnd.IntN(4)],
		NoWait: odds(20), NoRetry: odds(10), Stream: odds(15), NoDedupe: odds(3),
	}
	if d.swift && odds(2) {
		return Request{URL: r.URL, NoDedupe: true}
	}
	if odds(12) && chaosWith("nest") {
		r.URL = strings.Replace(r.URL, "test/", "test/nest/", 1)
	}
	if odds(5) {
		r.Method, r.Body = http.MethodPost, []byte("body")
		if odds(2) && !r.NoDedupe {
			r.DedupeKey = fmt.Sprint("write", d.rnd.IntN(5))
		} else if odds(2) {
			r.IdempotencyKey = "once"
		}
	}
	if odds(6) {
		r.Tags = []string{fmt.Sprint("tag", d.rnd.IntN(4)), "all"}
	}
	if odds(8) {
		r.Supersede = fmt.Sprint("name", d.rnd.IntN(3))
	}
	if odds(10) {
		r.QueueTimeout = time.Duration(1+d.rnd.IntN(400)) * time.Millisecond
	}
	if odds(8) {
		r.AttemptTimeout = time.Duration(20+d.rnd.IntN(600)) * time.Millisecond
	}
	if odds(20) {
		r.Cooldown = 100 * time.Millisecond
	}
	if odds(25) && chaosWith("fallback") {
		r.Fallback = &Fallback{Alternate: Must(Request{URL: "http://" + d.host() + "/alternate"}.Task())}
	} else if odds(4) {
		r.NoFallback = true
	}
	return r
}
