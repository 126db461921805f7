package axredis

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/axsched/ax"
)

// Config says what a fleet may do together. Every process of it gives the same
// Config: limits that differ are counted apart (see the package documentation).
type Config struct {
	// Prefix begins every key. Fleets that share a Redis and must not share
	// limits have different ones. It must not contain braces. "" = "ax".
	Prefix string
	// Lanes are the limits of all processes together, by the name of the lane;
	// "" stands for all lanes together, each of which it bounds besides its own.
	// In a limit 0, nil and [ax.NoLimit] mean none; MaxQueue must be 0, for a
	// queue belongs to one process. An entry without limits shares the lane's
	// pauses alone. A lane that neither has an entry nor finds one for "" is
	// granted at once, without asking Redis. The map is copied.
	Lanes map[string]ax.Limits
	// LeaseTTL is how long a slot outlives a holder that no longer renews it:
	// the slots of a process that crashed come back within it. At least three
	// times Timeout. 0 = 10s.
	LeaseTTL time.Duration
	// Timeout bounds one call to Redis, and what an outage adds to one Acquire.
	// It should be many times the usual round trip, and longer than the pauses of
	// a busy machine. A first call also connects, with three to six round trips:
	// where they do not fit, the process begins with a short outage, in which a
	// probe that has longer connects for it. 0 = 50ms.
	Timeout time.Duration
	// Outage says what happens while Redis does not answer. 0 = [FailLocal].
	Outage Outage
	// Logger is told when Redis is lost and found, and of processes with other
	// limits. nil = discard.
	Logger *slog.Logger
}

// Outage says how starts are decided while Redis does not answer. The limits of
// the scheduler itself hold in any case.
type Outage int

const (
	// FailLocal applies the limits of Config.Lanes to this process, as if it
	// were the fleet: n processes then start up to n times as much.
	FailLocal Outage = iota
	// FailOpen lets everything start.
	FailOpen
	// FailClosed lets nothing start; queued tasks wait for Redis.
	FailClosed
)

// String is the constant's name.
func (o Outage) String() string {
	switch o {
	case FailLocal:
		return "FailLocal"
	case FailOpen:
		return "FailOpen"
	case FailClosed:
		return "FailClosed"
	}
	return "Outage(" + strconv.Itoa(int(o)) + ")"
}

// longest is the longest time that the script is asked to count: a year.
const longest = 365 * 24 * time.Hour

// faults collects what is wrong with a Config.
type faults []error

func (f *faults) add(path, format string, args ...any) {
	*f = append(*f, fmt.Errorf("axredis: %s %s", path, fmt.Sprintf(format, args...)))
}

// validate reports everything that is wrong with c, joined, each fault by the
// path of its field. Defaults are in place.
func (c Config) validate() error {
	var f faults
	if strings.ContainsAny(c.Prefix, "{}") {
		f.add("Config.Prefix", "is %q; want one without braces, which mark the slot of a key", c.Prefix)
	}
	if c.Timeout < 0 {
		f.add("Config.Timeout", "is %v; want more than 0, or 0 for 50ms", c.Timeout)
	}
	if c.LeaseTTL < 0 || c.LeaseTTL > longest {
		f.add("Config.LeaseTTL", "is %v; want more than 0 and at most %v, or 0 for 10s", c.LeaseTTL, longest)
	} else if c.Timeout > 0 && c.LeaseTTL < 3*c.Timeout {
		f.add("Config.LeaseTTL", "is %v; want at least three times Timeout, %v: a lease is renewed at a third of it",
			c.LeaseTTL, 3*c.Timeout)
	}
	if c.Outage < FailLocal || c.Outage > FailClosed {
		f.add("Config.Outage", "is %d; want FailLocal, FailOpen or FailClosed", int(c.Outage))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Lanes)) {
		f.limits("Config.Lanes["+strconv.Quote(name)+"]", c.Lanes[name])
	}
	return errors.Join(f...)
}

// limits checks what one scope may do.
func (f *faults) limits(path string, l ax.Limits) {
	if l.MaxConcurrent < 0 {
		f.add(path+".MaxConcurrent", "is %d; want 1 or more, or 0 for none", l.MaxConcurrent)
	}
	if l.MaxQueue != 0 {
		f.add(path+".MaxQueue", "is %d; want 0: a queue belongs to one process, bound it in ax.Config", l.MaxQueue)
	}
	for i, r := range l.Rate {
		f.rate(path+".Rate["+strconv.Itoa(i)+"]", r)
	}
}

// rate checks one rate, as ax.New does.
func (f *faults) rate(path string, r ax.Rate) {
	if r.Limit < 1 {
		f.add(path+".Limit", "is %d; want 1 or more; for no limit leave the rate out", r.Limit)
	}
	if r.Per < 0 || r.Per > longest {
		f.add(path+".Per", "is %v; want more than 0 and at most %v, or 0 for 1s", r.Per, longest)
	}
	if r.Burst < 0 {
		f.add(path+".Burst", "is %d; want 1 or more for a bucket, or 0 for an exact window", r.Burst)
	}
	if r.Guard < 0 || r.Guard > longest {
		f.add(path+".Guard", "is %v; want 0 for none, or at most %v", r.Guard, longest)
	}
	if r.Burst > 0 && r.Smooth {
		f.add(path+".Smooth", "is set beside Burst; a bucket of 1 is already smooth")
	}
	if r.Burst > 0 && r.Guard > 0 {
		f.add(path+".Guard", "is set beside Burst; only a window has one")
	}
}

// withDefaults is c with its zero fields spelled out.
func (c Config) withDefaults() Config {
	if c.Prefix == "" {
		c.Prefix = "ax"
	}
	if c.LeaseTTL == 0 {
		c.LeaseTTL = 10 * time.Second
	}
	if c.Timeout == 0 {
		c.Timeout = 50 * time.Millisecond
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}
