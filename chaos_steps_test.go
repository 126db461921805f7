package ax

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
)

// step is one thing that a caller, an operator or the weather does.
func (d *chaos) step() {
	switch n := d.rnd.IntN(100); {
	case n < 62:
		d.submit()
	case n < 68:
		d.cancelOne()
	case n < 70:
		d.excuse(func(c *chaosCaller) bool { return len(c.r.Tags) > 0 })
		d.s.CancelTag([]string{"tag0", "tag1", "tag2", "tag3", "all"}[d.rnd.IntN(5)])
	case n < 72:
		d.endScope()
	case n < 76 && chaosWith("limits"):
		d.setLimits()
	case n < 78 && chaosWith("limits"):
		d.setBudget()
	case n < 84:
		d.hold([]string{"", "a", "b", "free", "h0.test", "h1.test"}[d.rnd.IntN(6)], d.rnd.IntN(3) == 0)
	case n < 88:
		d.weather()
	case n < 89:
		require.NoError(d, d.s.ForceBreaker([]string{"a", "b"}[d.rnd.IntN(2)], BreakerMode(d.rnd.IntN(3))))
	case n < 91:
		require.NoError(d, d.s.ForceBreaker([]string{"a", "b"}[d.rnd.IntN(2)], BreakerAuto))
	case n < 92:
		d.s.Invalidate(d.request().DedupeKey)
	case n < 93:
		d.s.Waiting(10)
		d.s.Advice()
	case n < 94:
		time.Sleep(time.Duration(d.rnd.IntN(500)) * time.Millisecond)
	case n < 95 && d.rnd.IntN(20) == 0:
		time.Sleep(time.Duration(d.rnd.IntN(30)) * time.Second)
	default:
		d.hold([]string{"", "a", "b", "free", "h0.test", "h1.test"}[d.rnd.IntN(6)], false)
	}
}

// excuse says of some callers that they may be cancelled from now on.
func (d *chaos) excuse(whom func(*chaosCaller) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.live {
		if whom(c) {
			c.excused.Store(true)
		}
	}
}

// cancelOne ends one caller by its context or its Call.
func (d *chaos) cancelOne() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.live {
		c.excused.Store(true)
		switch {
		case c.call != nil && d.rnd.IntN(2) == 0:
			go c.call.Cancel()
		default:
			c.cancel()
		}
		return
	}
}

func (d *chaos) newScope() {
	ctx, cancel := context.WithCancel(context.Background())
	if len(d.scopes) > 0 && d.rnd.IntN(2) == 0 {
		d.scopes = append(d.scopes, d.scopes[0].Scope(ctx))
	} else {
		d.scopes = append(d.scopes, d.s.Scope(ctx))
	}
	d.stops = append(d.stops, cancel)
}

// endScope ends a scope and all in it; inner ones go with it.
func (d *chaos) endScope() {
	i := d.rnd.IntN(len(d.scopes))
	d.excuse(func(c *chaosCaller) bool { return c.scope != nil })
	if d.rnd.IntN(2) == 0 {
		d.scopes[i].Cancel(errors.New("enough"))
	}
	d.stops[i]()
	d.scopes = append(d.scopes[:i], d.scopes[i+1:]...)
	d.stops = append(d.stops[:i], d.stops[i+1:]...)
	d.newScope()
}

// believe notes limits that come into force now: a raised one before, a lowered
// one as what runs ends.
func (d *chaos) believe(scope string, l Limits) {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	t := d.w.scope(scope)
	if l.MaxConcurrent != 0 {
		t.limit = l.MaxConcurrent
		if d.w.governs {
			t.ceiling = max(t.limit, t.ceiling)
		} else {
			t.ceiling = max(t.limit, t.active)
		}
	}
	if len(l.Rate) > 0 {
		if len(t.quotas) == 0 && d.w.s.now() > 0 {
			t.quotas = append(t.quotas, chaosQuota{0, math.MaxInt})
		}
		t.quotas = append(t.quotas, chaosQuota{d.w.s.now(), l.Rate[0].Limit})
	}
}

func (d *chaos) setLimits() {
	lane := []string{"", "a", "b", "h0.test"}[d.rnd.IntN(4)]
	l := Limits{MaxConcurrent: 2 + d.rnd.IntN(6), MaxQueue: 10 + d.rnd.IntN(60)}
	if lane == "" {
		l.MaxConcurrent += 4
	}
	if lane != "b" && (lane != "" || !d.swift) && d.rnd.IntN(2) == 0 {
		l.Rate = PerSecond(20 + d.rnd.IntN(80))
	}
	switch {
	case lane == "" && l.Rate != nil:
		l.Rate[0].Limit *= 3
	case lane == "a" && l.Rate != nil:
		l.Rate = chaosNarrow(l.Rate[0].Limit)
	}
	name := "lane " + lane
	if lane == "" {
		name = ""
	}
	d.believe(name, l) // nothing moves: all that runs has arrived
	require.NoError(d, d.s.SetLimits(lane, l))
}

func (d *chaos) setBudget() {
	b := Budget{MaxConcurrent: 1 + d.rnd.IntN(4), Rate: PerSecond(10 + d.rnd.IntN(50)), MaxQueue: 5 + d.rnd.IntN(20), Over: OverAction(d.rnd.IntN(3))}
	d.believe("owner paul", Limits{MaxConcurrent: b.MaxConcurrent, Rate: b.Rate})
	require.NoError(d, d.s.SetBudget("paul", b))
}

// hold pauses or resumes a lane.
func (d *chaos) hold(lane string, held bool) {
	name := "lane " + lane
	if lane == "" {
		name = ""
	}
	act := d.s.Resume
	if held {
		act = d.s.Pause
	}
	d.w.mu.Lock()
	t := d.w.scope(name)
	if !held {
		t.held = never
	} else if t.held == never {
		t.held = d.w.s.now()
	}
	d.w.mu.Unlock()
	require.NoError(d, act(lane))
}

// weather makes a host sick or well.
func (d *chaos) weather() {
	host := d.host()
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	if d.rnd.IntN(2) == 0 {
		delete(d.w.sick, host)
	} else {
		d.w.sick[host] = d.rnd.Float64()
	}
}

// chaosAsking is the longest that chaosGovernor takes.
const chaosAsking = 10 * time.Millisecond

// chaosGovernor is a store that is slow, refuses, fails and loses grants.
type chaosGovernor struct {
	mu  sync.Mutex
	rnd *rand.Rand
}

func (g *chaosGovernor) Acquire(ctx context.Context, _ Ask) (Grant, error) {
	g.mu.Lock()
	kind, took := g.rnd.IntN(20), time.Duration(g.rnd.Int64N(int64(chaosAsking)))
	g.mu.Unlock()
	if err := chaosSleep(ctx, took); err != nil {
		return Grant{}, err
	}
	switch {
	case kind < 2:
		return Grant{}, fmt.Errorf("the store is away")
	case kind < 4:
		return Grant{RetryIn: time.Duration(kind+1) * 10 * time.Millisecond}, nil
	case kind < 5:
		lost := make(chan struct{})
		time.AfterFunc(5*time.Millisecond, func() { close(lost) })
		return Grant{Lost: lost}, nil
	}
	return Grant{Release: func() {}}, nil
}
