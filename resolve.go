package ax

import (
	"cmp"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"time"
)

// What a zero field means.
const (
	defaultMaxConcurrent = 64
	defaultMaxQueue      = 1024
	defaultAgingStep     = 6 * time.Second
	defaultMaxBodyBytes  = 4 << 20

	defaultDedupeEntries = 10_000
	defaultDedupeBytes   = 64 << 20

	defaultRetryMax    = 2
	defaultBaseDelay   = 200 * time.Millisecond
	defaultMaxDelay    = 30 * time.Second
	defaultRetryBudget = 0.2

	defaultBreakerWindow = 10
	defaultBreakerMaxAge = time.Minute
	defaultFailureRate   = 0.3
	defaultOpenFor       = 3 * time.Second
	defaultProbes        = 1
	defaultRamp          = 3 * time.Second

	defaultPer = time.Second
)

// resolved is a deep copy of a valid c in which every default is spelled out
// and NoTimeout has become the 0 that means none, so that the scheduler reads
// values and never asks what zero meant. Functions, the Logger, the Executor,
// the Governor and Fallback.Alternate (a Task is immutable) are shared.
func (c Config) resolved() Config {
	c.MaxConcurrent = cmp.Or(c.MaxConcurrent, defaultMaxConcurrent)
	c.MaxQueue = cmp.Or(c.MaxQueue, defaultMaxQueue)
	c.Rate = cloneRates(c.Rate)
	c.AttemptTimeout = timeLimit(c.AttemptTimeout)
	c.IdleTimeout = timeLimit(c.IdleTimeout)
	c.QueueTimeout = timeLimit(c.QueueTimeout)
	c.MinRemaining = timeLimit(c.MinRemaining)
	c.AgingStep = cmp.Or(c.AgingStep, defaultAgingStep)
	c.MaxBodyBytes = cmp.Or(c.MaxBodyBytes, defaultMaxBodyBytes)
	c.Dedupe = resolve(c.Dedupe)
	c.Retry = resolve(c.Retry)
	c.Breaker = resolve(c.Breaker)
	c.Fallback = clonePtr(c.Fallback)
	c.Hedge = clonePtr(c.Hedge)
	c.Lanes = slices.Clone(c.Lanes)
	for i, l := range c.Lanes {
		c.Lanes[i] = l.resolved()
	}
	c.Hosts = resolve(c.Hosts)
	c.Budgets = maps.Clone(c.Budgets)
	for owner, b := range c.Budgets {
		c.Budgets[owner] = b.resolved()
	}
	c.Owners = resolve(c.Owners)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// resolved is a deep copy of l with its name and the defaults of what it has;
// what it inherits stays zero, see lanePolicy.
func (l Lane) resolved() Lane {
	l.Name = l.name()
	l.Match = slices.Clone(l.Match)
	l.MaxConcurrent = ownLimit(l.MaxConcurrent)
	l.MaxQueue = ownLimit(l.MaxQueue)
	l.Rate = cloneRates(l.Rate)
	l.Retry = resolve(l.Retry)
	l.Breaker = resolve(l.Breaker)
	l.Fallback = clonePtr(l.Fallback)
	l.Hedge = clonePtr(l.Hedge)
	return l
}

// name is l's Name, or the first pattern of a lane without one.
func (l Lane) name() string {
	if l.Name == "" && len(l.Match) > 0 {
		return l.Match[0]
	}
	return l.Name
}

func (d Dedupe) resolved() Dedupe {
	d.MaxEntries = cmp.Or(d.MaxEntries, defaultDedupeEntries)
	d.MaxBytes = cmp.Or(d.MaxBytes, defaultDedupeBytes)
	d.IgnoreHeaders = slices.Clone(d.IgnoreHeaders)
	for i, h := range d.IgnoreHeaders {
		d.IgnoreHeaders[i] = http.CanonicalHeaderKey(h)
	}
	return d
}

func (r Retry) resolved() Retry {
	r.Max = cmp.Or(r.Max, defaultRetryMax)
	r.MaxDelay = cmp.Or(r.MaxDelay, defaultMaxDelay)
	r.BaseDelay = cmp.Or(r.BaseDelay, min(defaultBaseDelay, r.MaxDelay))
	r.Budget = cmp.Or(r.Budget, defaultRetryBudget)
	return r
}

func (b Breaker) resolved() Breaker {
	b.Window = cmp.Or(b.Window, defaultBreakerWindow)
	b.MinCalls = cmp.Or(b.MinCalls, b.Window)
	b.MaxAge = cmp.Or(b.MaxAge, defaultBreakerMaxAge)
	b.FailureRate = cmp.Or(b.FailureRate, defaultFailureRate)
	b.OpenFor = cmp.Or(b.OpenFor, defaultOpenFor)
	b.Probes = cmp.Or(b.Probes, defaultProbes)
	b.Ramp = cmp.Or(b.Ramp, defaultRamp)
	return b
}

func (b Budget) resolved() Budget {
	b.Rate = cloneRates(b.Rate)
	b.MaxConcurrent = ownLimit(b.MaxConcurrent)
	b.MaxQueue = ownLimit(b.MaxQueue)
	return b
}

// resolved is a copy of l with the defaults of its rates. Zero, nil and NoLimit
// stay as they are: what they mean depends on what is in force.
func (l Limits) resolved() Limits {
	l.Rate = cloneRates(l.Rate)
	return l
}

func (r Rate) resolved() Rate {
	r.Per = cmp.Or(r.Per, defaultPer)
	return r
}

// cloneRates is a copy of rs with defaults spelled out. nil stays nil and empty
// stays empty: in Limits one keeps and the other lifts.
func cloneRates(rs []Rate) []Rate {
	rs = slices.Clone(rs)
	for i, r := range rs {
		rs[i] = r.resolved()
	}
	return rs
}

// timeLimit is d with NoTimeout as the 0 that means none.
func timeLimit(d time.Duration) time.Duration {
	if d == NoTimeout {
		return 0
	}
	return d
}

// ownLimit is n, the limit of a lane or owner, with NoLimit as the 0 that means
// that it has none of its own.
func ownLimit(n int) int {
	if n == NoLimit {
		return 0
	}
	return n
}

// clonePtr is a pointer to a copy of what p points to, nil for nil.
func clonePtr[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

// resolve is a pointer to the resolved copy of what p points to, nil for nil.
func resolve[T interface{ resolved() T }](p *T) *T {
	if p == nil {
		return nil
	}
	v := (*p).resolved()
	return &v
}

// lanePolicy is what holds in one lane once inheritance is settled. A zero
// duration or number means none, a nil policy is off. It shares the immutable
// policies of the Config that it came from.
type lanePolicy struct {
	attemptTimeout, idleTimeout, queueTimeout, minRemaining time.Duration
	agingStep                                               time.Duration
	retry                                                   *Retry
	breaker                                                 *Breaker
	fallback                                                *Fallback
	hedge                                                   *Hedge
	maxConcurrent, maxQueue                                 int // of the lane itself; 0 = only the scheduler's
	rate                                                    []Rate
}

// lanePolicy settles what lane l of the resolved c inherits. A nil l is a host's
// lane without a template.
func (c *Config) lanePolicy(l *Lane) lanePolicy {
	if l == nil {
		l = &Lane{}
	}
	return lanePolicy{
		attemptTimeout: timeLimit(cmp.Or(l.AttemptTimeout, c.AttemptTimeout)),
		idleTimeout:    timeLimit(cmp.Or(l.IdleTimeout, c.IdleTimeout)),
		queueTimeout:   timeLimit(cmp.Or(l.QueueTimeout, c.QueueTimeout)),
		minRemaining:   timeLimit(cmp.Or(l.MinRemaining, c.MinRemaining)),
		agingStep:      cmp.Or(l.AgingStep, c.AgingStep),
		retry:          inherit(l.Retry, c.Retry, l.NoRetry),
		breaker:        inherit(l.Breaker, c.Breaker, l.NoBreaker),
		fallback:       inherit(l.Fallback, c.Fallback, l.NoFallback),
		hedge:          hedging(cmp.Or(l.Hedge, c.Hedge)),
		maxConcurrent:  l.MaxConcurrent,
		maxQueue:       l.MaxQueue,
		rate:           l.Rate,
	}
}

// inherit is the policy of a lane: its own, else the scheduler's, nil if it is
// switched off.
func inherit[T any](own, inherited *T, off bool) *T {
	if off {
		return nil
	}
	return cmp.Or(own, inherited)
}

// hedging is h, or nil if it waits for ever and so never hedges.
func hedging(h *Hedge) *Hedge {
	if h != nil && h.After == NoTimeout {
		return nil
	}
	return h
}
