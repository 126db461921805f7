package ax

import (
	"context"
	"time"
)

// Governor applies limits that many processes share, such as one quota for a
// whole fleet. It is asked last, when all local limits have already allowed a
// start, so a busy process asks no more often than it could start.
//
// It is asked for each attempt of a task, retries and hedges included. It is not
// asked for an attempt nested in another, made with that one's ctx, nor for a
// redirect hop of Do or Send within a lane, which keeps what the attempt holds; a
// hop into another lane asks again. Through Transport() every hop is a task of its
// own. Package axredis has one.
type Governor interface {
	// Acquire asks for one start. It runs outside every lock on a goroutine of
	// the scheduler, with the scheduler's own ctx, one call for each reserved
	// slot, several at the same time. It must return when ctx ends.
	//
	// The ask describes the best task at that moment. The grant then starts
	// whichever task of the lane is best by that time; if none is left it is
	// released unused. An error, like a refusal, gives the local slot and its
	// tokens back, and the lane asks again a little later. Whether an outage
	// of the shared store opens or closes the gate is the Governor's choice.
	Acquire(ctx context.Context, a Ask) (Grant, error)
}

// Ask describes the task for which a Governor is asked.
type Ask struct {
	// Lane is the name of its lane.
	Lane string
	// Owner is whose budget pays, "" = nobody's.
	Owner string
	// Rank orders tasks of all processes: the earlier goes first. It may lie
	// in the future. Processes' clocks differ: compare time.Until(Rank) on the
	// clock of the shared store.
	Rank time.Time
	// Priority breaks a tie of ranks: the higher goes first.
	Priority Priority
	// Seq breaks the tie after that, within this process.
	Seq uint64
}

// Grant is a Governor's answer. The zero Grant allows the start and needs no
// release.
type Grant struct {
	// RetryIn above 0 refuses: nothing was taken, ask again after this. Some
	// jitter is added. 0 = granted.
	RetryIn time.Duration
	// Release is called once when the attempt has ended, or at once if nothing
	// is left to start; from any goroutine. It must not wait long. nil =
	// nothing to release.
	Release func()
	// Lost is closed when the grant can no longer be held: the attempt is then
	// cancelled with [ErrGrantLost]. nil = never.
	Lost <-chan struct{}
	// StartBy is how long the grant is good for a start: one that comes later,
	// perhaps since this process got no processor time, is released unused and
	// asked for again. The zero Time = as long as it is held.
	StartBy time.Time
}

// Pauser is what a [Governor] may also be: told when a server pauses a lane here,
// by Retry-After or by what it says of a quota, or when the lane's breaker opens,
// so that it may pause it everywhere.
type Pauser interface {
	// PauseUntil says that nothing should start in lane before until. It runs
	// outside every lock and must not wait long.
	PauseUntil(lane string, until time.Time)
}
