package ax

import (
	"errors"
	"net/http"
	"time"
)

// Sentinels.
var (
	ErrClosed              = errors.New("ax: scheduler is closed")
	ErrQueueFull           = errors.New("ax: queue is full")
	ErrQueueTimeout        = errors.New("ax: waited too long in the queue")
	ErrEvicted             = errors.New("ax: evicted from a full queue by a better-ranked task")
	ErrCircuitOpen         = errors.New("ax: circuit breaker is open")
	ErrBudget              = errors.New("ax: owner is over its budget")
	ErrRetryBudget         = errors.New("ax: retry budget is used up")
	ErrSuperseded          = errors.New("ax: superseded by a newer task")
	ErrCooldown            = errors.New("ax: same task is running or cooling down")
	ErrWouldWait           = errors.New("ax: task would have to wait")
	ErrCanceledByTag       = errors.New("ax: canceled by tag")
	ErrScopeEnded          = errors.New("ax: scope has ended")
	ErrNotReplayable       = errors.New("ax: body cannot be sent again")
	ErrWouldExceedDeadline = errors.New("ax: deadline passes before the earliest possible start")
	ErrGrantLost           = errors.New("ax: the governor's grant was lost")
)

// Error is every failure of Do and Call.
type Error struct {
	Op          string
	Method, URL string
	Lane, Owner string
	Attempts    int
	Response    *Response
	RetryAfter  time.Duration
	Err         error
}

func (e *Error) Error() string { panic("skeleton") }
func (e *Error) Unwrap() error { panic("skeleton") }
func (e *Error) Timeout() bool { panic("skeleton") }

// StatusError is an answer that is not 2xx.
type StatusError struct {
	StatusCode int
	Header     http.Header
	Body       []byte
}

func (e *StatusError) Error() string { panic("skeleton") }
