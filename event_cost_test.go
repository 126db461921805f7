package ax_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// eventPair is a call of a task by a scheduler that nobody listens to, and by one
// whose every event is counted.
func eventPair(t *testing.T) (silent, heard func(), told *int) {
	told = new(int)
	header := http.Header{}
	exec := func(context.Context, *ax.Task) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Header: header, Body: http.NoBody}, nil
	}
	call := func(onEvent func(ax.Event)) func() {
		s := qReal(t, ax.Config{
			Rate: []ax.Rate{{Limit: 1_000_000_000, Burst: 1_000_000}}, Retry: &ax.Retry{}, Breaker: &ax.Breaker{}, OnEvent: onEvent,
		}, exec)
		task := ax.Must(ax.Request{URL: "http://a.test/"}.Task())
		return func() {
			if _, err := s.Do(t.Context(), task); err != nil {
				t.Error(err)
			}
		}
	}
	return call(nil), call(func(ax.Event) { *told++ }), told
}

// An event allocates nothing.
func TestEventAllocatesNothing(t *testing.T) {
	silent, heard, told := eventPair(t)
	heard()
	require.Equal(t, 4, *told, "submitted, started, attempt-done, succeeded")
	require.Equal(t, testing.AllocsPerRun(1000, silent), testing.AllocsPerRun(1000, heard))
}

// An event costs at most a tenth of a call that does nothing: with four of them a
// call takes at most 1.4 times as long.
func TestEventCostsATenth(t *testing.T) {
	if raceEnabled {
		t.Log("the race detector's own cost is not the question: allocations are checked with it, times without")
		return
	}
	silent, heard, _ := eventPair(t)
	batch := func(call func()) func() time.Duration {
		return func() time.Duration {
			begin := time.Now()
			for range 5000 {
				call()
			}
			return time.Since(begin)
		}
	}
	quiet, loud := batch(silent), batch(heard)
	bestQuiet, bestLoud := quiet(), loud()
	for round := 0; round < 400 && (round < 5 || bestLoud > bestQuiet*7/5); round++ { // a busy machine makes a round longer, never shorter
		bestQuiet, bestLoud = min(bestQuiet, quiet()), min(bestLoud, loud())
	}
	require.LessOrEqual(t, bestLoud, bestQuiet*7/5)
}
