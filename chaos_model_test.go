package ax

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestChaosModel plays the same random story to the model and to the scheduler.
func TestChaosModel(t *testing.T) {
	seed := *chaosSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano()) % 1_000_000_000
	}
	episodes := 60
	if testing.Short() {
		episodes = 10
	}
	for range episodes {
		synctest.Test(t, func(t *testing.T) { newModelPlay(t, seed).run() })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
		seed++
	}
	t.Logf("%d stories, the last of seed %d", episodes, seed-1)
}

// modelPlay is one story.
type modelPlay struct {
	*testing.T
	m     *model
	s     *Scheduler
	rnd   *rand.Rand
	evict bool
	all   map[int]*modelPlayer
	seen  chan modelEvent
	start time.Time
	done  int // events of the model that have been compared
}

// modelPlayer is one task on both stages.
type modelPlayer struct {
	t      *modelTask
	cancel context.CancelFunc
	answer chan int // status of the attempt under way
}

func newModelPlay(t *testing.T, seed uint64) *modelPlay {
	p := &modelPlay{
		T: t, rnd: rand.New(rand.NewPCG(seed, 9)), all: map[int]*modelPlayer{},
		seen: make(chan modelEvent, 10_000), start: time.Now(),
	}
	p.evict = p.rnd.IntN(2) == 0
	p.m = &model{
		global: modelLimits{gate: 5, rate: 40, queue: 30},
		lanes: map[string]*modelLimits{
			"a.test": {gate: 2, queue: 12}, "b.test": {rate: 15}, "c.test": {},
		},
		owners: map[string]*modelLimits{"": {}, "o1": {gate: 1}, "o2": {rate: 8}},
	}
	cfg := Config{
		MaxConcurrent: 5, Rate: PerSecond(40), MaxQueue: 30,
		Retry:    &Retry{Max: 3, BaseDelay: modelBackoff, Jitter: NoJitter, Budget: 1e9},
		Lanes:    []Lane{{Name: "a.test", MaxConcurrent: 2, MaxQueue: 12}, {Name: "b.test", Rate: PerSecond(15)}, {Name: "c.test"}},
		Budgets:  map[string]Budget{"o1": {MaxConcurrent: 1}, "o2": {Rate: PerSecond(8)}},
		Executor: ExecutorFunc(p.execute),
	}
	if p.evict {
		cfg.Overflow = OverflowEvict
	}
	if p.rnd.IntN(2) == 0 { // some may go without the mutex
		cfg.Rate, p.m.global.rate = nil, 0
	}
	s, err := New(nil, cfg)
	require.NoError(t, err)
	p.s = s
	return p
}

