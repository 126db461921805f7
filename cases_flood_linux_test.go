package ax_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// dFlood is the size of the flood: waves of n requests to a server that answers
// after 0 to 5 units, with a timeout of 2 units.
type dFlood struct {
	waves, n int
	unit     time.Duration
}

func dFloodSize() dFlood {
	switch {
	case testing.Short():
		return dFlood{1, 200, 50 * dms}
	case dRace:
		return dFlood{10, 1000, 250 * dms}
	}
	return dFlood{4, 2500, time.Second}
}

// dUsage is what a process holds.
type dUsage struct {
	Goroutines, Files int
	Heap              int64
}

func dUse(t *testing.T) dUsage {
	files, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return dUsage{runtime.NumGoroutine(), len(files), dHeap()}
}

// TestFloodOfTimeouts: half a second after the timeouts of ten thousand requests
// goroutines, sockets and heap are back where they were.
func TestFloodOfTimeouts(t *testing.T) {
	size := dFloodSize()
	timeout := 2 * size.unit
	srv := dServe(t, func(w http.ResponseWriter, r *http.Request) {
		if d, err := time.ParseDuration(r.URL.Query().Get("d")); err == nil {
			dPause(r.Context(), d)
		}
	})
	tr := srv.Client().Transport.(*http.Transport)
	s, err := ax.New(&http.Client{Transport: tr}, ax.Config{MaxConcurrent: ax.NoLimit, MaxQueue: ax.NoLimit, Dedupe: &ax.Dedupe{}})
	require.NoError(t, err)
	defer s.Close()
	_, err = s.Get(dBG, srv.URL)
	require.NoError(t, err)
	tr.CloseIdleConnections()
	base := dUse(t)
	var answered, timedOut atomic.Int64
	late := 0
	for wave := range size.waves {
		start := time.Now()
		dWave(t, s, srv.URL, size, wave, &answered, &timedOut)
		took := time.Since(start)
		require.Less(t, took, timeout+10*time.Second, "nobody waits past the timeout")
		if took > timeout+timeout/5+500*dms {
			late++
		}
	}
	require.LessOrEqual(t, late, size.waves/2, "but for what else the machine does, at once")
	tr.CloseIdleConnections()
	settling := 500 * dms
	if dRace {
		settling *= 10 // as much as the detector slows
	}
	var end dUsage
	dWithin(t, settling, func() bool {
		end = dUse(t)
		return end.Goroutines <= base.Goroutines+2 && end.Files <= base.Files+2 && end.Heap <= base.Heap+16<<20 // the runtime keeps the descriptors of tens of thousands of goroutines
	}, func() string { return fmt.Sprintf("before %+v, %v after %+v", base, settling, end) })
	t.Logf("%d answered, %d timed out; before %+v, after %+v", answered.Load(), timedOut.Load(), base, end)
	require.EqualValues(t, size.waves*size.n, answered.Load()+timedOut.Load())
	require.NotZero(t, answered.Load())
	require.Greater(t, timedOut.Load(), int64(size.waves*size.n/2))
	st := s.Stats()
	require.Zero(t, st.Active+st.Queued+st.Parked)
	require.Zero(t, st.DedupeEntries)
}

// dWave sends one wave; odd requests time out by the attempt, even ones by their caller.
func dWave(t *testing.T, s *ax.Scheduler, url string, size dFlood, wave int, answered, timedOut *atomic.Int64) {
	var wg sync.WaitGroup
	for i := range size.n {
		delay := time.Duration((i*7919+wave)%5000) * size.unit / 1000
		r := ax.Request{URL: fmt.Sprintf("%s/?d=%v&i=%d", url, delay, i)}
		wg.Go(func() {
			life := 2 * size.unit
			if i%2 == 1 {
				r.AttemptTimeout, life = life, time.Hour
			}
			ctx, cancel := context.WithTimeout(dBG, life)
			defer cancel()
			_, err := s.Send(ctx, r)
			switch {
			case err == nil && delay <= 3*size.unit: // timers ring late on a busy machine
				answered.Add(1)
			case err != nil && dTimedOut(err):
				timedOut.Add(1)
			default:
				t.Errorf("delay %v: %v", delay, err)
			}
		})
	}
	wg.Wait()
}

func dTimedOut(err error) bool {
	e, ok := err.(*ax.Error)
	return ok && e.Timeout()
}

// dWithin waits up to d for ok; outside bubbles.
func dWithin(t *testing.T, d time.Duration, ok func() bool, msg func() string) {
	for deadline := time.Now().Add(d); !ok(); dPause(dBG, 5*dms) {
		if time.Now().After(deadline) {
			require.Fail(t, msg())
		}
	}
}
