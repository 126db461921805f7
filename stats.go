package ax

import "time"

// Stats is a snapshot of a scheduler. While calls run, its gauges and counters may
// be a few attempts apart, and quantiles are read a little later than the rest; at
// rest all agree. It is a copy, free to be kept and changed. Counters count since
// New and never fall; gauges (Active, Queued, Parked) are never negative and are
// zero when all work is done.
type Stats struct {
	// Active is the number of attempts in flight.
	Active int
	// Queued is the number of tasks waiting for a slot or a token.
	Queued int
	// Parked is the number of tasks waiting for something else: the end of a
	// backoff, an owner's budget, an open breaker, a pause. They are not in
	// Queued.
	Parked int

	// Submitted counts tasks: those of the next four and the unfinished ones.
	Submitted uint64
	// Succeeded counts tasks that ended with a response, whatever its status.
	Succeeded uint64
	// Failed counts tasks that ended with an error and are in neither of the
	// next two.
	Failed uint64
	// Canceled counts tasks that their callers no longer wanted.
	Canceled uint64
	// Rejected counts tasks refused or given up before their first start.
	Rejected uint64

	// Attempts counts what was sent, retries and hedges included.
	Attempts uint64
	// Retries counts the attempts after the first of their task.
	Retries uint64
	// Coalesced counts tasks that joined a flight.
	Coalesced uint64
	// WindowHits counts tasks answered from the dedupe window.
	WindowHits uint64
	// Fallbacks counts tasks answered by a fallback.
	Fallbacks uint64

	// DedupeEntries is the number of answers kept in the dedupe window.
	DedupeEntries int
	// DedupeBytes is the size of their bodies.
	DedupeBytes int64

	// Lanes are the lanes by name. Idle host lanes are forgotten.
	Lanes map[string]LaneStats
	// Owners are the owners by name. Those that neither Config.Budgets nor SetBudget
	// names are forgotten when idle.
	Owners map[string]OwnerStats
	// Would is what limits would have done, with [Config.DryRun].
	Would WouldStats
}

// LaneStats is what one lane is doing and has done.
type LaneStats struct {
	// Active, Queued and Parked are as in Stats.
	Active, Queued, Parked int
	// Breaker is the state of its breaker; BreakerClosed without one.
	Breaker BreakerState
	// BreakerUntil is when an open breaker will probe; zero if it is not open, or
	// held open by hand.
	BreakerUntil time.Time
	// Paused tells whether it starts nothing until Resume or PausedUntil.
	Paused bool
	// PausedUntil is when the pause ends; zero = not paused, or until Resume.
	PausedUntil time.Time
	// MaxConcurrent is the limit in force now, which a ramp lowers; 0 = no
	// limit of its own.
	MaxConcurrent int
	// Attempts counts its attempts, Failures those that failed: transport
	// errors, attempt timeouts and 5xx, or what Breaker.IsFailure says where that
	// is set. Breaker.SlowCall does not count here.
	Attempts, Failures uint64
	// Wait is the time that its attempts had waited in queues, Service the
	// time they took on the wire. Both are about the latest one to two thousand,
	// older ones weighing less, and at most 3 % off.
	Wait, Service Quantiles
	// Would is this lane's part of Stats.Would.
	Would WouldStats
}

// Quantiles describe a distribution of durations; all zero without samples.
type Quantiles struct {
	// P50 is the median; one in twenty is longer than P95, one in a hundred
	// longer than P99.
	P50, P95, P99 time.Duration
}

// OwnerStats is what one owner is doing and has done.
type OwnerStats struct {
	// Active is the number of its attempts in flight, Queued that of its
	// waiting tasks.
	Active, Queued int
	// Started counts its attempts, Over the tasks that met an exhausted budget.
	Started, Over uint64
	// Would is this owner's part of Stats.Would.
	Would WouldStats
}

// WouldStats counts what would have happened to tasks without [Config.DryRun].
type WouldStats struct {
	// Queued counts tasks that would have waited for a slot or a token.
	Queued uint64
	// Rejected counts tasks that would have been refused.
	Rejected uint64
	// Superseded counts tasks that a newer one would have ended.
	Superseded uint64
	// Cooled counts tasks that a cooldown would have refused.
	Cooled uint64
	// Held counts tasks that a pause or an open breaker would have held.
	Held uint64
	// Wait is how long the Queued ones would have waited.
	Wait Quantiles
}

// BreakerState is the state of a lane's breaker.
type BreakerState int

const (
	// BreakerClosed lets everything through: the normal state.
	BreakerClosed BreakerState = iota
	// BreakerOpen lets nothing through.
	BreakerOpen
	// BreakerHalfOpen lets [Breaker.Probes] attempts through.
	BreakerHalfOpen
	// BreakerRamping lets more and more through, up to the full limits.
	BreakerRamping
)

// String is "closed", "open", "half-open" or "ramping".
func (s BreakerState) String() string {
	return enumName("BreakerState", int(s), "closed", "open", "half-open", "ramping")
}

// Advice is one suggestion of [Scheduler.Advice], drawn from what was measured.
type Advice struct {
	// Lane is the lane that it is about, "" = the scheduler.
	Lane string
	// Field is the configuration field, such as "AttemptTimeout".
	Field string
	// Current is the value in force, Suggested the better one, both of the
	// field's type.
	Current, Suggested any
	// Why gives the reason in numbers.
	Why string
}
