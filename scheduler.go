package ax

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// Scheduler is the gate: every task goes through it and starts when its turn
// comes and every limit allows it. It is safe for concurrent use. It has no
// goroutine of its own and no state outside itself; two schedulers share
// nothing. Close it when done, to end what is still under way.
type Scheduler struct {
	// What guards what:
	//
	//	s.mu         queues, lanes, owners, flights, stores, scopes, tags, alarms
	//	attempt.mu   the end of one attempt's context; never held while taking s.mu
	//	watching.mu  the attempts that s.mu does not know and Close must end; a leaf
	//	polling      the quantiles that Stats knows already; a leaf
	//	outbox.mu    the events of one task that wait for their turn; a leaf
	//	atomics      the counters of Stats, histograms, s.alive
	//
	// s.mu is taken by admission, by the end of an attempt, by cancelling and by
	// the timer; it is never held across user code, a channel, a sleep or a log
	// line: what must follow is put into s.todo and done by unlock.

	cfg       Config // resolved: defaults filled, copied deeply
	exec      Executor
	jar       http.CookieJar // of the client of exec, if that is known; nil = none
	log       *slog.Logger
	epoch     time.Time
	routes    *routes
	ignore    *headerSet
	life      context.Context // of what a Governor is asked; ended by Close
	endOf     context.CancelFunc
	host      lanePolicy // of hosts without a configured lane
	count     counters
	would     wouldCounts
	special   atomic.Bool                 // something asks for more than express tasks give
	remembers atomic.Bool                 // answers are or were kept or shared
	hosts     sync.Map                    // of lanes by authority, for who holds no lock
	listed    map[string]*lane            // the configured ones by name; never changed
	nobody    *owner                      // ""
	listeners atomic.Pointer[[]*listener] // nil = nobody
	seq       atomic.Uint64
	spare     atomic.Pointer[buffers] // for the next that starts
	alive     atomic.Int64            // tasks not delivered, attempts not over, asks under way
	watching  attemptList
	polling   sync.Mutex // see knownQuantiles

	mu         sync.Mutex
	state      lifeState
	idle       chan struct{} // made when somebody waits for alive to be zero
	todo       []todo
	alarms     heap[alarmer]
	timer      *time.Timer
	timerAt    instant
	lag        time.Duration // how late the timer fired that leads to this dispatch
	gate       gate
	rates      *rateSet
	maxQueue   int
	held       bool // Pause("")
	alarm      alarm
	waiting    int
	running    int // attempts that the mutex knows
	asks       int // permits that the governor is being asked for
	slots      int // of gate, those that the mutex knows
	lanes      table[string, *lane]
	ready      heap[*lane] // those that could start something if the scheduler lets them
	nesting    map[*lane]struct{}
	worst      heap[*waiter]
	owners     table[string, *owner]
	flights    table[flightKey, *flight]
	byURL      multimap[string, *flight]
	repeats    repeatTable // for Advice
	window     answers
	stale      answers
	cooling    table[dedupeKey, *cooldown]
	names      names
	tags       multimap[string, *caller]
	streams    table[*attempt, struct{}]
	watches    table[context.Context, *ctxWatch] // by the context they watch
	unfinished *flight                           // the list of them
	beat       heartbeat

	laneEvents outbox
	leaving    leaving
}

// lifeState is how far the scheduler is in its life.
type lifeState uint8

const (
	lifeOpen lifeState = iota
	lifeDraining
	lifeClosed
)

// todo is one thing to do once the mutex is free.
type todo struct {
	f     *flight // to be sent on with sig, on a new goroutine if it has none
	sig   signal
	spawn bool
	done  chan struct{} // to be closed
	do    func()
	user  bool // do runs users' code: after everything else
}

