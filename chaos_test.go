package ax

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	chaosFor     = flag.Duration("chaos.for", 20*time.Second, "how long TestChaos runs")
	chaosWithout = flag.String("chaos.without", "", "what TestChaos leaves out: redirect, hedge, governor, fallback, nest, swift, limits, deaf, panic, goexit")
	chaosSeed    = flag.Uint64("chaos.seed", 0, "first seed of TestChaos; 0 = by the clock")
)

// TestChaos lets hundreds of callers do everything that callers can do to a
// scheduler whose servers do everything that servers can do, and compares after
// every step what the scheduler believes with what has happened.
func TestChaos(t *testing.T) {
	seed := *chaosSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano()) % 1_000_000_000
	}
	end := time.Now().Add(*chaosFor)
	if testing.Short() {
		end = time.Now().Add(2 * time.Second)
	}
	tasks, episodes := 0, 0
	for first := seed; episodes == 0 || time.Now().Before(end); seed++ {
		fmt.Printf("chaos: -chaos.seed=%d\r", seed) // a panic in the core must not hide it
		synctest.Test(t, func(t *testing.T) {
			d := newChaos(t, seed)
			d.run()
			if t.Failed() { // the bubble fails the test itself
				t.Logf("seed %d (began with %d): swift %v, hedged %v, governed %v", seed, first, d.swift, d.w.hedged, d.w.governs)
			}
			tasks += int(d.s.Stats().Submitted)
		})
		episodes++
	}
	t.Logf("%d tasks in %d episodes, the last of seed %d", tasks, episodes, seed-1)
}

// chaosWith tells whether a feature takes part: leaving some out narrows a fault down.
func chaosWith(feature string) bool { return !strings.Contains(*chaosWithout, feature) }

// chaos is one episode: a scheduler, its world, and those who call.
type chaos struct {
	*testing.T
	s      *Scheduler
	w      *chaosWorld
	rnd    *rand.Rand // the driver's alone
	cfg    Config
	swift  bool // no rate of the scheduler's own: tasks may go without the mutex
	scopes []*Scope
	stops  []context.CancelFunc // of the scopes
	all    sync.WaitGroup

	mu     sync.Mutex
	live   map[*chaosCaller]struct{}
	ends   map[*Task]EventKind
	story  map[uint64]*chaosStory // of each task, by Seq
	told   map[string]chaosTold   // by lane, "" = all; nil without OnEvent
	byWhom atomic.Bool            // everything is being cancelled
}

// chaosCaller is one caller and what may have ended it.
type chaosCaller struct {
	task    *Task
	r       Request
	scope   *Scope
	cancel  context.CancelFunc
	call    *Call
	excused atomic.Bool // somebody has cancelled it, or time will
}

const chaosSteps = 1500

func newChaos(t *testing.T, seed uint64) *chaos {
	d := &chaos{
		T: t, w: newChaosWorld(seed), rnd: rand.New(rand.NewPCG(seed, 1)),
		live: map[*chaosCaller]struct{}{}, ends: map[*Task]EventKind{}, story: map[uint64]*chaosStory{},
	}
	d.cfg = d.config()
	if d.cfg.OnEvent != nil {
		d.told = map[string]chaosTold{}
	}
	s, err := New(nil, d.cfg)
	require.NoError(t, err)
	d.s, d.w.s = s, s
	d.w.hedged, d.w.governs = d.cfg.Hedge != nil, d.cfg.Governor != nil
	if d.w.governs {
		d.w.asking = chaosAsking
	}
	d.w.lanes = func(host string) string {
		if name, ok := map[string]string{"a.test": "a", "b.test": "b", "free.test": "free", "burst.test": "burst"}[host]; ok {
			return name
		}
		return host
	}
	d.believe("", Limits{MaxConcurrent: d.cfg.MaxConcurrent, Rate: d.cfg.Rate})
	d.w.scope("lane burst").bucket = 5
	for _, l := range d.cfg.Lanes {
		if l.Name == "burst" {
			l.Rate = nil
		}
		d.believe("lane "+l.Name, Limits{MaxConcurrent: l.MaxConcurrent, Rate: l.Rate})
	}
	for i := range 10 {
		h := d.cfg.Hosts
		d.believe(fmt.Sprintf("lane h%d.test", i), Limits{MaxConcurrent: h.MaxConcurrent, Rate: h.Rate})
	}
	d.believe("owner paul", Limits{MaxConcurrent: 3, Rate: PerSecond(40)})
	for i := range 5 {
		d.believe(fmt.Sprintf("owner o%d", i), Limits{MaxConcurrent: 2})
	}
	for range 3 {
		d.newScope()
	}
	return d
}

