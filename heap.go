package ax

import (
	"math"
	"math/bits"
	"time"
)

// rank orders waiting work: smaller goes first. It never changes while the work
// waits, so aging costs nothing. An alarm is a rank with only at.
type rank struct {
	at    instant // when the work is as urgent as an Urgent task submitted then
	level int64   // ^priority: falls as that rises, and cannot overflow
	seq   uint64
}

// rankOf is the rank of a task of priority p submitted then: it rises one level
// for each step it has waited. With strict it does not age, and priority alone
// decides before seq. Sums beyond the ends of time stay at the ends.
func rankOf(submitted instant, p Priority, step time.Duration, seq uint64, strict bool) rank {
	r := rank{level: ^int64(p), seq: seq}
	if !strict {
		r.at = aged(submitted, p, step)
	}
	return r
}

// aged is submitted + (Urgent − p) × step, saturating.
func aged(submitted instant, p Priority, step time.Duration) instant {
	if p > Urgent {
		// Two's complement makes the distance right even where p − Urgent is large.
		hi, lo := bits.Mul64(uint64(p)-uint64(Urgent), uint64(step))
		if hi != 0 || lo > math.MaxInt64 || submitted < math.MinInt64+instant(lo) {
			return math.MinInt64
		}
		return submitted - instant(lo)
	}
	hi, lo := bits.Mul64(uint64(Urgent)-uint64(p), uint64(step))
	if hi != 0 || lo > math.MaxInt64 {
		return never
	}
	return submitted.add(time.Duration(lo))
}

// before reports whether r goes before o.
func (r rank) before(o rank) bool {
	if r.at != o.at {
		return r.at < o.at
	}
	if r.level != o.level {
		return r.level < o.level
	}
	return r.seq < o.seq
}

// reversed ranks in the opposite order, and reversed again is r. A second heap
// of reversed ranks has the worst-ranked work on top, which is how a full queue
// finds whom to evict in O(log n).
func (r rank) reversed() rank { return rank{at: ^r.at, level: ^r.level, seq: ^r.seq} }

// heapNode is an item's place in one heap; the zero node is in none. It is
// embedded in what waits, once for each heap that may hold it.
type heapNode[T any] struct {
	pos  int32 // of its slot; 0 = not in a heap
	item T
}

// heap is an indexed min-heap of four children a node: half as deep as a binary
// one, and as the keys lie in the slots, choosing among four of them touches two
// cache lines and no node. A node removed from the middle leaves its slot empty, so
// the order stands; empty slots go when they reach the top, when they outnumber the
// rest, or when the heap would grow. The zero heap is empty. Not safe for concurrent
// use.
type heap[T any] struct {
	slots []heapSlot[T] // from heapRoot on
	left  int           // slots whose node is gone; never the root
}

type heapSlot[T any] struct {
	key  rank
	node *heapNode[T] // nil = gone
}

// heapRoot is where the root lies: so the four children of i are at 4(i-2), and do
// not share cache lines with others.
const heapRoot = 3

// heapKeep is the capacity that an empty heap may keep.
const heapKeep = 16

// len is the number of nodes.
func (h *heap[T]) len() int { return max(0, len(h.slots)-heapRoot) - h.left }

// top is the first of all and its key; ok is false in an empty heap.
func (h *heap[T]) top() (key rank, n *heapNode[T], ok bool) {
	if len(h.slots) <= heapRoot {
		return rank{}, nil, false
	}
	s := &h.slots[heapRoot]
	return s.key, s.node, true
}

// push adds n, which must be in no heap.
func (h *heap[T]) push(key rank, n *heapNode[T]) {
	if n.pos != 0 {
		panic("ax: heap: push of a node that is queued")
	}
	if len(h.slots) == math.MaxInt32 {
		panic("ax: heap: too many nodes")
	}
	switch {
	case len(h.slots) == 0:
		h.slots = append(h.slots, make([]heapSlot[T], heapRoot)...)
	case len(h.slots) == cap(h.slots) && h.left > len(h.slots)/4:
		h.sweep() // instead of growing
	}
	s := heapSlot[T]{key, n}
	h.slots = append(h.slots, s)
	h.up(len(h.slots)-1, s)
}

// pop removes and returns the first of all, nil from an empty heap.
func (h *heap[T]) pop() *heapNode[T] {
	_, n, ok := h.top()
	if !ok {
		return nil
	}
	n.pos = 0
	h.removeRoot()
	return n
}

