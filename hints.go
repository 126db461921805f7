package ax

import (
	"context"
	"time"
)

// Hints is what a context or a client may say about its requests.
type Hints struct {
	Priority                     Priority
	Lane, Owner                  string
	Tags                         []string
	AttemptTimeout, QueueTimeout time.Duration
	NoRetry, NoWait, NoDedupe    bool
}

func ContextWith(ctx context.Context, h Hints) context.Context { panic("skeleton") }
func HintsFrom(ctx context.Context) Hints                      { panic("skeleton") }
