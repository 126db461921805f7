// Package ax is a gate between application code and net/http. It decides when a
// request is sent, whether it is sent at all, and what happens when it fails. It
// is no HTTP client of its own: what passes the gate is sent by yours.
//
// A [Request] says what is wanted, a [Task] is a checked copy of it, and a
// [Scheduler] takes tasks:
//
//	sched, err := ax.New(nil, ax.Recommended())
//	if err != nil {
//		log.Fatal(err)
//	}
//	defer sched.Close()
//
//	resp, err := sched.Send(ctx, ax.Request{
//		URL:      "https://api.example.com/users/1",
//		Priority: ax.Important,
//	})
//
// Programs that have a client already change one line of it:
//
//	client.Transport = sched.Transport()
//
// # What happens to a task
//
// A task that equals one in flight shares its answer ([Dedupe]). Any other waits
// in the queue of its [Lane] until the limits of its owner ([Budget]), its lane
// and the scheduler allow a start: so many at once (MaxConcurrent) and so many
// in a time ([Rate]). The order of those who wait is that of [Priority], and
// waiting raises it, so that nobody starves. An attempt that fails is sent again
// where that is safe and worth it ([Retry]); a lane that keeps failing is left
// alone for a while and then loaded slowly ([Breaker]); and what cannot be had may
// be answered otherwise ([Fallback]). The [Response] says which of these it was.
//
// A context ends its task wherever it is: the caller is answered at once, the
// queue entry is gone, the connection is torn down. Whole groups end by [Scope],
// by tag, or because a newer task took their place ([Request.Supersede]).
//
// # What is never done
//
// A status code is not made an error. A POST is not sent twice unless the caller
// said that it may be. The caller's request, headers and body are not modified.
// Answers are not shared between requests that any header tells apart, but for
// those that [Task.Key] lists. No goroutine runs while there is nothing to do.
//
// # Where to begin
//
// [Recommended] is a good first [Config]. With [Config.DryRun] nothing is held
// back and [Scheduler.Stats] counts what would have been; [Scheduler.Advice]
// then proposes limits from what was measured. Calls that are not HTTP pass the
// same gate by [Run]. Several processes share one gate through a [Governor];
// package axredis has one.
package ax
