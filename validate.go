package ax

import (
	"cmp"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
)

// validate reports everything that is wrong with c, joined, each fault by the
// path of its field.
func (c Config) validate() error {
	var f configFaults
	const at = "Config"
	notNegative(&f, at, "MaxConcurrent", c.MaxConcurrent, "want 1 or more, ax.NoLimit, or 0 for 64")
	notNegative(&f, at, "MaxQueue", c.MaxQueue, "want 1 or more, ax.NoLimit, or 0 for 1024")
	f.rates(at, c.Rate)
	notNegative(&f, at, "AttemptTimeout", c.AttemptTimeout, "want 0 for none, or more")
	notNegative(&f, at, "IdleTimeout", c.IdleTimeout, "want 0 for none, or more")
	notNegative(&f, at, "QueueTimeout", c.QueueTimeout, "want 0 for none, or more")
	notNegative(&f, at, "MinRemaining", c.MinRemaining, "want 0 for any, or more")
	notNegative(&f, at, "AgingStep", c.AgingStep, "want more than 0, or 0 for 6s; StrictPriority turns aging off")
	notNegative(&f, at, "MaxBodyBytes", c.MaxBodyBytes, "want 1 or more bytes, or 0 for 4 MiB")
	enum(&f, at, "Overflow", c.Overflow, OverflowEvict, "ax.OverflowReject or ax.OverflowEvict")
	notNegative(&f, at, "Heartbeat", c.Heartbeat, "want 0 for none, or more")
	if e, ok := c.Executor.(ExecutorFunc); ok && e == nil {
		f.add(dot(at, "Executor"), "is a nil ExecutorFunc; leave it nil for HTTP")
	}
	f = append(f, c.Dedupe.validate(dot(at, "Dedupe"))...)
	f = append(f, c.Retry.validate(dot(at, "Retry"))...)
	f = append(f, c.Breaker.validate(dot(at, "Breaker"))...)
	f = append(f, c.Fallback.validate(dot(at, "Fallback"))...)
	f = append(f, c.Hedge.validate(dot(at, "Hedge"))...)
	f = append(f, validateLanes(at, &c)...)
	for _, owner := range slices.Sorted(maps.Keys(c.Budgets)) {
		path := dot(at, "Budgets["+strconv.Quote(owner)+"]")
		if owner == "" {
			f.add(path, "names no owner; tasks without an Owner have no budget")
		}
		f = append(f, c.Budgets[owner].validate(path)...)
	}
	if c.Owners != nil {
		f = append(f, c.Owners.validate(dot(at, "Owners"))...)
	}
	return invalid(f)
}

// errClientAndExecutor is New's answer to a client that nothing would use.
var errClientAndExecutor = invalid([]error{&fieldError{"Config.Executor",
	"is set beside a client; pass a nil client, or wrap ax.HTTPExecutor(client) in the Executor"}})

// validate reports what is wrong with l, its fields spelled below path.
func (l Limits) validate(path string) []error {
	var f configFaults
	notNegative(&f, path, "MaxConcurrent", l.MaxConcurrent, "want 1 or more, ax.NoLimit, or 0 to keep it")
	notNegative(&f, path, "MaxQueue", l.MaxQueue, "want 1 or more, ax.NoLimit, or 0 to keep it")
	f.rates(path, l.Rate)
	return f
}

// validate reports what is wrong with b, its fields spelled below path.
func (b Budget) validate(path string) []error {
	var f configFaults
	f.rates(path, b.Rate)
	enum(&f, path, "Over", b.Over, OverReject, "ax.OverQueue, ax.OverFallback or ax.OverReject")
	notNegative(&f, path, "MaxConcurrent", b.MaxConcurrent, "want 1 or more, or 0 for no limit")
	notNegative(&f, path, "MaxQueue", b.MaxQueue, "want 1 or more, or 0 for no limit")
	return f
}

// validate reports what is wrong with d, its fields spelled below path.
func (d *Dedupe) validate(path string) []error {
	if d == nil {
		return nil
	}
	var f configFaults
	notNegative(&f, path, "Window", d.Window, "want 0 to share in flight only, or more")
	notNegative(&f, path, "MaxEntries", d.MaxEntries, "want 1 or more, or 0 for 10,000")
	notNegative(&f, path, "MaxBytes", d.MaxBytes, "want 1 or more bytes, or 0 for 64 MiB")
	for i, h := range d.IgnoreHeaders {
		at := dot(path, elem("IgnoreHeaders", i))
		switch http.CanonicalHeaderKey(h) {
		case "Authorization", "Cookie", "Proxy-Authorization":
			f.add(at, "is %q; it tells users apart, and one must never get another's answer", h)
		default:
			if !isToken(h) {
				f.add(at, "is %q; want the name of a header", h)
			}
		}
	}
	return f
}

