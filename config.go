package ax

import (
	"context"
	"log/slog"
	"math"
	"net/http"
	"time"
)

// Config configures a Scheduler.
type Config struct {
	MaxConcurrent  int
	MaxQueue       int
	Rate           []Rate
	AttemptTimeout time.Duration
	IdleTimeout    time.Duration
	QueueTimeout   time.Duration
	MinRemaining   time.Duration
	AgingStep      time.Duration
	StrictPriority bool
	MaxBodyBytes   int64
	Overflow       Overflow
	Dedupe         *Dedupe
	Retry          *Retry
	Breaker        *Breaker
	Fallback       *Fallback
	Hedge          *Hedge
	Lanes          []Lane
	Hosts          *Lane
	Budgets        map[string]Budget
	Owners         *Budget
	DryRun         bool
	OnEvent        func(Event)
	Logger         *slog.Logger
	Heartbeat      time.Duration
	Executor       Executor
	Governor       Governor
}

// NoLimit is for MaxConcurrent and MaxQueue.
const NoLimit = math.MaxInt

// NoTimeout is for where 0 would inherit.
const NoTimeout time.Duration = math.MaxInt64

// Limits is for SetLimits.
type Limits struct {
	MaxConcurrent, MaxQueue int
	Rate                    []Rate
}

// Rate limits starts.
type Rate struct {
	Limit  int
	Per    time.Duration
	Burst  int
	Smooth bool
	Guard  time.Duration
}

// Lane configures one lane.
type Lane struct {
	Name                                                               string
	Match                                                              []string
	MaxConcurrent, MaxQueue                                            int
	Rate                                                               []Rate
	AttemptTimeout, IdleTimeout, QueueTimeout, MinRemaining, AgingStep time.Duration
	Retry                                                              *Retry
	Breaker                                                            *Breaker
	Fallback                                                           *Fallback
	Hedge                                                              *Hedge
	NoRetry, NoBreaker, NoFallback                                     bool
}

// Dedupe configures sharing.
type Dedupe struct {
	Window        time.Duration
	MaxEntries    int
	MaxBytes      int64
	IgnoreHeaders []string
}

// Retry is a retry policy.
type Retry struct {
	Max       int
	BaseDelay time.Duration
	MaxDelay  time.Duration
	Jitter    Jitter
	Budget    float64
	Unsafe    bool
	If        func(Outcome) bool
}

// Breaker is a circuit breaker policy.
type Breaker struct {
	Window      int
	MinCalls    int
	MaxAge      time.Duration
	FailureRate float64
	SlowCall    time.Duration
	OpenFor     time.Duration
	Probes      int
	Ramp        time.Duration
	WhenOpen    OpenAction
	IsFailure   func(Outcome) bool
}

// Outcome is that of one attempt.
type Outcome struct {
	Task     *Task
	Attempt  int
	Response *http.Response
	Err      error
	Took     time.Duration
}

// Budget limits one owner.
type Budget struct {
	Rate                    []Rate
	Over                    OverAction
	MaxConcurrent, MaxQueue int
}

// Fallback answers when a task has failed.
type Fallback struct {
	Alternate *Task
	Stale     time.Duration
	Static    func(ctx context.Context, t *Task, cause error) (*http.Response, error)
}

// Hedge sends a second attempt of a slow idempotent task.
type Hedge struct {
	After time.Duration // 0 = the lane's measured p95
}

// Overflow says what happens when a queue is full.
type Overflow int

// What a full queue does.
const (
	OverflowReject Overflow = iota
	OverflowEvict
)

// Jitter spreads retry delays.
type Jitter int

// Kinds of jitter.
const (
	FullJitter Jitter = iota
	EqualJitter
	NoJitter
)

// OpenAction says what an open breaker does to tasks.
type OpenAction int

// What an open breaker does.
const (
	OpenHold OpenAction = iota
	OpenReject
)

// OverAction says what happens to tasks over their owner's budget.
type OverAction int

// What an exhausted budget does.
const (
	OverQueue OverAction = iota
	OverFallback
	OverReject
)

// PerSecond is one exact rate of n starts a second.
func PerSecond(n int) []Rate { return []Rate{{Limit: n, Per: time.Second}} }

// PerMinute is one exact rate of n starts a minute.
func PerMinute(n int) []Rate { return []Rate{{Limit: n, Per: time.Minute}} }

// Unlimited lifts a rate.
func Unlimited() []Rate { return []Rate{} }

// Recommended is a good first Config.
func Recommended() Config {
	return Config{Dedupe: &Dedupe{}, Retry: &Retry{}, Breaker: &Breaker{}, Hosts: &Lane{MaxConcurrent: 6}}
}
