// Package axasynq keeps tasks of package ax in Redis, with hibiken/asynq, so that
// they outlive the process that made them: Enqueue stores one, Handler runs it
// through a scheduler in whatever process is free.
//
//	// where the work is made
//	info, err := axasynq.Enqueue(ctx, client, task)
//
//	// where it is done
//	srv := asynq.NewServer(redis, asynq.Config{
//		Queues:         axasynq.Queues(),
//		IsFailure:      axasynq.IsFailure,
//		RetryDelayFunc: axasynq.RetryDelay,
//	})
//	err := srv.Run(axasynq.Handler(sched))
//
// A stored task is sent at least once, not exactly once. A worker that crashes, is
// stopped in the middle, or loses Redis after its request was sent leaves the task
// to another, which sends it again. What makes that safe is the Idempotency-Key: a
// request that has none gets the id of the stored task, the same in every process
// and on every attempt, for the server to tell a repetition by. With a server that
// does not heed it, store only requests that may be repeated.
//
// What is stored stands in Redis in clear: URLs, headers and bodies of requests,
// and bodies of answers. Guard it like the requests themselves.
package axasynq
