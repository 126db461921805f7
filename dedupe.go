package ax

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"
	"time"
)

// Flights do not stand on x/sync's singleflight.Group: its map and its calls
// are behind a mutex of its own, so "the last caller to leave cancels the flight
// and frees the key in one critical section" cannot be had of it (Forget comes
// after, and a newcomer in between joins a dead call); it runs each call at once
// on a goroutine, while a flight here waits in the queue without one, may be
// overtaken, re-ranked and refused; and who joins depends on lane, nesting and
// later writes, not on the key alone.

// sharingOf tells whether a flight of c may be shared, and under what key.
func (s *Scheduler) sharingOf(c *caller, want *Hints, w *way, key *flightKey) bool {
	r := &c.task.r
	asks := r.Dedupe || r.DedupeKey != "" || r.DedupeWindow > 0
	if want.NoDedupe || w.run != nil || s.cfg.Dedupe == nil && !asks {
		return false
	}
	key.dedupeKey, key.lane = c.task.sharingKey(s.ignore, want.Owner).of(w.who, w.single), c.lane
	return key.family != ""
}

// findLocked looks for what may answer c: a result that is still in its window, or
// the flight that has its key. If there is neither, c's flight is to take the key,
// if c may share. It returns before anything follows, so that who waits needs little
// stack.
//
//go:noinline
func (s *Scheduler) findLocked(c *caller, want *Hints, w *way, now instant) (take *flightKey, have *flight, kept *entry) {
	var key flightKey
	if !s.sharingOf(c, want, w, &key) {
		return nil, nil, nil
	}
	s.noteRepeatLocked(c, &key, now)
	if kept = s.window.get(key.dedupeKey, now); kept != nil {
		return nil, nil, kept
	}
	have = s.flights.m[key]
	if have == nil || have.outdated || have.failedLocked() {
		take = new(flightKey)
		*take = key
		return take, nil, nil
	}
	if have.outer.within() < c.outer.within() {
		return nil, nil, nil // it could wait for the very attempt that c is part of
	}
	return nil, have, nil
}

// failedLocked tells a flight that its body, a fallback or a listener still holds up,
// but whose outcome is known: who comes now is to have an attempt of its own.
func (f *flight) failedLocked() bool {
	return f.buf != nil && f.buf.sealed || f.state == flightSettling && (f.refusal != nil || f.last().failed())
}

// endKeptLocked answers c with a result that was kept.
func (s *Scheduler) endKeptLocked(c *caller, kept *entry, now instant) {
	s.count.windowHits.Add(1)
	c.note(noteWindowHit)
	s.endLocked(c, &result{
		kind: EventSucceeded, payload: kept.payload, shared: true,
		source: FromWindow, arrived: kept.stored,
	}, now)
}

// keyLocked lets others find f.
func (s *Scheduler) keyLocked(f *flight, key *flightKey) {
	if old := s.flights.get(*key); old != nil {
		old.keyed = false // nobody joins it any more
	}
	f.key, f.keyed = key, true
	s.flights.set(*key, f)
	s.fileLocked(f)
}

// fileLocked lists f where a write to its URL finds it, if its answer may be kept
// or joined.
func (s *Scheduler) fileLocked(f *flight) {
	if !f.filed && (f.keyed || f.mayBeStale()) {
		f.filed = true
		s.remembers.Store(true)
		s.byURL.add(f.task.urlFamily(), f)
	}
}

// mayBeStale tells whether f's answer will be kept for its first caller's fallback.
func (f *flight) mayBeStale() bool {
	fb := f.fallbackPolicy()
	return fb != nil && fb.Stale > 0
}

// staleLocked is how long f's answer may serve somebody's fallback.
func (f *flight) staleLocked() (stale time.Duration) {
	if f.mayBeStale() {
		stale = f.fallbackPolicy().Stale
	}
	f.callers.each(func(c *caller) bool {
		if fb := c.task.fallbackIn(c.lane); fb != nil && f.work() == nil {
			stale = max(stale, fb.Stale)
		}
		return true
	})
	return stale
}

