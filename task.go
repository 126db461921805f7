package ax

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"time"
)

// Priority orders tasks.
type Priority int

// Named levels.
const (
	Low Priority = iota - 1
	Normal
	Important
	Urgent
)

// Request describes a task.
type Request struct {
	Method                                  string
	URL                                     string
	Query                                   url.Values
	Header                                  http.Header
	Body                                    []byte
	JSON                                    any
	GetBody                                 func() (io.ReadCloser, error)
	ContentLength                           int64
	Priority                                Priority
	Lane                                    string
	Owner                                   string
	Tags                                    []string
	AttemptTimeout, QueueTimeout, AgingStep time.Duration
	Retry                                   *Retry
	NoRetry                                 bool
	NoWait                                  bool
	IdempotencyKey                          string
	DedupeKey                               string
	Dedupe                                  bool
	NoDedupe                                bool
	DedupeWindow                            time.Duration
	Supersede                               string
	Cooldown                                time.Duration
	Fallback                                *Fallback
	NoFallback                              bool
	Hedge                                   *Hedge
	Stream                                  bool
	Prepare                                 func(*http.Request) error
}

// Task is immutable.
type Task struct {
	r Request
}

func (r Request) Task() (*Task, error)                                { panic("skeleton") }
func Must(t *Task, err error) *Task                                   { panic("skeleton") }
func TaskFrom(req *http.Request, r Request) (*Task, error)            { panic("skeleton") }
func (t *Task) Key() string                                           { panic("skeleton") }
func (t *Task) Method() string                                        { panic("skeleton") }
func (t *Task) URL() string                                           { panic("skeleton") }
func (t *Task) Request() Request                                      { panic("skeleton") }
func (t *Task) NewRequest(ctx context.Context) (*http.Request, error) { panic("skeleton") }
func (t *Task) MarshalJSON() ([]byte, error)                          { panic("skeleton") }
func (t *Task) UnmarshalJSON(b []byte) error                          { panic("skeleton") }