// onEvent counts ends; it takes the scheduler's mutex, which nobody may hold then.
func (d *chaos) onEvent(e Event) {
	st := d.s.Stats()
	if st.Active < 0 || st.Queued < 0 || st.Parked < 0 || st.Submitted < st.Succeeded+st.Failed+st.Canceled+st.Rejected {
		d.wrong("impossible gauges at %v: %+v", e.Kind, st)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if e.Task == nil {
		d.told[e.Lane] = d.told[e.Lane].after(e.Kind)
		return
	}
	if d.story[e.Seq] == nil {
		d.story[e.Seq] = new(chaosStory)
	}
	if fault := d.story[e.Seq].next(e, d.cfg.Hedge != nil); fault != "" {
		d.wrong("task %d: %v of attempt %d %s", e.Seq, e.Kind, e.Attempt, fault)
	}
	if e.Kind.terminal() {
		d.ends[e.Task] = e.Kind
	}
}

// chaosStory is what events have told of a task.
type chaosStory struct {
	latest          Event
	attempt         int // the latest that has started
	running, joined bool
	fell            bool
}

// next takes in one event and says what is wrong with it. Three tasks may come to
// an attempt late or begin again: one that joined a flight and speaks for it once
// the first has left, one that is hedged, of which two run, and one whose shared
// answer went to another as a stream.
func (c *chaosStory) next(e Event, hedged bool) (fault string) {
	begun := c.latest.Context != nil
	switch {
	case begun == (e.Kind == EventSubmitted):
		return "begins and has begun, or neither"
	case begun && c.latest.Kind.terminal():
		return fmt.Sprint("after the end, which was ", c.latest.Kind)
	case e.Time.Before(c.latest.Time):
		return fmt.Sprintf("%v before %v", c.latest.Time.Sub(e.Time), c.latest.Kind)
	}
	strict := !c.joined && !hedged
	switch e.Kind {
	case EventCoalesced:
		c.joined = true
	case EventFellBack:
		c.fell = true
	case EventQueued, EventRetryScheduled:
		if c.running && strict {
			fault = "while one runs"
		}
	case EventStarted:
		if c.running && !hedged || !c.joined && e.Attempt != c.attempt+1 && e.Attempt != 1 {
			fault = fmt.Sprintf("after %d, running %v", c.attempt, c.running)
		}
		c.attempt, c.running = e.Attempt, true
	case EventAttemptDone:
		if strict && (!c.running || e.Attempt != c.attempt) || e.Attempt > c.attempt && !c.joined {
			fault = fmt.Sprintf("after %d, running %v", c.attempt, c.running)
		}
		c.running = false
	}
	if e.Kind.terminal() && !c.joined && !c.fell && e.Attempt > c.attempt {
		fault = fmt.Sprintf("after %d that were told of", c.attempt)
	}
	c.latest = e
	return fault
}

// chaosTold is what events have told of a lane.
type chaosTold struct {
	breaker BreakerState
	paused  bool
}

func (c chaosTold) after(e EventKind) chaosTold {
	switch e {
	case EventLanePaused, EventLaneResumed:
		c.paused = e == EventLanePaused
	default:
		c.breaker = BreakerState(slices.Index(breakerEvents[:], e))
	}
	return c
}

// checkTold: while nothing moves, who listens knows of every lane what the
// scheduler knows; of a forgotten one that nothing is left to say.
func (d *chaos) checkTold() {
	if d.told == nil {
		return
	}
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	truth := map[string]chaosTold{"": {paused: d.s.held}}
	for name, l := range d.s.lanes.m {
		is := chaosTold{paused: l.paused}
		if l.brk != nil {
			is.breaker = l.brk.in
		}
		truth[name] = is
	}
	for name := range d.told {
		if _, there := truth[name]; !there {
			truth[name] = chaosTold{}
		}
	}
	for name, is := range truth {
		if told := d.told[name]; told != is {
			d.w.wrong("lane %q is %+v, told was %+v", name, is, told)
		}
	}
}

func (d *chaos) wrong(format string, args ...any) {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	d.w.wrong(format, args...)
}

// run is the episode: steps, each checked when everything has come to rest, then
// the end, in one of three ways.
func (d *chaos) run() {
	defer d.s.Close()
	for range chaosSteps {
		time.Sleep(time.Duration(d.rnd.ExpFloat64() * float64(3*time.Millisecond)))
		synctest.Wait()
		d.step()
		synctest.Wait()
		d.checkStill()
		if d.report() {
			return
		}
	}
	d.finish()
	d.report()
}

func (d *chaos) checkStill() {
	d.w.checkStill()
	d.checkTold()
}

func (d *chaos) report() bool {
	faults := d.w.broken()
	for _, f := range faults {
		d.Error(f)
	}
	return len(faults) > 0
}

// finish ends all in order, or at once, and looks whether anything is left.
func (d *chaos) finish() {
	d.calm()
	switch d.rnd.IntN(3) {
	case 0:
		d.byWhom.Store(true)
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(d.rnd.IntN(2000))*time.Millisecond)
		_ = d.s.Shutdown(ctx)
		cancel()
	case 1:
		d.byWhom.Store(true)
		d.s.Close()
	}
	for range 600 {
		synctest.Wait()
		d.checkStill()
		if d.alive() == 0 {
			break
		}
		time.Sleep(time.Second)
	}
	if n := d.alive(); n > 0 {
		d.wrong("%d callers have no end", n)
		return
	}
	d.all.Wait()
	time.Sleep(3 * time.Minute)
	synctest.Wait()
	d.checkStill()
	d.w.checkEmpty()
	d.s.Close()
	synctest.Wait()
	d.w.checkEmpty()
}

