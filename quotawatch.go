package ax

import (
	"slices"
	"time"
)

// quotaWatch finds out how much a server takes before it says 429: how many
// starts of a second, and of a minute, were answered otherwise when others were
// not. It begins with the first 429.
type quotaWatch struct {
	second, minute quotaSpan
	taken, refused uint32 // both, and turns, are halved now and then
	turns          uint32 // outcomes that differ from the one before
	last           bool   // the latest was a 429
}

// quotaSpan counts by windows that begin with the first start after the one
// before has passed: a burst after a pause falls into one window, and under
// steady load a window holds a quota's worth of a server's, wherever those begin.
type quotaSpan struct {
	windows [2]quotaWindow // the latest, and the one before, whose outcomes may be late
	limited uint32         // windows in which there was a 429
	clean   uint32         // windows without one
	most    float32        // taken in one of these; fades
	taken   [quotaWindows]uint32
	starts  [quotaWindows]uint32
	before  [quotaWindows]uint32 // taken before the first 429
}

type quotaWindow struct {
	from           instant
	taken, refused uint32
	before         uint32 // taken before the first refused
	open           bool
}

const (
	// quotaWindows is how many of the latest windows with a 429 are kept. Of ten
	// the second smallest and second largest enclose the true median with 97.9 %
	// confidence: 1 − 2·(1+10)/2¹⁰.
	quotaWindows = 10
	quotaLeast   = 5       // the smallest quota that whole numbers describe well enough
	quotaMemory  = 1 << 16 // outcomes after which they are halved
)

func (q *quotaWatch) started(now instant) {
	q.second.started(now, time.Second)
	q.minute.started(now, time.Minute)
}

// ended takes the outcome of the attempt that began at that time.
func (q *quotaWatch) ended(began instant, refused bool) {
	if refused {
		q.refused++
	} else {
		q.taken++
	}
	if refused != q.last {
		q.turns++
	}
	q.last = refused
	if q.taken+q.refused >= quotaMemory {
		q.taken, q.refused, q.turns = q.taken/2, q.refused/2, q.turns/2
	}
	q.second.ended(began, time.Second, refused)
	q.minute.ended(began, time.Minute, refused)
}

// inRuns reports whether 429s come together: fewer than 0.7 of the changes between
// them and other answers that there would be if they came by chance, as those do that
// one user or one path gets.
func (q *quotaWatch) inRuns() bool {
	taken, refused := float64(q.taken), float64(q.refused)
	return float64(q.turns) < 0.7*2*taken*refused/(taken+refused)
}

// started opens a window if the latest is over.
func (s *quotaSpan) started(now instant, span time.Duration) {
	w := &s.windows
	if w[0].open && now < w[0].from.add(span) {
		return
	}
	s.close(&w[1])
	w[0], w[1] = quotaWindow{from: now, open: true}, w[0]
}

func (s *quotaSpan) ended(began instant, span time.Duration, refused bool) {
	for i := range s.windows {
		w := &s.windows[i]
		if !w.open || began < w.from || began >= w.from.add(span) {
			continue
		}
		switch {
		case !refused:
			w.taken++
		case w.refused == 0:
			w.before = w.taken
			fallthrough
		default:
			w.refused++
		}
	}
}

// close keeps what a window showed.
func (s *quotaSpan) close(w *quotaWindow) {
	switch {
	case !w.open:
	case w.refused > 0:
		i := s.limited % quotaWindows
		s.taken[i], s.starts[i], s.before[i] = w.taken, w.taken+w.refused, w.before
		s.limited++
	default:
		s.clean++
		s.most = max(float32(w.taken), s.most*(1-1.0/256))
	}
}

// quota is what the server takes in each span, if the windows agree on it: the
// middle ones differ by at most a fifth, and none without a 429 had more.
func (s *quotaSpan) quota() (quota int, ok bool) {
	if s.limited < quotaWindows {
		return 0, false
	}
	taken := slices.Sorted(slices.Values(s.taken[:]))
	quota = int(taken[(quotaWindows-1)/2])
	slack := max(1, quota/5)
	agree := int(taken[quotaWindows-2]-taken[1]) <= slack && int(s.most) <= quota+slack
	return quota, agree && quota >= quotaLeast
}

// capped reports whether too many starts cause the 429s: most of what was taken came
// before the first 429; or half as many starts again got no more through; or windows
// without a 429 had clearly fewer starts.
func (s *quotaSpan) capped(quota int) bool {
	before := slices.Sorted(slices.Values(s.before[:]))
	starts := slices.Sorted(slices.Values(s.starts[:]))
	least, most := float64(starts[1]), float64(starts[quotaWindows-2])
	return int(before[1]) >= quota-quota/5 || most >= 1.5*least || s.clean >= 3 && least >= 1.1*float64(s.most)
}
