package ax

import (
	stdheap "container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func compareRanks(a, b rank) int {
	switch {
	case a.before(b):
		return -1
	case b.before(a):
		return 1
	}
	return 0
}

func drain(h *heap[int]) []int {
	var got []int
	for n := h.pop(); n != nil; n = h.pop() {
		got = append(got, n.item)
	}
	return got
}

func TestO1RankOf(t *testing.T) {
	const lowest, highest = Priority(math.MinInt), Priority(math.MaxInt)
	const step, end = 6 * time.Second, instant(math.MinInt64)
	for _, c := range []struct {
		name      string
		submitted instant
		priority  Priority
		step      time.Duration
		at        instant
		level     int64
	}{
		{"urgent", 100, Urgent, step, 100, -2},
		{"important", 100, Important, step, 100 + instant(step), -1},
		{"normal", 100, Normal, step, 100 + 2*instant(step), 0},
		{"low", 100, Low, step, 100 + 3*instant(step), 1},
		{"above urgent", 100, Urgent + 5, step, 100 - 5*instant(step), -7},
		{"no step", 100, Low, 0, 100, 1},
		{"lowest", 100, lowest, step, never, math.MinInt64},
		{"lowest, no step", 100, lowest, 0, 100, math.MinInt64},
		{"highest", 100, highest, step, end, -math.MaxInt64},
		{"highest, one nanosecond", 100, highest, 1, 100 - (math.MaxInt64 - 2), -math.MaxInt64},
		{"highest, early", -100, highest, 1, end, -math.MaxInt64},
		{"longest step", 100, Low, NoTimeout, never, 1},
		{"longest step, above urgent", 0, Urgent + 2, NoTimeout, end, -4},
		{"sum past the end", never - 1, Important, 2, never, -1},
		{"sum to the end", never - 2, Important, 2, never, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, rank{c.at, c.level - 1, 9}, rankOf(c.submitted, c.priority, c.step, 9, false))
			require.Equal(t, rank{0, c.level - 1, 9}, rankOf(c.submitted, c.priority, c.step, 9, true))
		})
	}
}

func TestO1Before(t *testing.T) {
	ordered := []rank{
		{math.MinInt64, 5, 5}, {-1, math.MinInt64, 7}, {0, -2, 0}, {0, -2, math.MaxUint64}, {0, 0, 1}, {0, 0, 2},
		{0, math.MaxInt64, 0}, {1, -2, 0}, {never, math.MaxInt64, math.MaxUint64},
	}
	for i, a := range ordered {
		require.Equal(t, a, a.reversed().reversed())
		for j, b := range ordered {
			require.Equal(t, i < j, a.before(b), "%v before %v", a, b)
			require.Equal(t, i > j, a.reversed().before(b.reversed()), "%v before %v, reversed", a, b)
		}
	}
}

func TestO1ThousandMixedTasks(t *testing.T) {
	for _, strict := range []bool{false, true} {
		r := rand.New(rand.NewPCG(1, 2))
		var h, worst heap[int]
		keys := make([]rank, 1000)
		for i := range keys {
			keys[i] = rankOf(instant(r.IntN(100))*instant(time.Second), Priority(r.IntN(6)-2), 6*time.Second, uint64(i), strict)
			h.push(keys[i], &heapNode[int]{item: i})
			worst.push(keys[i].reversed(), &heapNode[int]{item: i})
		}
		slices.SortFunc(keys, compareRanks)
		want := make([]int, len(keys))
		for i, k := range keys {
			want[i] = int(k.seq)
		}
		require.Equal(t, want, drain(&h))
		slices.Reverse(want)
		require.Equal(t, want, drain(&worst), "by the worst")
	}
}