// validate reports what is wrong with r, its fields spelled below path.
func (r *Retry) validate(path string) []error {
	if r == nil {
		return nil
	}
	var f configFaults
	notNegative(&f, path, "Max", r.Max, "want 1 or more, or 0 for 2; for no retries leave the Retry nil or set NoRetry")
	notNegative(&f, path, "BaseDelay", r.BaseDelay, "want more than 0, or 0 for 200ms")
	notNegative(&f, path, "MaxDelay", r.MaxDelay, "want more than 0, or 0 for 30s")
	if v := r.resolved(); r.MaxDelay >= 0 && v.BaseDelay > v.MaxDelay {
		f.add(dot(path, "BaseDelay"), "is %v, above MaxDelay (%v); lower it, or raise MaxDelay", v.BaseDelay, v.MaxDelay)
	}
	enum(&f, path, "Jitter", r.Jitter, NoJitter, "ax.FullJitter, ax.EqualJitter or ax.NoJitter")
	if !(r.Budget >= 0) || math.IsInf(r.Budget, 1) {
		f.add(dot(path, "Budget"), "is %v; want a share of the first attempts such as 0.1, or 0 for 0.2", r.Budget)
	}
	return f
}

// maxBreakerWindow keeps the memory of a lane's outcomes small.
const maxBreakerWindow = 1_000_000

// validate reports what is wrong with b, its fields spelled below path. Whether
// Probes fit the limits of a lane is for validateLanes, which knows them.
func (b *Breaker) validate(path string) []error {
	if b == nil {
		return nil
	}
	var f configFaults
	notNegative(&f, path, "Window", b.Window, "want 1 or more, or 0 for 10")
	if b.Window > maxBreakerWindow {
		f.add(dot(path, "Window"), "is %d; want at most %d", b.Window, maxBreakerWindow)
	}
	notNegative(&f, path, "MinCalls", b.MinCalls, "want 1 or more, or 0 for Window")
	if v := b.resolved(); b.Window >= 0 && v.MinCalls > v.Window {
		f.add(dot(path, "MinCalls"), "is %d, above Window (%d), so it would never open; lower it, or raise Window", v.MinCalls, v.Window)
	}
	notNegative(&f, path, "MaxAge", b.MaxAge, "want more than 0, or 0 for 1m")
	if !(b.FailureRate >= 0 && b.FailureRate <= 1) {
		f.add(dot(path, "FailureRate"), "is %v; want a share up to 1 such as 0.5, or 0 for 0.3", b.FailureRate)
	}
	notNegative(&f, path, "SlowCall", b.SlowCall, "want more than 0, or 0 for off")
	notNegative(&f, path, "OpenFor", b.OpenFor, "want more than 0, or 0 for 3s")
	notNegative(&f, path, "Probes", b.Probes, "want 1 or more, or 0 for 1")
	notNegative(&f, path, "Ramp", b.Ramp, "want more than 0, or 0 for 3s")
	enum(&f, path, "WhenOpen", b.WhenOpen, OpenReject, "ax.OpenHold or ax.OpenReject")
	return f
}

// validate reports what is wrong with f, its fields spelled below path.
func (f *Fallback) validate(path string) []error {
	if f == nil {
		return nil
	}
	var all configFaults
	notNegative(&all, path, "Stale", f.Stale, "want more than 0, or 0 for no stale answers")
	if f.Alternate == nil && f.Stale == 0 && f.Static == nil {
		all.add(path, "has no Alternate, Stale or Static, so it can never answer; set one, or leave the Fallback nil")
	}
	return all
}

// validate reports what is wrong with h, its fields spelled below path.
func (h *Hedge) validate(path string) []error {
	if h == nil {
		return nil
	}
	var f configFaults
	notNegative(&f, path, "After", h.After, "want more than 0, or 0 for the lane's p95")
	return f
}

// validate reports what is wrong with r, its fields spelled below path.
func (r Rate) validate(path string) []error {
	var f configFaults
	switch {
	case r.Limit < 1:
		f.add(dot(path, "Limit"), "is %d; want at least 1, or ax.Unlimited() for no rate", r.Limit)
	case r.Limit == NoLimit:
		f.add(dot(path, "Limit"), "is ax.NoLimit; use ax.Unlimited() for no rate")
	}
	notNegative(&f, path, "Per", r.Per, "want more than 0, or 0 for 1s")
	notNegative(&f, path, "Guard", r.Guard, "want 0 for none, or more")
	switch {
	case r.Per == NoTimeout:
		f.add(dot(path, "Per"), "is ax.NoTimeout, so no start would ever be allowed again; want a time such as 24h")
	case r.Per >= 0 && r.Guard > NoTimeout-cmp.Or(r.Per, defaultPer):
		f.add(dot(path, "Guard"), "is %v, too long to be added to Per; want a small part of Per", r.Guard)
	}
	notNegative(&f, path, "Burst", r.Burst, "want 1 or more for a token bucket, or 0 for an exact quota")
	if r.Burst >= 1 && r.Smooth {
		f.add(dot(path, "Smooth"), "is true beside Burst %d; a token bucket is not spaced: set one of them", r.Burst)
	}
	if r.Burst >= 1 && r.Guard > 0 {
		f.add(dot(path, "Guard"), "is %v beside Burst %d; a token bucket has no window to widen: set one of them", r.Guard, r.Burst)
	}
	return f
}
