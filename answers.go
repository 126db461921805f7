package ax

import "container/list"

// answers is a bounded store of answers by key: least recently used out first,
// expired ones by the scheduler's timer. Guarded by the scheduler's mutex.
type answers struct {
	s          *Scheduler
	maxEntries int
	maxBytes   int64
	bytes      int64
	entries    table[dedupeKey, *entry]
	byURL      multimap[string, *entry]
	byFamily   multimap[string, *entry]
	recent     list.List // of *entry, most recently used first
	expiries   heap[*entry]
	alarm      alarm
}

// entry is one kept answer.
type entry struct {
	key     dedupeKey
	url     string
	payload *payload
	stored  instant
	size    int64
	place   *list.Element
	node    heapNode[*entry]
}

func (a *answers) init(s *Scheduler, d *Dedupe) {
	a.s = s
	if d == nil {
		d = new(Dedupe)
	}
	bounds := d.resolved()
	a.maxEntries, a.maxBytes = bounds.MaxEntries, bounds.MaxBytes
}

// get is the answer kept under key, or nil.
func (a *answers) get(key dedupeKey, now instant) *entry {
	e := a.entries.get(key)
	if e == nil || a.expiries.key(&e.node).at <= now {
		return nil
	}
	a.recent.MoveToFront(e.place)
	return e
}

// until is when what is kept under key expires.
func (a *answers) until(key dedupeKey) instant {
	e := a.entries.get(key)
	if e == nil {
		return 0
	}
	return a.expiries.key(&e.node).at
}

// put keeps p under key until t. What is larger than the whole store is not
// kept.
func (a *answers) put(key dedupeKey, url string, p *payload, now, t instant) {
	if have := a.entries.get(key); have != nil {
		a.drop(have)
	}
	e := &entry{key: key, url: url, payload: p, stored: now, size: int64(len(p.body))}
	if e.size > a.maxBytes || t <= now {
		return
	}
	a.s.remembers.Store(true)
	e.node.item = e
	e.place = a.recent.PushFront(e)
	a.entries.set(key, e)
	a.byURL.add(url, e)
	a.byFamily.add(key.family, e)
	a.expiries.push(rank{at: t}, &e.node)
	a.bytes += e.size
	for a.entries.len() > a.maxEntries || a.bytes > a.maxBytes {
		a.drop(a.recent.Back().Value.(*entry))
	}
	a.arm()
}

// clear drops everything.
func (a *answers) clear() {
	for _, e := range a.entries.m {
		a.drop(e)
	}
	a.arm()
}

func (a *answers) drop(e *entry) {
	a.entries.remove(e.key)
	a.byURL.remove(e.url, e)
	a.byFamily.remove(e.key.family, e)
	a.recent.Remove(e.place)
	a.expiries.remove(&e.node)
	a.bytes -= e.size
}

func (a *answers) arm() {
	at := never
	if first, _, ok := a.expiries.top(); ok {
		at = first.at
	}
	a.s.setAlarmLocked(&a.alarm, a, at)
}

// ringLocked: an answer has expired.
func (a *answers) ringLocked(now instant) {
	for {
		first, n, ok := a.expiries.top()
		if !ok || first.at > now {
			break
		}
		a.drop(n.item)
	}
	a.arm()
}

// forgetURL drops what was kept for a URL, but what is kept under one key.
func (a *answers) forgetURL(url string, but dedupeKey) {
	a.byURL.each(url, func(e *entry) {
		if e.key != but {
			a.drop(e)
		}
	})
	a.arm()
}

// forget drops what was kept for a key, of one owner or of all.
func (a *answers) forget(k dedupeKey, anyOwner bool) {
	a.byFamily.each(k.family, func(e *entry) {
		if anyOwner || e.key.belongsTo(k.owner) {
			a.drop(e)
		}
	})
	a.arm()
}

// multimap is many values under one key; a key without any is gone.
type multimap[K comparable, V comparable] struct{ sets table[K, few[V]] }

// few is a set of values that are not zero. Most have one, which needs no map.
type few[V comparable] struct {
	one  V
	more map[V]struct{}
}

func (m *multimap[K, V]) add(k K, v V) {
	var none V
	set := m.sets.get(k)
	_, have := set.more[v]
	switch {
	case have || set.one == v:
		return
	case set.one == none:
		set.one = v
	default:
		if set.more == nil {
			set.more = make(map[V]struct{})
		}
		set.more[v] = struct{}{}
	}
	m.sets.set(k, set)
}

func (m *multimap[K, V]) remove(k K, v V) {
	var none V
	set := m.sets.get(k)
	if set.one == v {
		set.one = none
	} else {
		delete(set.more, v)
	}
	if set.one == none && len(set.more) == 0 {
		m.sets.remove(k)
	} else {
		m.sets.set(k, set)
	}
}

// each visits the values under k; visit may remove them.
func (m *multimap[K, V]) each(k K, visit func(V)) {
	var none V
	set := m.sets.get(k)
	if set.one != none {
		visit(set.one)
	}
	for v := range set.more {
		visit(v)
	}
}
