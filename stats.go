package ax

import "time"

// Stats is a snapshot.
type Stats struct {
	Active, Queued, Parked                              int
	Submitted, Succeeded, Failed, Canceled, Rejected    uint64
	Attempts, Retries, Coalesced, WindowHits, Fallbacks uint64
	DedupeEntries                                       int
	DedupeBytes                                         int64
	Lanes                                               map[string]LaneStats
	Owners                                              map[string]OwnerStats
	Would                                               WouldStats
}

// LaneStats is one lane's.
type LaneStats struct {
	Active, Queued, Parked int
	Breaker                BreakerState
	Paused                 bool
	PausedUntil            time.Time
	MaxConcurrent          int
	Attempts, Failures     uint64
	Wait, Service          Quantiles
	Would                  WouldStats
}

// Quantiles of a duration.
type Quantiles struct{ P50, P95, P99 time.Duration }

// OwnerStats is one owner's.
type OwnerStats struct {
	Active, Queued int
	Started, Over  uint64
	Would          WouldStats
}

// WouldStats is what DryRun would have done.
type WouldStats struct {
	Queued, Rejected, Superseded, Cooled, Held uint64
	Wait                                       Quantiles
}

// BreakerState is a breaker's.
type BreakerState int

// States of a breaker.
const (
	BreakerClosed BreakerState = iota
	BreakerOpen
	BreakerHalfOpen
	BreakerRamping
)

// Advice is one suggestion.
type Advice struct {
	Lane, Field        string
	Current, Suggested any
	Why                string
}
