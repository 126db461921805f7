package ax

// table is a map that gives memory back: a Go map keeps the room of its largest
// time for good, and a scheduler's tables see floods. The zero table is empty.
type table[K comparable, V any] struct {
	m    map[K]V
	peak int // entries since the map was made
}

// tableKeep is the size up to which the room is not worth giving back.
const tableKeep = 256

func (t *table[K, V]) get(k K) V { return t.m[k] }

func (t *table[K, V]) set(k K, v V) {
	if t.m == nil {
		t.m = make(map[K]V)
	}
	t.m[k] = v
	t.peak = max(t.peak, len(t.m))
}

// remove takes k out; at an eighth of the peak it moves the rest into a smaller
// map, which costs less than what had to leave before.
func (t *table[K, V]) remove(k K) {
	delete(t.m, k)
	if t.peak <= tableKeep || len(t.m) > t.peak/8 {
		return
	}
	small := make(map[K]V, len(t.m))
	for k, v := range t.m {
		small[k] = v
	}
	t.m, t.peak = small, len(small)
}

func (t *table[K, V]) len() int { return len(t.m) }
