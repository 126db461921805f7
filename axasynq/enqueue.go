package axasynq

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/axsched/ax"
	"github.com/hibiken/asynq"
)

// Type is the asynq type of a stored task, for an asynq.ServeMux.
const Type = "ax:request"

// What Enqueue asks of asynq unless its options say otherwise.
const (
	// DefaultRetention is how long the result of a task that succeeded is kept.
	DefaultRetention = 24 * time.Hour
	// DefaultUnique is how long at most a task stands in the way of one with the
	// same key.
	DefaultUnique = time.Hour
)

// taskHeader is the header of an asynq task that holds the ax task.
const taskHeader = "ax-task"

// payload is what asynq tells duplicates by: the task's key, or if it has none all
// that is stored, for who asks for asynq.Unique all the same.
func payload(key string, stored []byte) []byte {
	if key != "" {
		return []byte(key)
	}
	return fmt.Appendf(nil, "json.%x", sha256.Sum256(stored))
}

// Enqueue stores t for a server with a [Handler], and returns what asynq says of
// it. t is stored as JSON (see [ax.Task.MarshalJSON]); what has no JSON form, such
// as GetBody, Prepare and Retry.If, is refused with an error that names it. So is
// Supersede: which task is the newest is known only where all of them run in the
// order they were made, and a queue tries old ones again, in any process.
//
// These options come first, so that opts may override each:
//
//   - asynq.Queue: by t's priority, one of [Queues].
//   - asynq.Unique, [DefaultUnique], if t has a key (see [ax.Task.Key]): while one of
//     that key waits or runs in the same queue, the error is
//     asynq.ErrDuplicateTask. Its success ends that; a task that was given up
//     stands in the way for the rest of the time, or until it is deleted. Where opts
//     ask for it, tasks without a key are the same if all that is stored is.
//   - asynq.Timeout: of all that Handler does for t in one go, retries of the
//     scheduler and Alternates included, if each of these tasks has an AttemptTimeout
//     and a QueueTimeout to tell it by; else asynq's own 30 minutes. What a worker's
//     lanes add, a Fallback say, is not known here.
//   - asynq.Retention: [DefaultRetention]; 0 keeps no result.
//
// Asynq's default of 25 retries stands. ctx bounds the call, not the task.
// Enqueue is safe for concurrent use.
func Enqueue(ctx context.Context, c *asynq.Client, t *ax.Task, opts ...asynq.Option) (*asynq.TaskInfo, error) {
	if c == nil {
		return nil, errors.New("axasynq: nil asynq.Client")
	}
	stored, err := t.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("axasynq: %w", err)
	}
	r := t.Request()
	if err := checkOrder(&r, "Request"); err != nil {
		return nil, fmt.Errorf("axasynq: %w", err)
	}
	all := []asynq.Option{asynq.Queue(queueOf(r.Priority)), asynq.Retention(DefaultRetention)}
	if d := timeLimit(&r); d > 0 {
		all = append(all, asynq.Timeout(d))
	}
	key := t.Key()
	if key != "" {
		all = append(all, asynq.Unique(DefaultUnique))
	}
	task := asynq.NewTaskWithHeaders(Type, payload(key, stored), map[string]string{taskHeader: string(stored)})
	info, err := c.EnqueueContext(ctx, task, append(all, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("axasynq: %w", err)
	}
	return info, nil
}

// checkOrder refuses what depends on the order of tasks, which a queue that sends them
// again does not keep. at is the path of r.
func checkOrder(r *ax.Request, at string) error {
	if r.Supersede != "" {
		return fmt.Errorf("%s.Supersede: cannot be stored: an older task that is tried again would end the newer one", at)
	}
	if r.Fallback == nil || r.Fallback.Alternate == nil {
		return nil
	}
	alternate := r.Fallback.Alternate.Request()
	return checkOrder(&alternate, at+".Fallback.Alternate")
}

// timeLimit is how long a task may take at most in a scheduler, its alternates
// included; 0 = not known. Asynq counts in whole seconds, and one is for the handler,
// which ends a task before asynq does.
func timeLimit(r *ax.Request) time.Duration {
	seconds, ok := longest(r)
	if !ok || seconds > maxSeconds {
		return 0
	}
	return time.Duration(math.Ceil(seconds)+1) * time.Second
}

// longest is how many seconds r and its alternates may take, if that is bounded. It
// takes retries as the request has them, else ax's defaults.
func longest(r *ax.Request) (seconds float64, ok bool) {
	if !bounded(r.AttemptTimeout) || !bounded(r.QueueTimeout) {
		return 0, false
	}
	retries, delay := 2, 30*time.Second
	if p := r.Retry; p != nil {
		if p.Max > 0 {
			retries = p.Max
		}
		if p.MaxDelay > 0 {
			delay = p.MaxDelay
		}
	}
	if r.NoRetry {
		retries = 0
	}
	each := r.AttemptTimeout.Seconds() + r.QueueTimeout.Seconds()
	seconds = each + float64(retries)*(each+delay.Seconds())
	if r.Fallback == nil || r.Fallback.Alternate == nil {
		return seconds, true
	}
	alternate := r.Fallback.Alternate.Request()
	more, ok := longest(&alternate)
	return seconds + more, ok
}

// maxSeconds is a year: a longer limit is none.
const maxSeconds = 365 * 24 * 3600

// bounded tells whether d limits anything.
func bounded(d time.Duration) bool { return d > 0 && d != ax.NoTimeout }