// calm lifts every hold.
func (d *chaos) calm() {
	for _, lane := range []string{"", "a", "b", "free", "h0.test", "h1.test", "h2.test"} {
		d.hold(lane, false)
		synctest.Wait() // who was let go has arrived
	}
	for _, lane := range []string{"a", "b"} {
		require.NoError(d, d.s.ForceBreaker(lane, BreakerAuto))
	}
	d.w.mu.Lock()
	clear(d.w.sick)
	d.w.mu.Unlock()
}

func (d *chaos) alive() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.live)
}

// submit lets one more caller come.
func (d *chaos) submit() {
	r := d.request()
	c := &chaosCaller{r: r, task: Must(r.Task())}
	ctx, cancel := context.WithCancel(context.Background())
	if d.rnd.IntN(4) == 0 {
		ctx, cancel = context.WithTimeout(context.Background(), time.Duration(d.rnd.IntN(1500))*time.Millisecond)
		c.excused.Store(true)
	}
	c.cancel = cancel
	if d.rnd.IntN(5) == 0 {
		c.scope = d.scopes[d.rnd.IntN(len(d.scopes))]
	}
	way := d.rnd.IntN(4)
	d.mu.Lock()
	for other := range d.live {
		if r.Supersede != "" && other.r.Supersede == r.Supersede {
			other.excused.Store(true)
		}
	}
	d.live[c] = struct{}{}
	d.mu.Unlock()
	d.all.Go(func() {
		defer func() {
			v := recover()
			if err, ok := v.(error); v != nil && !(ok && errors.Is(err, errChaosPanic)) {
				panic(v)
			}
			cancel()
			d.mu.Lock()
			delete(d.live, c)
			d.mu.Unlock()
		}()
		d.call(ctx, c, way)
	})
}

// call is one caller's day.
func (d *chaos) call(ctx context.Context, c *chaosCaller, way int) {
	var resp *Response
	var err error
	switch {
	case way == 0 && c.scope != nil:
		resp, err = c.scope.Do(ctx, c.task)
	case way == 0:
		req, _ := c.task.NewRequest(ContextWith(ctx, Hints{Owner: c.r.Owner, Priority: c.r.Priority}))
		client := http.Client{Transport: d.s.Transport()}
		got, err := client.Do(req)
		if err == nil {
			d.read(c, got.Body)
			return
		}
		d.judge(c, nil, err)
		return
	case way == 1:
		call := d.s.Submit(ctx, c.task)
		d.mu.Lock()
		c.call = call
		d.mu.Unlock()
		if d.w.draw(8) == 0 {
			call.Discard()
			_, _ = call.Result()
			return
		}
		resp, err = call.Result()
	default:
		resp, err = d.s.Do(ctx, c.task)
	}
	d.mu.Lock()
	kind, ok := d.ends[c.task]
	d.mu.Unlock()
	if !ok && d.cfg.OnEvent != nil {
		d.wrong("a task returned before its last event")
	} else if ok && (kind == EventSucceeded) != (err == nil) {
		d.wrong("a task ended as %v and returned %v", kind, err)
	}
	if d.judge(c, resp, err) {
		d.read(c, resp.Body)
	}
}

// judge: an answer or an error, cancelled only if somebody did that, and a fallback's
// only for who has one.
func (d *chaos) judge(c *chaosCaller, resp *Response, err error) (answered bool) {
	switch {
	case err == nil && resp != nil && resp.Source >= FromAlternate && (c.task.r.NoFallback || c.task.r.Fallback == nil && d.cfg.Fallback == nil):
		d.wrong("%s: answered by a fallback that it does not have: %v", c.task.URL(), resp.Source)
		return true
	case err == nil && resp != nil && resp.Response != nil && resp.StatusCode != 0:
		return true
	case err == nil:
		d.wrong("%s: neither an answer nor an error", c.task.URL())
	case errors.Is(err, context.Canceled) && !c.excused.Load() && !d.byWhom.Load() && !(c.scope != nil && errors.Is(err, ErrScopeEnded)):
		d.wrong("%s %s: cancelled by nobody: %v", c.task.Method(), c.task.URL(), err)
	}
	return false
}

// read reads a body to its end, in part, or not at all, and closes it.
func (d *chaos) read(c *chaosCaller, body io.ReadCloser) {
	defer body.Close()
	switch d.w.draw(4) {
	case 0:
	case 1:
		_, _ = io.CopyN(io.Discard, body, 5)
		time.Sleep(20 * time.Millisecond)
	default:
		_, _ = io.Copy(io.Discard, body)
	}
}
