package ax

import (
	"context"
	"io"
	"sync"
	"time"
)

// Call is a task given to Submit: its answer to come. A Call that waits in the
// queue costs no goroutine. It is safe for concurrent use.
type Call struct {
	c     caller
	f     flight
	watch *ctxWatch // on the caller's ctx; guarded by s.mu

	mu      sync.Mutex
	done    chan struct{} // made when first asked for
	resp    *Response
	err     error
	settled bool
	dropped bool  // nobody will read the body
	place   int32 // in watch; guarded by s.mu
}

// Submit gives t to the scheduler and returns at once, whatever the queues and
// limits say: a refusal, too, is the Call's Result. ctx owns the task from
// submission to the end of its body; a panic of the executor is an error of
// Result.
func (s *Scheduler) Submit(ctx context.Context, t *Task) *Call {
	return s.submit(ctx, t, &way{})
}

func (s *Scheduler) submit(ctx context.Context, t *Task, w *way) *Call {
	call := new(Call)
	c := &call.c
	c.call = call
	if err := unusable(ctx, t, w); err != nil {
		call.settle(nil, err)
		return call
	}
	s.beginCaller(c, ctx, t, w)
	var want Hints
	c.wants(w, &want)
	s.routeAhead(t, &want)
	t.partsAhead(s.cfg.Dedupe != nil)
	done := ctx.Done()
	s.mu.Lock()
	if s.cfg.DryRun {
		if f := s.admitDryLocked(c, &call.f, &want, w, s.now()); f != nil {
			s.later(func() { go f.onOwnGoroutine(0, f.runDry) }) // ends with the task; Close waits for it
		}
	} else {
		s.admitLocked(c, &call.f, &want, w, s.now())
	}
	alone := done != nil && c.kind == 0 && !s.watchKnownLocked(call, done)
	defer c.tellAdmission() // both also if users' code ends this goroutine
	defer func() {
		if alone {
			s.watchCall(call, done)
		}
	}()
	s.unlock()
	return call
}

// deliver makes the decided result the Call's: event first, then Done.
func (c *Call) deliver() {
	resp, err := c.c.answer()
	defer c.c.tellEndThen(resp, err, func() { c.settle(resp, err) }) // also if Close of the body panics
	if !c.c.leftBody {
		c.c.task.closeBody()
	}
}

func (c *Call) settle(resp *Response, err error) {
	c.mu.Lock()
	c.resp, c.err, c.settled = resp, err, true
	if c.done != nil {
		close(c.done)
	}
	dropped := c.dropped
	c.mu.Unlock()
	if dropped {
		discard(resp)
	}
	if c.c.s != nil {
		c.c.s.aliveLess()
	}
}

// Done is closed when the result is there and its last event has been told.
func (c *Call) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.settled {
			close(c.done)
		}
	}
	return c.done
}

// Result blocks until the task has ended and returns what Do would have: always
// the same *Response.
func (c *Call) Result() (*Response, error) {
	<-c.Done()
	return c.resp, c.err
}

// Cancel ends the task, with an error that Is context.Canceled. After its end it
// closes the body, if that is a stream that nobody reads.
func (c *Call) Cancel() {
	if c.c.s != nil && c.c.s.cancelCaller(&c.c, context.Canceled) {
		return
	}
	c.mu.Lock()
	c.dropped = true
	resp := c.resp
	c.mu.Unlock()
	if resp != nil && resp.Response != nil {
		resp.Body.Close()
	}
}

// Discard says that the result is not wanted, though the request may go on: the
// body is read away and closed when it comes.
func (c *Call) Discard() {
	c.mu.Lock()
	again := c.dropped
	c.dropped = true
	resp := c.resp
	c.mu.Unlock()
	if !again {
		discard(resp)
	}
}

// discardTime is how long a body that nobody reads may take to come.
const discardTime = time.Second

// discard lets the connection of a body that nobody reads be used again.
func discard(resp *Response) {
	if resp == nil || resp.Response == nil {
		return
	}
	body := resp.Body
	go func() { // ends within a second, or with the scheduler
		defer body.Close()
		defer time.AfterFunc(discardTime, func() { body.Close() }).Stop()
		_, _ = io.CopyN(io.Discard, body, drainBytes)
	}()
}

// Seq is the task's place in the order of submission.
func (c *Call) Seq() uint64 { return c.c.seq() }

var _ io.Closer = (*Scheduler)(nil)