// A task rises one level for each step, then goes behind those already there.
func TestO1AgingCrossesOver(t *testing.T) {
	const step = 100 * time.Millisecond
	low := rankOf(0, 5, step, 1, false)
	for i, c := range []struct {
		submitted time.Duration
		first     bool // the low task goes first
	}{{0, false}, {499 * time.Millisecond, false}, {500 * time.Millisecond, false}, {500*time.Millisecond + 1, true}, {time.Hour, true}} {
		require.Equal(t, c.first, low.before(rankOf(instant(c.submitted), 10, step, 2+uint64(i), false)), "submitted at %v", c.submitted)
	}
}

func TestCaseH32EqualPriorityIsFIFO(t *testing.T) {
	var h heap[int]
	nodes := make([]heapNode[int], 1000)
	keyOf := func(i, level int) rank { return rankOf(0, Priority(level), time.Second, uint64(i), false) }
	keys := map[int]rank{}
	for i := range nodes {
		nodes[i].item = i
		keys[i] = keyOf(i, i%3)
		h.push(keys[i], &nodes[i])
	}
	for i := 0; i < len(nodes); i += 3 {
		require.True(t, h.remove(&nodes[i]))
		delete(keys, i)
	}
	for i := 1; i < 150; i += 3 {
		keys[i] = keyOf(i, 2)
		h.fix(&nodes[i], keys[i])
		require.Equal(t, keys[i], h.key(&nodes[i]))
	}
	var want []int
	for i := range keys {
		want = append(want, i)
	}
	slices.SortFunc(want, func(a, b int) int { return compareRanks(keys[a], keys[b]) })
	require.Equal(t, want, drain(&h))

	for i := range nodes {
		require.False(t, nodes[i].queued())
		require.False(t, h.remove(&nodes[i]), "already popped")
	}
	h.push(rank{}, &nodes[0])
	h.push(rank{at: 1}, &nodes[1])
	require.True(t, h.remove(&nodes[1]), "the last")
	require.False(t, h.remove(&nodes[1]))
	require.True(t, h.remove(&nodes[0]), "the only")
	require.Zero(t, h.len())
}

func TestHeapEmpty(t *testing.T) {
	var h heap[int]
	_, n, ok := h.top()
	require.Nil(t, n)
	require.False(t, ok)
	require.Nil(t, h.pop())
	require.False(t, h.remove(new(heapNode[int])))
}

func TestHeapEach(t *testing.T) {
	var h heap[int]
	for i := range 10 {
		h.push(rank{at: instant(-i)}, &heapNode[int]{item: i})
	}
	seen := map[int]rank{}
	for k, n := range h.each {
		seen[n.item] = k
		if len(seen) == 7 {
			break
		}
	}
	require.Len(t, seen, 7)
	for i, k := range seen {
		require.Equal(t, rank{at: instant(-i)}, k)
	}
}

func TestHeapImpossibleStatesPanic(t *testing.T) {
	var h, other heap[int]
	a, b := new(heapNode[int]), new(heapNode[int])
	h.push(rank{}, a)
	other.push(rank{}, b)
	require.PanicsWithValue(t, "ax: heap: push of a node that is queued", func() { h.push(rank{}, a) })
	require.PanicsWithValue(t, "ax: heap: push of a node that is queued", func() { other.push(rank{}, a) })
	require.PanicsWithValue(t, "ax: heap: node is not in this heap", func() { h.remove(b) })
	require.PanicsWithValue(t, "ax: heap: node is not in this heap", func() { h.fix(b, rank{}) })
	require.PanicsWithValue(t, "ax: heap: node is not in this heap", func() { h.key(new(heapNode[int])) })
}

func TestHeapShrinksAfterAPeak(t *testing.T) {
	var h heap[int]
	nodes := make([]heapNode[int], 100_000)
	for i := range nodes {
		h.push(rank{at: instant(i)}, &nodes[i])
	}
	for h.len() > 0 {
		h.pop()
		require.True(t, cap(h.slots) <= heapKeep || cap(h.slots) < 4*len(h.slots)+4, "cap %d for %d", cap(h.slots), h.len())
	}
	require.LessOrEqual(t, cap(h.slots), heapKeep)
}

