package ax

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMultimapModel: against a map of maps, also while what is visited is removed.
func TestMultimapModel(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		var m multimap[int, int]
		model := map[int]map[int]bool{}
		for range 400 {
			k, v := r.IntN(3), 1+r.IntN(6)
			switch r.IntN(5) {
			case 0, 1:
				m.add(k, v)
				if model[k] == nil {
					model[k] = map[int]bool{}
				}
				model[k][v] = true
			case 2, 3:
				m.remove(k, v)
				delete(model[k], v)
			default:
				seen := map[int]int{}
				m.each(k, func(v int) {
					seen[v]++
					if r.IntN(3) == 0 {
						m.remove(k, v)
						delete(model[k], -v)
						model[k][v] = false
					}
				})
				for v, in := range model[k] {
					if in {
						require.Equal(t, 1, seen[v])
					}
					if !in {
						delete(model[k], v)
					}
				}
			}
		}
		for k := range 3 {
			n := 0
			m.each(k, func(v int) { n++; require.True(t, model[k][v]) })
			require.Equal(t, len(model[k]), n)
			if n == 0 {
				_, ok := m.sets.m[k]
				require.False(t, ok)
			}
		}
	}
}
