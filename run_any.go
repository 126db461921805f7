package ax

import "context"

// Run schedules a call that is not HTTP (an SDK, gRPC, a query) as t would be:
// under the same lanes, ranks, budgets, breaker, retry and cancellation. t names
// the work: its lane (by Lane, pattern or host), owner, tags, priority, policies;
// its method decides whether it may be retried, and nothing of it is sent. fn is
// called once for each attempt, with the attempt's context; an error of it is a
// failure like one of the transport. Errors are *Error, as those of Do; a panic of
// fn goes on through Run. Results are not shared, so what t says of sharing, Hedge
// and Fallback has no effect; Cooldown and Supersede have theirs.
func Run[T any](ctx context.Context, s *Scheduler, t *Task, fn func(ctx context.Context) (T, error)) (T, error) {
	var result T
	_, err := s.do(ctx, t, &way{run: func(ctx context.Context) error {
		v, err := fn(ctx)
		if err == nil {
			result = v
		}
		return err
	}})
	if err != nil {
		var zero T
		return zero, err
	}
	return result, nil
}
