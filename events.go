package ax

import (
	"context"
	"time"
)

// EventKind tells what happened.
type EventKind int

// Kinds of events.
const (
	EventSubmitted EventKind = iota
	EventCoalesced
	EventWindowHit
	EventQueued
	EventStarted
	EventAttemptDone
	EventRetryScheduled
	EventBreakerOpened
	EventBreakerHalfOpen
	EventBreakerClosed
	EventLanePaused
	EventLaneResumed
	EventOverBudget
	EventFellBack
	EventSucceeded
	EventFailed
	EventCanceled
	EventRejected
	EventBreakerRamping
)

// Event is one thing that happened.
type Event struct {
	Kind                EventKind
	Time                time.Time
	Context             context.Context
	Seq                 uint64
	Task                *Task
	Lane, Owner         string
	Attempt             int
	Waited, Took, Delay time.Duration
	Status              int
	Source              Source
	Err                 error
}
