package axdebug

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/axsched/ax"
)

const (
	// perKind is how many events of each kind are kept, so that a flood of one
	// kind does not wash away the rare others.
	perKind = 100
	// shownEvents is how many the page shows.
	shownEvents = 100
	// linger is how long recording goes on when nobody looks any more: who
	// comes back finds a whole chart.
	linger = chartSpan * time.Second
	// maxStreams bounds the open streams, and by that their buffers.
	maxStreams = 64
)

// recorder keeps what the page shows beyond a snapshot: the latest events and the
// chart. It has no goroutine: events come on those of the scheduler, and a timer
// samples the gauges each second as long as something moves.
type recorder struct {
	s *ax.Scheduler

	// turn guards the changes between watching and resting. It is taken before
	// mu, and never by an event.
	turn    sync.Mutex
	lookers int
	stop    func() // of Watch; nil = resting
	rest    *time.Timer

	mu      sync.Mutex
	events  map[ax.EventKind]*ring[record]
	count   uint64
	chart   chart
	moved   bool // something happened since the last sample
	timed   bool // the next sample is on its way
	streams map[*stream]struct{}
	open    int // streams of both sorts
}

func newRecorder(s *ax.Scheduler, always bool) *recorder {
	r := &recorder{s: s, streams: make(map[*stream]struct{})}
	if always {
		r.look() // and never away
	}
	return r
}

// look makes the recorder watch until done, and for a while after.
func (r *recorder) look() (done func()) {
	r.turn.Lock()
	defer r.turn.Unlock()
	r.lookers++
	if r.rest != nil {
		r.rest.Stop()
		r.rest = nil
	}
	if r.stop == nil {
		r.clear(time.Now())
		r.stop = r.s.Watch(r.event)
		r.nudge() // what stands there already is sampled without an event
	}
	return r.lookAway
}

// lookAway ends one look.
func (r *recorder) lookAway() {
	r.turn.Lock()
	defer r.turn.Unlock()
	r.lookers--
	if r.lookers > 0 {
		return
	}
	r.rest = time.AfterFunc(linger, r.unwatch)
}

// unwatch stops recording and forgets what was recorded, unless somebody has
// begun to look again.
func (r *recorder) unwatch() {
	r.turn.Lock()
	defer r.turn.Unlock()
	if r.lookers > 0 || r.stop == nil {
		return
	}
	r.stop()
	r.stop, r.rest = nil, nil
	r.clear(time.Time{})
}

// clear begins anew.
func (r *recorder) clear(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = make(map[ax.EventKind]*ring[record])
	r.chart = chart{since: now.Unix()}
}

// event is told by the scheduler of everything that happens, on the goroutine to
// which it happens.
func (r *recorder) event(e ax.Event) {
	rec := recordOf(e)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count++
	rec.N = r.count
	kept := r.events[e.Kind]
	if kept == nil {
		kept = &ring[record]{size: perKind}
		r.events[e.Kind] = kept
	}
	kept.put(rec)
	s := r.chart.slot(e.Time)
	if e.Kind == ax.EventStarted {
		s.started++
	}
	if e.Verdict == ax.VerdictFailure {
		s.failed++
	}
	for st := range r.streams {
		st.offer(&rec)
	}
	r.nudgeLocked()
}

func (r *recorder) nudge() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.nudgeLocked()
}

// nudgeLocked makes sure that the end of this second is sampled.
func (r *recorder) nudgeLocked() {
	r.moved = true
	if r.timed {
		return
	}
	r.timed = true
	now := time.Now()
	time.AfterFunc(now.Truncate(time.Second).Add(time.Second).Sub(now), r.sample)
}

// sample notes the gauges, and asks for another sample unless all is still.
func (r *recorder) sample() {
	st := r.s.Stats()
	r.turn.Lock()
	watching := r.stop != nil
	r.turn.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timed = false
	if !watching {
		return
	}
	r.chart.sample(time.Now().Add(-time.Second), st.Active, st.Queued, st.Parked)
	if r.moved || st.Active+st.Queued+st.Parked > 0 {
		r.nudgeLocked()
	}
	r.moved = false
}

// latest are the newest events that f lets through, newest first.
func (r *recorder) latest(f filter) []record {
	var found []record
	r.mu.Lock()
	for kind, kept := range r.events {
		if !f.wants(kind) {
			continue
		}
		for rec := range kept.each {
			if f.match(&rec) {
				found = append(found, rec)
			}
		}
	}
	r.mu.Unlock()
	slices.SortFunc(found, func(a, b record) int { return cmp.Compare(b.N, a.N) })
	return found[:min(len(found), shownEvents)]
}

// history is the chart up to now, and since when it is drawn.
func (r *recorder) history(now time.Time) (points []second, since time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.chart.points(now), time.Unix(r.chart.since, 0)
}

// admit takes one of the maxStreams places; false = none is left.
func (r *recorder) admit() (leave func(), ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open == maxStreams {
		return nil, false
	}
	r.open++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.open--
	}, true
}