// remove takes n out; it reports false, and does nothing, if n is in no heap.
func (h *heap[T]) remove(n *heapNode[T]) bool {
	if n.pos == 0 {
		return false
	}
	i := h.index(n)
	n.pos = 0
	if i == heapRoot {
		h.removeRoot()
		return true
	}
	h.slots[i].node = nil
	h.left++
	h.tidy()
	return true
}

// fix gives n, which must be in this heap, another key.
func (h *heap[T]) fix(n *heapNode[T], key rank) {
	i, s := h.index(n), heapSlot[T]{key, n}
	switch {
	case key == h.slots[i].key:
	case key.before(h.slots[i].key):
		h.up(i, s)
	default:
		h.down(i, s)
		h.clearRoot()
	}
}

// key is that of n, which must be in this heap.
func (h *heap[T]) key(n *heapNode[T]) rank { return h.slots[h.index(n)].key }

// each yields all nodes, in no order; the heap must not change meanwhile.
func (h *heap[T]) each(yield func(rank, *heapNode[T]) bool) {
	for _, s := range h.slots {
		if s.node != nil && !yield(s.key, s.node) {
			return
		}
	}
}

func (h *heap[T]) index(n *heapNode[T]) int {
	i := int(n.pos)
	if i < heapRoot || i >= len(h.slots) || h.slots[i].node != n {
		panic("ax: heap: node is not in this heap")
	}
	return i
}

// removeRoot fills the place of the root, whose node is gone, with the last slot.
func (h *heap[T]) removeRoot() {
	h.slots[heapRoot].node = nil
	h.left++
	h.clearRoot()
	h.tidy()
	h.shrink()
}

// tidy sweeps once those gone are more than the others.
func (h *heap[T]) tidy() {
	if h.left > h.len() {
		h.sweep()
	}
}

// oneByOne is how many in a row go so.
const oneByOne = 16

// clearRoot removes the root as long as its node is gone: one by one, or if that
// goes on, and there are many, all at once.
func (h *heap[T]) clearRoot() {
	for n := 0; len(h.slots) > heapRoot && h.slots[heapRoot].node == nil; n++ {
		if n == oneByOne && h.left > len(h.slots)/8 {
			h.sweep()
			return
		}
		end := len(h.slots) - 1
		last := h.slots[end]
		h.slots[end] = heapSlot[T]{}
		h.slots = h.slots[:end]
		h.left--
		if end > heapRoot {
			h.down(heapRoot, last)
		}
	}
}

// sweep removes the slots whose nodes are gone.
func (h *heap[T]) sweep() {
	end := heapRoot
	for _, s := range h.slots[heapRoot:] {
		if s.node != nil {
			h.put(end, s)
			end++
		}
	}
	clear(h.slots[end:])
	h.slots, h.left = h.slots[:end], 0
	for i := parentOf(end - 1); i >= heapRoot; i-- {
		h.down(i, h.slots[i])
	}
	h.shrink()
}

func parentOf(i int) int { return i/4 + 2 }

func (h *heap[T]) up(i int, s heapSlot[T]) {
	for i > heapRoot {
		parent := parentOf(i)
		if !s.key.before(h.slots[parent].key) {
			break
		}
		h.put(i, h.slots[parent])
		i = parent
	}
	h.put(i, s)
}

func (h *heap[T]) down(i int, s heapSlot[T]) {
	slots := h.slots
	for {
		first := 4 * (i - 2)
		if first >= len(slots) {
			break
		}
		least := first
		if first+4 <= len(slots) {
			least += leastOf((*[4]heapSlot[T])(slots[first:]))
		} else {
			for c := first + 1; c < len(slots); c++ {
				if slots[c].key.before(slots[least].key) {
					least = c
				}
			}
		}
		if !slots[least].key.before(s.key) {
			break
		}
		h.put(i, slots[least])
		i = least
	}
	h.put(i, s)
}

// leastOf is the index of the least key: a knockout, whose first two rounds do not
// wait for each other.
func leastOf[T any](s *[4]heapSlot[T]) int {
	a, b := 0, 2
	if s[1].key.before(s[0].key) {
		a = 1
	}
	if s[3].key.before(s[2].key) {
		b = 3
	}
	if s[b].key.before(s[a].key) {
		return b
	}
	return a
}

func (h *heap[T]) put(i int, s heapSlot[T]) {
	h.slots[i] = s
	if s.node != nil {
		s.node.pos = int32(i)
	}
}

// shrink gives memory back after a peak: at a quarter full, half goes, so the
// next growth and the next shrinking are both many steps away.
func (h *heap[T]) shrink() {
	if c := cap(h.slots); c > heapKeep && len(h.slots) <= c/4 {
		h.slots = append(make([]heapSlot[T], 0, c/2), h.slots...)
	}
}