// New makes a Scheduler over a copy of client, whose Jar, CheckRedirect and
// Timeout (of each attempt) are honoured, but not through Transport(), where those
// of the client above count; changing client afterwards changes nothing here. A nil client means one over a clone of http.DefaultTransport.
// With Config.Executor the client must be nil. The error joins every fault of
// cfg, each with the path of its field. New starts nothing: no goroutine, no
// timer, no connection.
func New(client *http.Client, cfg Config) (*Scheduler, error) {
	err := cfg.validate()
	if cfg.Executor != nil && client != nil {
		err = errors.Join(err, errClientAndExecutor)
	}
	if err != nil {
		return nil, err
	}
	s := &Scheduler{cfg: cfg.resolved(), epoch: time.Now(), timerAt: never}
	s.routes = newRoutes(s.cfg.Lanes)
	if err := validateFallbacks(&s.cfg, s.laneConfig); err != nil {
		return nil, err
	}
	s.life, s.endOf = context.WithCancel(context.Background())
	s.log = s.cfg.Logger
	s.exec = s.cfg.Executor
	if s.exec == nil {
		s.exec = HTTPExecutor(client)
	}
	if x, ok := s.exec.(*httpExecutor); ok {
		s.jar = x.client.Jar
	}
	if d := s.cfg.Dedupe; d != nil {
		s.ignore = newHeaderSet(d.IgnoreHeaders)
	}
	s.gate.setLimit(ownLimit(s.cfg.MaxConcurrent))
	s.maxQueue = ownLimit(s.cfg.MaxQueue)
	s.rates = newRateSet(s.epoch, s.cfg.Rate)
	s.nesting = make(map[*lane]struct{})
	s.window.init(s, s.cfg.Dedupe)
	s.stale.init(s, s.cfg.Dedupe)
	if f := s.cfg.OnEvent; f != nil {
		s.listeners.Store(&[]*listener{{f}})
	}
	s.nobody = s.ownerLocked("")
	s.nobody.fixed = true
	for name := range s.cfg.Budgets {
		s.ownerLocked(name)
	}
	s.host = s.cfg.lanePolicy(s.cfg.Hosts)
	s.listed = make(map[string]*lane, len(s.cfg.Lanes))
	for i := range s.cfg.Lanes {
		l := &s.cfg.Lanes[i]
		s.listed[l.Name] = newLane(s, l.Name, s.cfg.lanePolicy(l), true)
		s.lanes.set(l.Name, s.listed[l.Name])
		s.fixLaneLocked(s.listed[l.Name], 0)
	}
	s.specialLocked()
	return s, nil
}

// later has fn done once the mutex is free.
func (s *Scheduler) later(fn func()) { s.todo = append(s.todo, todo{do: fn}) }

// laterUser has users' code done once the mutex is free, after everything else.
func (s *Scheduler) laterUser(fn func()) { s.todo = append(s.todo, todo{do: fn, user: true}) }

// unlock arms the timer, frees the mutex and does what was left for then.
func (s *Scheduler) unlock() {
	s.armLocked()
	if len(s.todo) == 0 {
		s.mu.Unlock()
		return
	}
	var few [4]todo
	work := s.todo
	if len(work) <= len(few) {
		work = append(few[:0], s.todo...)
		clear(s.todo)
		s.todo = s.todo[:0]
	} else {
		s.todo = nil
	}
	s.mu.Unlock()
	for _, w := range work {
		if !w.user {
			w.run()
		}
	}
	s.runUsers(work)
}