// unkeyLocked undoes keyLocked and fileLocked: nobody finds f any more.
func (s *Scheduler) unkeyLocked(f *flight) {
	if f.filed {
		f.filed = false
		s.byURL.remove(f.task.urlFamily(), f)
	}
	if !f.keyed {
		return
	}
	f.keyed = false
	if s.flights.get(*f.key) == f {
		s.flights.remove(*f.key)
	}
}

// joinLocked makes c one of have's callers: as urgent, as patient as the most
// urgent and most patient of them. With NoWait it must have started.
func (s *Scheduler) joinLocked(have *flight, c *caller, want *Hints, now instant) {
	if want.NoWait && have.attempts == 0 {
		s.rejectLocked(c, ErrWouldWait, now)
		return
	}
	mine := termsOf(want, c.lane)
	s.count.coalesced.Add(1)
	c.note(noteCoalesced)
	c.joined = true
	c.f = have
	if first := have.callers.speaker; first != nil && first.joint == nil {
		first.joint = &joint{terms: have.terms} // before they are raised
	}
	have.callers.add(c)
	c.joint.terms = mine
	if d := mine.attemptTimeout; have.attemptTimeout > 0 && (d == 0 || d > have.attemptTimeout) {
		s.extendLocked(have, d, now)
	}
	if mine.queueTimeout == 0 || have.queueTimeout > 0 && mine.queueTimeout > have.queueTimeout {
		have.queueTimeout = mine.queueTimeout
	}
	if mine.queueTimeout > 0 && have.state == flightWaiting {
		s.setAlarmLocked(&c.extras().alarm, c, now.add(mine.queueTimeout))
	}
	s.rerankFlightLocked(have, now)
}

// extendLocked gives a flight, and its running attempt, a longer timeout.
func (s *Scheduler) extendLocked(f *flight, d time.Duration, now instant) {
	f.attemptTimeout = d
	at := f.at
	if f.state != flightRunning || at == nil || at.due {
		return
	}
	if m := f.more; m != nil && m.hedge != nil {
		m.hedge.at.extend(d)
	}
	if at.hopping() != nil {
		at.extendStopped(d)
		return
	}
	if t, sent := at.extend(d); sent && at.timedByFlight() {
		s.alarmLocked(f, t)
	}
}

// within is how many attempts something runs inside of whose innermost is a.
func (a *attempt) within() int {
	if a == nil {
		return 0
	}
	return a.rare().depth + 1
}

// keepLocked keeps a good answer for who comes after: in the window, and in the
// store for staleness; and forgets what a write has made old.
func (s *Scheduler) keepLocked(f *flight, res *result, now instant) {
	if res.kind != EventSucceeded || res.source != FromNetwork || f.last().failed() {
		return
	}
	status := f.last().status()
	if res.payload == nil || status < 200 || status > 299 || f.outdated {
		return
	}
	header := res.payload.resp.Header
	ownWindow := f.task.r.DedupeWindow
	if window := s.windowOf(f); f.key != nil && window > 0 && (ownWindow > 0 || !saysNoStore(header)) {
		res.share()
		s.window.put(f.key.dedupeKey, f.task.urlFamily(), res.payload, now, now.add(window))
	}
	if stale := f.staleLocked(); stale > 0 && !saysNoStore(header) {
		if key, ok := f.staleKey(); ok {
			res.share()
			s.stale.put(key, f.task.urlFamily(), res.payload, now, max(now.add(stale).add(1), s.stale.until(key)))
		}
	}
}

// share makes everybody get a copy of the answer, which then keeps nobody's
// context.
func (r *result) share() {
	r.shared = true
	if resp := r.payload.resp; resp.Request != nil {
		kept := *resp
		kept.Request = withContext(resp.Request, context.Background())
		r.payload = &payload{resp: &kept, body: r.payload.body}
	}
}

