package axasynq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/axsched/ax"
	"github.com/hibiken/asynq"
)

// Handler runs what [Enqueue] has stored through s. It leaves the answer as the
// task's [Result], and tells asynq how to go on:
//
//   - A status below 400 is success.
//   - 429 and 5xx but 501, and errors of the network, are retried, after
//     Retry-After where there is one.
//   - Other statuses, bad certificates, and whatever was sent with NoRetry, also if
//     its grant was lost or s closed in flight, are given up with asynq.SkipRetry,
//     the answer kept; so is a task that CancelTag has ended.
//   - A task with fields or values that this ax does not know, since a newer one has
//     stored it, is retried; what is no task at all is given up.
//   - What s refused is retried, and with [IsFailure] does not count as a failure.
//
// The server's IsFailure and RetryDelayFunc must be this package's: much of this
// depends on them. A request is torn down up to a second before its task's timeout,
// so that its outcome is told in time, on CancelProcessing, and when a shutdown does
// not wait any longer. After a cancellation, the crash of a worker or the loss of its
// lease nobody can tell whether the request was sent: asynq counts a failure, and a
// task with NoRetry that has failed is given up instead of being sent. Shut the asynq
// server down first, then s.
//
// A request that has no Idempotency-Key, field or header, gets the id of the task; an
// empty header is none. So does an Alternate of its Fallback: the same key if it is
// the same request, else the id with "-1" behind it, the next one in the chain "-2".
// An answer that Redis would not take is lost, its task is done: it is not sent
// again for the sake of a result.
//
// Workers are few, and one that waits in a scheduler does nothing else: a task that
// has no QueueTimeout gets [DefaultQueueTimeout]. Past it the task is refused, and
// goes back to its queue without a failure; see [HandlerWith] for another.
func Handler(s *ax.Scheduler) asynq.Handler { return HandlerWith(s, Options{}) }

// DefaultQueueTimeout is how long at most a task waits in a scheduler unless it says
// so itself.
const DefaultQueueTimeout = 10 * time.Second

// Options say how a [HandlerWith] treats tasks.
type Options struct {
	// QueueTimeout is the QueueTimeout of tasks that have none, and of Alternates
	// that have none. It goes before those of lanes and scheduler. 0 =
	// [DefaultQueueTimeout]; ax.NoTimeout = those of lanes and scheduler hold, and
	// without any a lane that is held back may take all workers. A negative one
	// panics.
	QueueTimeout time.Duration
}

// HandlerWith is [Handler] with options.
func HandlerWith(s *ax.Scheduler, o Options) asynq.Handler {
	switch {
	case o.QueueTimeout < 0:
		panic(fmt.Sprintf("axasynq: Options.QueueTimeout: %v is negative", o.QueueTimeout))
	case o.QueueTimeout == 0:
		o.QueueTimeout = DefaultQueueTimeout
	case o.QueueTimeout == ax.NoTimeout:
		o.QueueTimeout = 0
	}
	return &handler{s, o.QueueTimeout}
}

type handler struct {
	s            *ax.Scheduler
	queueTimeout time.Duration // 0 = none
}

// ProcessTask sends one stored task.
func (h *handler) ProcessTask(ctx context.Context, stored *asynq.Task) error {
	t, err := h.load(ctx, stored)
	if err != nil {
		return unread(stored, fmt.Errorf("axasynq: %w", err))
	}
	r := t.Request()
	if n, _ := asynq.GetRetryCount(ctx); n > 0 && r.NoRetry {
		return fmt.Errorf("%w: %w", errUntold, asynq.SkipRetry)
	}
	ctx, cancel := withRoom(ctx)
	defer cancel()
	resp, err := h.s.Do(ctx, t)
	if err != nil {
		if e, ok := errors.AsType[*ax.Error](err); ok && e.Response != nil {
			_ = keep(stored, e.Response) // err is what matters
		}
		return errorOf(&r, err)
	}
	outcome := answerOf(&r, resp)
	if err := keep(stored, resp); err != nil {
		return errorOf(&r, &ax.Error{Op: "attempt", Attempts: max(resp.Attempts, 1), Err: err})
	}
	return outcome
}

// errUntold ends a task with NoRetry that has failed before. What the handler itself
// calls a failure of such a task is final, so that one was asynq's.
var errUntold = errors.New("axasynq: the task has NoRetry and may have been sent: " +
	"it was cancelled, ran out of time or was left by its worker before its outcome was told")

// withRoom is ctx with an end that comes a little earlier: a second, or a tenth of the
// time for less than 10 s. When the time of a task is up, asynq does not wait to hear
// what came of it, so it has to be told before.
func withRoom(ctx context.Context) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, end.Add(-min(time.Until(end)/10, time.Second)))
}

// load reads the task and makes it fit to be repeated.
func (h *handler) load(ctx context.Context, stored *asynq.Task) (*ax.Task, error) {
	if stored.Type() != Type {
		return nil, fmt.Errorf("task of type %q, not %q", stored.Type(), Type)
	}
	text, ok := stored.Headers()[taskHeader]
	if !ok {
		return nil, fmt.Errorf("task without the header %q: was it stored by Enqueue?", taskHeader)
	}
	t := new(ax.Task)
	if err := json.Unmarshal([]byte(text), t); err != nil {
		return nil, err
	}
	if t.URL() == "" {
		return nil, fmt.Errorf("no task in the header %q", taskHeader) // null
	}
	id, _ := asynq.GetTaskID(ctx) // none if it was not called by a server
	return preparer{id: id, queueTimeout: h.queueTimeout, by: map[string]string{}}.task(t)
}

// unread is what becomes of a task that cannot be read. What a newer ax has stored may
// have fields and values that this one does not know: while workers are replaced, it
// is left to another. What is no JSON object never was a task.
func unread(stored *asynq.Task, err error) error {
	var known struct {
		NoRetry bool `json:"no_retry"`
	}
	text := stored.Headers()[taskHeader]
	if !strings.HasPrefix(text, "{") || json.Unmarshal([]byte(text), &known) != nil || stored.Type() != Type {
		return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
	}
	if known.NoRetry { // a counted failure tells the next worker that it may have been sent
		return &outcome{err: err, after: time.Minute, refused: true}
	}
	return &outcome{err: err}
}

// keep stores an answer as the task's result. Its error is one of reading it; what
// Redis would not take is lost.
func keep(stored *asynq.Task, resp *ax.Response) error {
	result, err := resultOf(resp)
	if err != nil {
		return err
	}
	w := stored.ResultWriter()
	if w == nil {
		return nil
	}
	text, err := json.Marshal(result)
	if err == nil {
		_, _ = w.Write(text)
	}
	return err
}
