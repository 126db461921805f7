package ax

import (
	"context"
	"net/http"
)

// Scheduler is the gate.
type Scheduler struct{}

func New(client *http.Client, cfg Config) (*Scheduler, error)               { panic("skeleton") }
func (s *Scheduler) Do(ctx context.Context, t *Task) (*Response, error)     { panic("skeleton") }
func (s *Scheduler) Send(ctx context.Context, r Request) (*Response, error) { panic("skeleton") }
func (s *Scheduler) Get(ctx context.Context, url string) (*Response, error) { panic("skeleton") }
func (s *Scheduler) Submit(ctx context.Context, t *Task) *Call              { panic("skeleton") }
func (s *Scheduler) Transport() http.RoundTripper                           { panic("skeleton") }
func (s *Scheduler) TransportWith(h Hints) http.RoundTripper                { panic("skeleton") }
func (s *Scheduler) Scope(ctx context.Context) *Scope                       { panic("skeleton") }
func (s *Scheduler) CancelTag(tag string) int                               { panic("skeleton") }
func (s *Scheduler) Pause(lane string) error                                { panic("skeleton") }
func (s *Scheduler) Resume(lane string) error                               { panic("skeleton") }
func (s *Scheduler) SetLimits(lane string, l Limits) error                  { panic("skeleton") }
func (s *Scheduler) SetBudget(owner string, b Budget) error                 { panic("skeleton") }
func (s *Scheduler) ForceBreaker(lane string, mode BreakerMode) error       { panic("skeleton") }
func (s *Scheduler) Invalidate(key string)                                  { panic("skeleton") }
func (s *Scheduler) Stats() Stats                                           { panic("skeleton") }
func (s *Scheduler) Advice() []Advice                                       { panic("skeleton") }
func (s *Scheduler) Shutdown(ctx context.Context) error                     { panic("skeleton") }
func (s *Scheduler) Close() error                                           { panic("skeleton") }

// BreakerMode is for ForceBreaker.
type BreakerMode int

// Modes of a breaker.
const (
	BreakerAuto BreakerMode = iota
	BreakerForceOpen
	BreakerForceClosed
)

// Call is a submitted task.
type Call struct{}

func (c *Call) Done() <-chan struct{}      { panic("skeleton") }
func (c *Call) Result() (*Response, error) { panic("skeleton") }
func (c *Call) Cancel()                    { panic("skeleton") }
func (c *Call) Discard()                   { panic("skeleton") }
func (c *Call) Seq() uint64                { panic("skeleton") }

// Scope binds tasks to a lifetime.
type Scope struct{}

func (s *Scope) Do(ctx context.Context, t *Task) (*Response, error)     { panic("skeleton") }
func (s *Scope) Send(ctx context.Context, r Request) (*Response, error) { panic("skeleton") }
func (s *Scope) Submit(ctx context.Context, t *Task) *Call              { panic("skeleton") }
func (s *Scope) Cancel(cause error) int                                 { panic("skeleton") }
func (s *Scope) Scope(ctx context.Context) *Scope                       { panic("skeleton") }

// Run schedules a call that is not HTTP.
func Run[T any](ctx context.Context, s *Scheduler, t *Task, fn func(ctx context.Context) (T, error)) (T, error) {
	panic("skeleton")
}

// ScopeHandler gives every incoming request a scope.
func ScopeHandler(s *Scheduler, next http.Handler) http.Handler { panic("skeleton") }

// ContextScope finds the scope of a request.
func ContextScope(ctx context.Context) *Scope { panic("skeleton") }