// execute tells that a task has started and waits for what the story gives it.
func (p *modelPlay) execute(ctx context.Context, t *Task) (*http.Response, error) {
	var id int
	_, err := fmt.Sscanf(t.u.Path, "/%d", &id)
	require.NoError(p, err)
	p.seen <- modelEvent{time.Since(p.start), id, "start"}
	select {
	case status := <-p.all[id].answer:
		return &http.Response{StatusCode: status}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// run tells the story: a step, then both stages must have shown the same.
func (p *modelPlay) run() {
	defer p.s.Close()
	for step := range 400 {
		to := p.m.now + time.Duration(p.rnd.ExpFloat64()*float64(12*time.Millisecond))
		time.Sleep(to - time.Since(p.start))
		synctest.Wait()
		p.m.advance(to)
		p.compare(step)
		p.step(step)
		synctest.Wait()
		p.compare(step)
		if p.Failed() {
			return
		}
	}
}

func (p *modelPlay) step(id int) {
	switch n := p.rnd.IntN(100); {
	case n < 55:
		p.submit(id)
	case n < 85:
		if t := p.pick(p.m.running); t != nil {
			status := []int{200, 200, 500}[p.rnd.IntN(3)]
			p.all[t.id].answer <- status
			p.m.end(t, status == 500 && t.attempt <= 3)
		}
	case n < 91:
		if t := p.pick(slices.Concat(p.m.waiting, p.m.running, p.m.resting)); t != nil {
			p.all[t.id].cancel()
			p.m.cancel(t)
		}
	case n < 96:
		p.hold([]string{"", "a.test", "b.test", "c.test"}[p.rnd.IntN(4)], p.rnd.IntN(3) == 0)
	default:
		p.setLimits()
	}
}

func (p *modelPlay) pick(from []*modelTask) *modelTask {
	if len(from) == 0 {
		return nil
	}
	return from[p.rnd.IntN(len(from))]
}

func (p *modelPlay) submit(id int) {
	t := &modelTask{
		id: id, prio: Priority(p.rnd.IntN(5) - 1), lane: []string{"a.test", "b.test", "c.test"}[p.rnd.IntN(3)],
		owner: []string{"", "", "o1", "o2"}[p.rnd.IntN(4)], step: 6 * time.Second,
	}
	if p.rnd.IntN(3) == 0 {
		t.step = time.Duration(1+p.rnd.IntN(100)) * time.Millisecond
	}
	if p.rnd.IntN(4) == 0 {
		t.timeout = time.Duration(1+p.rnd.IntN(300)) * time.Millisecond
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.all[id] = &modelPlayer{t: t, cancel: cancel, answer: make(chan int, 1)}
	task := Must(Request{
		URL: fmt.Sprintf("http://%s/%d", t.lane, id), Lane: t.lane, Owner: t.owner, Priority: t.prio,
		QueueTimeout: t.timeout, AgingStep: t.step % (6 * time.Second),
	}.Task())
	if p.rnd.IntN(2) == 0 {
		call := p.s.Submit(ctx, task)
		go func() { p.ended(id)(call.Result()) }()
	} else {
		go func() { p.ended(id)(p.s.Do(ctx, task)) }()
	}
	p.m.submit(t, p.evict)
}

// ended tells how a task ended, where the model knows of that.
func (p *modelPlay) ended(id int) func(*Response, error) {
	return func(r *Response, err error) {
		cause := err
		if r != nil {
			cause = r.Cause
		}
		for end, what := range map[error]string{ErrQueueFull: "reject", ErrEvicted: "evict", ErrQueueTimeout: "timeout"} {
			if errors.Is(cause, end) {
				p.seen <- modelEvent{time.Since(p.start), id, what}
			}
		}
	}
}

func (p *modelPlay) hold(lane string, held bool) {
	l := p.m.lanes[lane]
	if lane == "" {
		l = &p.m.global
	}
	act := p.s.Resume
	if held {
		act = p.s.Pause
	}
	require.NoError(p, act(lane))
	l.held = held
	p.m.dispatch()
}

func (p *modelPlay) setLimits() {
	switch p.rnd.IntN(4) {
	case 0:
		p.m.global.gate = 1 + p.rnd.IntN(7)
		require.NoError(p, p.s.SetLimits("", Limits{MaxConcurrent: p.m.global.gate}))
	case 1:
		a := p.m.lanes["a.test"]
		a.gate, a.queue = 1+p.rnd.IntN(4), 3+p.rnd.IntN(12)
		require.NoError(p, p.s.SetLimits("a.test", Limits{MaxConcurrent: a.gate, MaxQueue: a.queue}))
	case 2:
		p.m.lanes["b.test"].rate = 5 + p.rnd.IntN(20)
		require.NoError(p, p.s.SetLimits("b.test", Limits{Rate: PerSecond(p.m.lanes["b.test"].rate)}))
	default:
		o := p.m.owners["o1"]
		o.gate = 1 + p.rnd.IntN(3)
		require.NoError(p, p.s.SetBudget("o1", Budget{MaxConcurrent: o.gate}))
	}
	p.m.dispatch()
}

// compare wants the same events at the same moments on both stages. Those of one
// moment may come in any order: goroutines tell them.
func (p *modelPlay) compare(step int) {
	var real []modelEvent
	for len(p.seen) > 0 {
		real = append(real, <-p.seen)
	}
	want := slices.Clone(p.m.log[p.done:])
	p.done = len(p.m.log)
	order := func(a, b modelEvent) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.id, b.id), cmp.Compare(a.what, b.what))
	}
	slices.SortFunc(real, order)
	slices.SortFunc(want, order)
	if !slices.Equal(want, real) {
		p.Errorf("step %d at %v:\nthe model has %v\nthe scheduler %v", step, p.m.now, want, real)
	}
}