// windowOf is how long f's success is shared after it completed.
func (s *Scheduler) windowOf(f *flight) time.Duration {
	if d := f.task.r.DedupeWindow; d > 0 {
		return d
	}
	if s.cfg.Dedupe == nil {
		return 0
	}
	return s.cfg.Dedupe.Window
}

// staleKey is under what f's last good answer is remembered, with or without
// sharing. What was done before does not stand for what was to be done now, so a
// write has none unless it asks to be shared.
func (f *flight) staleKey() (dedupeKey, bool) {
	if r := &f.task.r; !f.task.reads() && !r.Dedupe && r.DedupeKey == "" {
		return dedupeKey{}, false
	}
	k, ok := f.task.baseKey(f.s.ignore, f.owner.name)
	return k.of(f.who(), f.single), ok
}

// wroteLocked drops every kept answer of the URLs that f has written to, by what the
// server said, whatever became of the body or of who wanted it. What is under way
// since before is delivered, not kept, and not joined; what has not started yet did
// not begin before, so this precedes whatever the end of the attempt lets start. A
// flight that has kept its own answer by now keeps it: the attempt is but its twin.
func (s *Scheduler) wroteLocked(f *flight, urls []string) {
	var own dedupeKey // no other has it
	if f != nil && f.state == flightDone && f.key != nil {
		own = f.key.dedupeKey
	}
	for _, url := range urls {
		s.window.forgetURL(url, own)
		s.stale.forgetURL(url, own)
		s.byURL.each(url, func(other *flight) {
			if other.attempts > 0 && other != f {
				other.outdated = true
			}
		})
	}
}

// wrote is the URLs, by family, where a server has done what a write asked for: it
// said so, or redirected to where the result is, or to who took the same request.
func wrote(at *attempt, out *outcome) (urls []string) {
	if at.task.safe() {
		return nil
	}
	resp := cmp.Or(out.resp, at.answer)
	if refused, ok := errors.AsType[*clientError](out.err); ok && resp == nil {
		resp = refused.resp
	}
	for resp != nil && resp != at.task.redirectedBy() {
		req := resp.Request
		if resp.StatusCode >= 200 && resp.StatusCode < 400 {
			if len(urls) == 0 {
				urls = append(urls, at.task.urlFamily())
			}
			if req != nil && req.URL != nil && req.Response != nil && req.Response != at.task.redirectedBy() && !safe(req.Method) {
				urls = append(urls, urlFamily(req.URL)) // a 307 or 308 led there
			}
		}
		if req == nil {
			return urls
		}
		resp = req.Response
	}
	return urls
}

// Invalidate forgets every kept result, fresh or stale, that a task with this
// Key could be given; also those of owners that a context named. A key that is
// no Task.Key is taken as a Request.DedupeKey. What is under way is delivered,
// but neither kept nor joined any more.
func (s *Scheduler) Invalidate(key string) {
	s.mu.Lock()
	defer s.unlock()
	k, hasOwner, ok := parseKey(key, s.ignore)
	if ok {
		s.forgetKeyLocked(k, !hasOwner)
	}
	s.forgetKeyLocked(dedupeKey{family: rawDedupeKey(key)}, true)
}

func (s *Scheduler) forgetKeyLocked(k dedupeKey, anyOwner bool) {
	s.window.forget(k, anyOwner)
	s.stale.forget(k, anyOwner)
	for f := s.unfinished; f != nil; f = f.next {
		if !f.filed || f.attempts == 0 {
			continue
		}
		if have, ok := f.staleKey(); ok && have.family == k.family && (anyOwner || have.belongsTo(k.owner)) {
			f.outdated = true
		}
	}
}

// saysNoStore tells whether the server forbids keeping its answer (RFC 9111,
// section 5.2.2.5).
func saysNoStore(h http.Header) bool {
	for _, line := range h.Values("Cache-Control") {
		for part := range strings.SplitSeq(line, ",") {
			name, _, _ := strings.Cut(part, "=")
			if strings.EqualFold(strings.TrimSpace(name), "no-store") {
				return true
			}
		}
	}
	return false
}