// Who is taken out of the middle leaves a slot behind, but no node, and not for long.
func TestHeapLeftSlotsAreBounded(t *testing.T) {
	const n = 10_000
	var h heap[int]
	r := rand.New(rand.NewPCG(7, 8))
	nodes := make([]heapNode[int], n)
	seq := uint64(0)
	push := func(i int) { seq++; h.push(rank{at: instant(r.IntN(n)), seq: seq}, &nodes[i]) }
	sound := func() {
		inSlots := 0
		for _, s := range h.slots {
			if s.node != nil {
				inSlots++
			}
		}
		require.Equal(t, h.len(), inSlots)
		require.LessOrEqual(t, h.left, h.len())
		require.True(t, cap(h.slots) <= heapKeep || cap(h.slots) <= 8*h.len()+8, "cap %d for %d", cap(h.slots), h.len())
	}
	for i := range nodes {
		push(i)
	}
	for range 5 * n { // one goes, another comes
		i := r.IntN(n)
		require.True(t, h.remove(&nodes[i]))
		push(i)
	}
	sound()
	require.LessOrEqual(t, cap(h.slots), 3*n, "replacing does not make it grow")
	for left, i := range r.Perm(n) {
		require.True(t, h.remove(&nodes[i]))
		require.Equal(t, n-left-1, h.len())
		if left%100 == 0 {
			sound()
		}
	}
	require.LessOrEqual(t, cap(h.slots), heapKeep)
}

func TestHeapSteadyStateDoesNotAllocate(t *testing.T) {
	var h heap[int]
	nodes := make([]heapNode[int], 1000)
	for i := range nodes {
		h.push(rank{at: instant(i)}, &nodes[i])
	}
	at := instant(len(nodes))
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		n := h.pop()
		at++
		h.push(rank{at: at}, n)
		h.fix(&nodes[7], rank{at: at / 2})
		h.remove(&nodes[9])
		h.push(rank{at: at}, &nodes[9])
	}))
}

// Who comes to the top and is gone does not go one by one if many are.
func TestHeapClearsManyAtOnce(t *testing.T) {
	const n = 10_000
	var h heap[int]
	nodes := make([]heapNode[int], n)
	for i := range nodes {
		h.push(rank{at: instant(i)}, &nodes[i])
	}
	for i := 1; i < n/2; i++ { // the best but one, as many as do not cause a sweep
		h.remove(&nodes[i])
	}
	require.Equal(t, n/2-1, h.left)
	require.Same(t, &nodes[0], h.pop())
	require.Zero(t, h.left)
	for i := n / 2; i < n; i++ {
		require.Same(t, &nodes[i], h.pop())
	}
	require.Nil(t, h.pop())
}

// FuzzHeap runs programs of two bytes an operation beside a sorted slice.
func FuzzHeap(f *testing.F) {
	f.Add([]byte{0, 5, 0, 3, 0, 9, 1, 0, 2, 1, 3, 77, 1, 0, 1, 0, 1, 0})
	seed := make([]byte, 4000)
	r := rand.New(rand.NewPCG(3, 4))
	for i := range seed {
		seed[i] = byte(r.Uint32())
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, program []byte) {
		var h heap[int]
		type entry struct {
			key  rank
			node *heapNode[int]
		}
		var model []entry
		sortModel := func() { slices.SortFunc(model, func(a, b entry) int { return compareRanks(a.key, b.key) }) }
		for pc := 0; pc+1 < len(program); pc += 2 {
			op, arg := program[pc]%5, int(program[pc+1])
			key := rank{at: instant(arg % 16), level: int64(arg / 16 % 4), seq: uint64(pc)}
			switch {
			case op <= 1 || len(model) == 0:
				n := &heapNode[int]{item: pc}
				h.push(key, n)
				model = append(model, entry{key, n})
			case op == 2:
				require.Same(t, model[0].node, h.pop())
				require.False(t, model[0].node.queued())
				model = model[1:]
			case op == 3:
				i := arg % len(model)
				require.True(t, h.remove(model[i].node))
				require.False(t, h.remove(model[i].node))
				model = slices.Delete(model, i, i+1)
			default:
				i := arg * 7 % len(model)
				h.fix(model[i].node, key)
				model[i].key = key
			}
			sortModel()
			require.Equal(t, len(model), h.len())
			key, n, ok := h.top()
			require.Equal(t, len(model) > 0, ok)
			if ok {
				require.Equal(t, model[0].key, key)
				require.Same(t, model[0].node, n)
			}
		}
		for _, e := range model {
			require.Equal(t, e.key, h.key(e.node))
			require.Same(t, e.node, h.pop())
		}
		require.Nil(t, h.pop())
	})
}

