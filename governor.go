package ax

import (
	"context"
	"time"
)

// Governor decides limits shared by many processes.
type Governor interface {
	Acquire(ctx context.Context, a Ask) (Grant, error)
}

// Ask is what a Governor is asked.
type Ask struct {
	Lane, Owner string
	Rank        time.Time
	Priority    Priority
	Seq         uint64
}

// Grant is what a Governor answers.
type Grant struct {
	RetryIn time.Duration
	Release func()
	Lost    <-chan struct{}
}

// Pauser is what a Governor may also be.
type Pauser interface {
	PauseUntil(lane string, until time.Time)
}