// runUsers runs the users' part of what was left to do. Whatever one of them
// does, the others have their turn, and whoever unlocked goes on.
func (s *Scheduler) runUsers(work []todo) {
	for i, w := range work {
		if !w.user {
			continue
		}
		returned := false
		func() {
			defer func() {
				if returned {
					return
				}
				if v := recover(); v != nil {
					s.count.panics.Add(1)
					s.log.Error("ax: callback panicked", "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
					return
				}
				s.runUsers(work[i+1:]) // Goexit: this goroutine ends here
			}()
			w.do()
			returned = true
		}()
	}
}

func (w todo) run() {
	switch {
	case w.do != nil:
		w.do()
	case w.done != nil:
		close(w.done)
	case w.spawn:
		go w.f.run(w.sig) // ends with the flight; Close waits for it
	default:
		w.f.wait.ready <- w.sig // has room: one signal for each wait
	}
}

// Do runs t to its end and returns its answer. A status code is not an error:
// after the last retry the last response comes back, unless a fallback
// answers. Every error is an *Error.
//
// ctx bounds everything: waiting, attempts, retries, fallbacks. When it ends,
// Do returns at once with an error that Is ctx.Err() and context.Cause(ctx), the
// task leaves the queue or its connection is torn down. A task without a key
// runs on the calling goroutine. The body of the response must be read or
// closed if it is a stream; a buffered one needs neither.
func (s *Scheduler) Do(ctx context.Context, t *Task) (*Response, error) {
	return s.do(ctx, t, &way{})
}

// Send is r.Task followed by Do.
func (s *Scheduler) Send(ctx context.Context, r Request) (*Response, error) {
	return send(ctx, &r, s.Do)
}

// send builds a task and does it: its faults are the error's too.
func send(ctx context.Context, r *Request, do func(context.Context, *Task) (*Response, error)) (*Response, error) {
	t, err := newTask(r)
	if err != nil {
		return nil, &Error{Op: "admit", Method: r.Method, Lane: r.Lane, Owner: r.Owner, Err: err}
	}
	return do(ctx, t)
}

// Get is Send of a GET of url.
func (s *Scheduler) Get(ctx context.Context, url string) (*Response, error) {
	r := Request{URL: url}
	return send(ctx, &r, s.Do)
}

// way is how a task came in, beside its context.
type way struct {
	hints     *Hints                          // of a client; nil = none
	scope     *Scope                          // nil = none
	single    bool                            // Transport()
	accepted  bool                            // part of an accepted task: Shutdown finishes it
	run       func(ctx context.Context) error // Run: in place of the executor
	dead      error                           // the ctx had ended before
	scopeDead error                           // that of the scope, likewise
	who       string                          // whose cookies the client will add, hashed; "" = nobody's
	ready     chan signal                     // for the wait of a lone one; nil = none is foreseen
}

// do is the life of a task on its caller's goroutine.
func (s *Scheduler) do(ctx context.Context, t *Task, w *way) (*Response, error) {
	if err := unusable(ctx, t, w); err != nil {
		return nil, err
	}
	if r, err, ok := s.express(ctx, t, w); ok {
		return r, err
	}
	c, f := s.admit(ctx, t, w)
	c.goThrough(f) // thousands may wait in it, so with little on the stack: admission has returned
	return c.finish()
}

// goThrough brings an admitted task to its end; f is nil if it has been decided.
func (c *caller) goThrough(f *flight) {
	switch {
	case f == nil:
	case f.lone:
		f.runLone(c)
	default:
		c.wait()
	}
}

// admit lets a task in; the flight that will answer it is nil if it has been
// decided.
//
//go:noinline
func (s *Scheduler) admit(ctx context.Context, t *Task, w *way) (c *caller, f *flight) {
	if t.mayShare(s.cfg.Dedupe != nil) {
		both := new(struct { // whether it needs a flight will show
			c caller
			j joint
		})
		c = &both.c
		c.joint, c.done = &both.j, make(chan struct{})
	} else {
		if s.gate.isGuarded() { // it will have to wait: less to carry
			both := new(struct {
				c caller
				f flight
			})
			c, f = &both.c, &both.f
			w.ready = make(chan signal, 1)
		} else {
			c, f = new(loneTask).parts()
		}
	}
	s.beginCaller(c, ctx, t, w)
	var want Hints
	c.wants(w, &want)
	s.routeAhead(t, &want)
	t.partsAhead(s.cfg.Dedupe != nil)
	s.mu.Lock()
	now := s.now()
	if s.cfg.DryRun {
		if f == nil {
			f = newFlight()
		}
		f = s.admitDryLocked(c, f, &want, w, now)
		s.unlock()
		c.through(f, func() {
			c.tellAdmission()
			if f != nil {
				f.runDry()
			}
		})
		return c, nil
	}
	f = s.admitLocked(c, f, &want, w, now)
	if f != nil && !f.lone && c.kind == 0 && c.done == nil {
		c.done = make(chan struct{})
	}
	c.tellAdmittedLone(f)
	return c, f
}

// newFlight is an empty flight, with its buffers.
func newFlight() *flight {
	both := new(struct {
		f flight
		b buffers
	})
	both.f.buf = &both.b
	return &both.f
}

// loneTask is what most tasks need: one allocation for what lives together.
type loneTask struct {
	c caller
	f flight
	b buffers
}

func (t *loneTask) parts() (*caller, *flight) {
	t.f.buf = &t.b
	return &t.c, &t.f
}

// beginCaller numbers a task and tells that it is there.
func (s *Scheduler) beginCaller(c *caller, ctx context.Context, t *Task, w *way) {
	c.bare = w.single
	c.s, c.ctx, c.task = s, ctx, t
	c.deadline = s.deadlineOf(ctx)
	c.outer = s.attemptFrom(ctx)
	w.dead = ctxError(ctx)
	if s.jar != nil && !w.single {
		w.who = jarOwner(s.jar, t.u)
	}
	if w.scope != nil {
		c.deadline = min(c.deadline, w.scope.deadline)
		if err := ctxError(w.scope.ctx); err != nil {
			w.scopeDead = canceled(ErrScopeEnded, err)
		}
	}
	s.alive.Add(1) // after users' code, which may panic
	if s.heard() {
		c.ev = &outbox{busy: true} // until tellAdmission
		c.notes = noteSubmitted
	}
}

// deadlineOf is when ctx ends by itself.
func (s *Scheduler) deadlineOf(ctx context.Context) instant {
	d, ok := ctx.Deadline()
	if !ok {
		return never
	}
	return s.now().add(time.Until(d))
}

// wait blocks until c is decided: by its flight, or by the end of its ctx.
func (c *caller) wait() {
	select {
	case <-c.done:
	case <-c.ctx.Done():
		c.leave(nil)
		<-c.done
	}
}
