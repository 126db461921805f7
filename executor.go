package ax

import (
	"context"
	"net/http"
)

// Executor makes one attempt.
type Executor interface {
	Execute(ctx context.Context, t *Task) (*http.Response, error)
}

// ExecutorFunc is a func as an Executor.
type ExecutorFunc func(context.Context, *Task) (*http.Response, error)

// Execute calls f.
func (f ExecutorFunc) Execute(ctx context.Context, t *Task) (*http.Response, error) { return f(ctx, t) }

func HTTPExecutor(c *http.Client) Executor { panic("skeleton") }
