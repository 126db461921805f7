package ax

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGate(t *testing.T) {
	var g gate
	for range 1000 {
		require.True(t, g.take(), "no limit")
	}
	g.setLimit(2)
	require.False(t, g.take())
	for range 998 {
		require.False(t, g.release())
	}
	require.False(t, g.free(), "drained to the limit, not below")
	g.release()
	require.True(t, g.take())
	require.False(t, g.take())
	g.release()
	g.release()
	require.PanicsWithValue(t, "ax: gate: release of a slot that was not taken", func() { g.release() })
}

func TestGateGuarded(t *testing.T) {
	var g gate
	g.setLimit(2)
	require.True(t, g.pass())
	g.guard(true)
	g.guard(true)
	require.True(t, g.isGuarded())
	require.False(t, g.pass(), "only under the mutex")
	require.True(t, g.take())
	require.False(t, g.free())
	require.Equal(t, 2, g.active())
	require.True(t, g.release(), "to be handed on")
	g.guard(false)
	require.True(t, g.pass())
	require.False(t, g.release())
	require.False(t, g.release())
	require.Zero(t, g.active())
	g.guard(true)
	require.PanicsWithValue(t, "ax: gate: release of a slot that was not taken", func() { g.release() })
}

// Whoever comes to wait and whoever leaves without the lock never miss each
// other, and the limit holds.
func TestGateNoLostWakeup(t *testing.T) {
	var g gate
	g.setLimit(1)
	var mu sync.Mutex
	var wg sync.WaitGroup
	var inside atomic.Int32
	for range 4 {
		wg.Go(func() {
			for range 2000 {
				if !g.pass() {
					mu.Lock()
					g.guard(true)
					ok := g.take()
					g.guard(false)
					mu.Unlock()
					if !ok {
						continue
					}
				}
				require.LessOrEqual(t, inside.Add(1), int32(1))
				inside.Add(-1)
				g.release()
			}
		})
	}
	wg.Wait()
	require.Zero(t, g.active())
	require.True(t, g.free())
}