// stdQueue is what container/heap asks for.
type stdQueue []*stdItem

type stdItem struct {
	key   rank
	index int
	_     [10]uint64
}

func (q stdQueue) Len() int           { return len(q) }
func (q stdQueue) Less(i, j int) bool { return q[i].key.before(q[j].key) }
func (q stdQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}
func (q *stdQueue) Push(x any) {
	x.(*stdItem).index = len(*q)
	*q = append(*q, x.(*stdItem))
}
func (q *stdQueue) Pop() any {
	end := len(*q) - 1
	x := (*q)[end]
	(*q)[end] = nil
	*q = (*q)[:end]
	return x
}

// benchmarkHeaps runs two operations on a queue of each size: a turn, and taking out
// half, whose places others then take (what a removal leaves to do is done there). Nodes are as
// large as a small task, apart in memory and taken in random order.
func benchmarkHeaps[N any](b *testing.B, create func() N, push func(N, rank), pop func() N, remove func(N)) {
	for _, size := range []int{100, 1_000, 10_000, 100_000, 1_000_000} {
		r := rand.New(rand.NewPCG(5, 6))
		seq := uint64(0)
		// Later tasks rank mostly later, with priorities mixed.
		next := func() rank {
			seq++
			return rankOf(instant(seq)*1000, Priority(seq*7%4)-1, 100*time.Millisecond, seq, false)
		}
		nodes := slices.Collect(func(yield func(N) bool) {
			for range size {
				yield(create())
			}
		})
		for _, n := range nodes {
			push(n, next())
		}
		b.Run(fmt.Sprintf("op=turn/n=%d", size), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				push(pop(), next())
			}
		})
		b.Run(fmt.Sprintf("op=remove/n=%d", size), func(b *testing.B) {
			var removing, all time.Duration
			for b.Loop() {
				r.Shuffle(size, func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
				began := time.Now()
				for _, n := range nodes[:size/2] {
					remove(n)
				}
				removing += time.Since(began)
				for _, n := range nodes[:size/2] {
					push(n, next())
				}
				all += time.Since(began)
			}
			perItem := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / float64(b.N*(size/2)) }
			b.ReportMetric(perItem(removing), "ns/remove")
			b.ReportMetric(perItem(all), "ns/replace")
		})
		for range size {
			pop()
		}
	}
}

func BenchmarkHeap(b *testing.B) {
	type node = heapNode[[10]uint64]
	var h heap[[10]uint64]
	benchmarkHeaps(b, func() *node { return new(node) },
		func(n *node, key rank) { h.push(key, n) }, h.pop, func(n *node) { h.remove(n) })
}

func BenchmarkContainerHeap(b *testing.B) {
	var q stdQueue
	benchmarkHeaps(b, func() *stdItem { return new(stdItem) },
		func(n *stdItem, key rank) { n.key = key; stdheap.Push(&q, n) },
		func() *stdItem { return stdheap.Pop(&q).(*stdItem) },
		func(n *stdItem) { stdheap.Remove(&q, n.index) })
}

// queued reports whether n is in a heap.
func (n *heapNode[T]) queued() bool { return n.pos != 0 }
