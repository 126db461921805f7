package bench

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/axsched/ax"
)

const keyBytes metric = "B/lane or owner"

const (
	axOneLabel    = "ax, one lane"
	axLanesLabel  = "ax, a lane each"
	axOwnersLabel = "ax, an owner each"
)

// multitude is i: as many hosts, or owners, as a crawler or a large tenant base
// has.
func multitude(e effort) experiment {
	n := e.size(10_000)
	one := func(label, how string, begin func() (call, func())) contestant {
		return &crowd{label: label, notes: how, keys: n, slice: e.slice(150 * time.Millisecond), begin: begin}
	}
	return experiment{
		id:      "i",
		title:   "Many lanes and owners",
		about:   fmt.Sprintf("The calls of a1 by 64 callers, each going through %d hosts (or owners) in turn, every one with its own gate, rate, breaker and retries. Memory is what is kept for each once all have been seen. There is no mark: nobody else manages them, the maps are hand-written.", n),
		columns: []metric{nsPerCall, cpuPerCall, allocs, keyBytes}, rounds: e.rounds(10), fresh: true,
		groups: []group{{fmt.Sprintf("%d", n), []contestant{
			one(axOneLabel, "all tasks to one host, nobody's budget", func() (call, func()) { return axCrowd(n, same("http://api.test/"), same("")) }),
			one(axLanesLabel, "as many hosts, Hosts as a template of gate, rate and breaker", func() (call, func()) { return axCrowd(n, numbered("http://h%d.test/"), same("")) }),
			one(axOwnersLabel, "one host, as many owners, Owners as a template of gate and rate", func() (call, func()) { return axCrowd(n, same("http://api.test/"), numbered("owner %d")) }),
			one(handLabel, "a sync.Map of the stacks of a1", func() (call, func()) { return handCrowd(n) }),
			one(failsafeLabel, "a sync.Map of the executors of a1", func() (call, func()) { return failsafeCrowd(n) }),
		}}},
	}
}

// crowd is a contestant: a fresh gate, all keys once, then a load over them. A
// caller's number given to the call is that of the key.
type crowd struct {
	label, notes string
	keys         int
	slice        time.Duration
	begin        func() (call, func())
	each         int // as found in the first round
}

func (c *crowd) name() string { return c.label }
func (c *crowd) how() string  { return c.notes }
func (c *crowd) close()       {}

// crowdCallers are those of a load.
const crowdCallers = 64

func (c *crowd) measure() (reading, error) {
	do, stop := c.begin()
	defer stop()
	before := weigh()
	for key := range c.keys {
		if err := do(key); err != nil {
			return nil, err
		}
	}
	after := weigh()
	next := make([]struct {
		key int
		_   [7]int // a cache line each
	}, crowdCallers)
	l := &load{callers: crowdCallers, slice: c.slice, each: c.each, call: func(caller int) error {
		at := &next[caller]
		at.key++
		return do((caller*c.keys/crowdCallers + at.key) % c.keys)
	}}
	r, err := l.measure()
	if err != nil {
		return nil, err
	}
	c.each = l.each
	r[keyBytes] = (float64(after.HeapAlloc) - float64(before.HeapAlloc)) / float64(c.keys)
	return r, nil
}

// axCrowd is a scheduler whose key-th task goes to that host and owner.
func axCrowd(keys int, url, owner func(i int) string) (call, func()) {
	cfg := axConfig(job{work: noop(), slots: wideGate})
	cfg.Hosts = &ax.Lane{MaxConcurrent: crowdCallers, Rate: cfg.Rate}
	if owner(0) != "" {
		cfg.Owners = &ax.Budget{MaxConcurrent: crowdCallers, Rate: cfg.Rate}
	}
	cfg.Rate = nil
	s := axNew(cfg)
	tasks := make([]*ax.Task, keys)
	for i := range tasks {
		tasks[i] = ax.Must(ax.Request{URL: url(i), Owner: owner(i)}.Task())
	}
	ctx, cancel := context.WithCancel(context.Background())
	return func(key int) error {
		_, err := s.Do(ctx, tasks[key])
		return err
	}, func() { cancel(); axClose(s) }
}

func same(name string) func(int) string { return func(int) string { return name } }

func numbered(format string) func(int) string {
	return func(i int) string { return fmt.Sprintf(format, i) }
}

// perKey makes a stack for each key when it is first seen.
func perKey(keys int, build func() func(context.Context) error) (call, func()) {
	var stacks sync.Map
	names := callerKeys(keys)
	ctx, cancel := context.WithCancel(context.Background())
	return func(key int) error {
		do, ok := stacks.Load(names[key])
		if !ok {
			do, _ = stacks.LoadOrStore(names[key], build())
		}
		return do.(func(context.Context) error)(ctx)
	}, cancel
}

func handCrowd(keys int) (call, func()) {
	return perKey(keys, func() func(context.Context) error {
		h := newHandStack(job{work: noop(), slots: crowdCallers})
		return func(ctx context.Context) error { _, err := h.do(ctx); return err }
	})
}

func failsafeCrowd(keys int) (call, func()) {
	return perKey(keys, func() func(context.Context) error {
		return failsafeDo(job{work: noop(), slots: crowdCallers})
	})
}
