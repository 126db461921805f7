package ax_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// story is the events of one task, in the order in which they were told.
type story []ax.Event

// check is what every story must be, whatever happened to the task: nil if it is.
// A task that joined a flight speaks for it once those before it have left, so it
// may come to an attempt late.
func (s story) check() error {
	attempt, running, joined := 0, false, false
	for i, e := range s {
		if (i == 0) != (e.Kind == ax.EventSubmitted) {
			return fmt.Errorf("event %d is %v", i, e.Kind)
		}
		if (i == len(s)-1) != ended(e.Kind) {
			return fmt.Errorf("event %d of %d is %v", i, len(s), e.Kind)
		}
		switch e.Kind {
		case ax.EventCoalesced:
			joined = true
		case ax.EventStarted:
			if running || e.Attempt <= attempt || !joined && e.Attempt != attempt+1 {
				return fmt.Errorf("attempt %d starts after %d", e.Attempt, attempt)
			}
			attempt, running = e.Attempt, true
		case ax.EventAttemptDone:
			if !joined && (!running || e.Attempt != attempt) || e.Attempt < attempt {
				return fmt.Errorf("attempt %d ends, %d was the latest to start", e.Attempt, attempt)
			}
			attempt, running = e.Attempt, false
		}
	}
	if last := s[len(s)-1]; !joined && last.Attempt != attempt {
		return fmt.Errorf("ends after %d attempts, of which %d were told of", last.Attempt, attempt)
	}
	return nil
}

func ended(k ax.EventKind) bool {
	return k == ax.EventSucceeded || k == ax.EventFailed || k == ax.EventCanceled || k == ax.EventRejected
}

// TestX2EventsOfRacingTasks: 20,000 tasks of every kind, of which some fail, are
// refused, share or are left, by all processors at once: each has its whole story,
// in order, and it ends as its caller was answered.
func TestX2EventsOfRacingTasks(t *testing.T) {
	const tasks, callers = 20_000, 32
	var mu sync.Mutex
	stories := map[uint64]story{}
	s := qReal(t, ax.Config{
		MaxConcurrent: 8, MaxQueue: 20, Retry: &ax.Retry{Max: 1, BaseDelay: time.Microsecond, Budget: 1},
		OnEvent: func(e ax.Event) {
			if e.Seq == 0 {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			stories[e.Seq] = append(stories[e.Seq], e)
		},
	}, func(context.Context, *ax.Task) (*http.Response, error) {
		switch rand.IntN(8) {
		case 0:
			return nil, fmt.Errorf("broken")
		case 1:
			runtime.Gosched()
		}
		return &http.Response{StatusCode: 200}, nil
	})
	canceled := func(err error) bool { return errors.Is(err, context.Canceled) }
	refusal := func(err error) bool { return errors.Is(err, ax.ErrQueueFull) }
	ends := map[ax.EventKind]int{} // as the callers saw them
	end := func(err error, refused bool) {
		kind := ax.EventSucceeded
		if err != nil {
			kind = ax.EventFailed
		}
		if refused {
			kind = ax.EventRejected
		}
		mu.Lock()
		defer mu.Unlock()
		ends[kind]++
	}
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(c), 1))
			for range tasks / callers {
				task := ax.Must(ax.Request{URL: fmt.Sprintf("http://h%d.test/", r.IntN(4)), Dedupe: r.IntN(3) == 0}.Task())
				switch r.IntN(4) {
				case 0:
					call := s.Submit(t.Context(), task)
					_, err := call.Result()
					end(err, refusal(err))
				case 1:
					ctx, cancel := context.WithCancel(t.Context())
					go cancel() // ends at once
					_, err := s.Do(ctx, task)
					if !canceled(err) {
						end(err, refusal(err))
					}
					cancel()
				default:
					_, err := s.Do(t.Context(), task)
					end(err, refusal(err))
				}
			}
		})
	}
	wg.Wait()
	require.NoError(t, s.Close())
	require.Len(t, stories, tasks)
	told := map[ax.EventKind]int{}
	for seq, story := range stories {
		require.NoError(t, story.check(), "task %d: %v", seq, story)
		told[story[len(story)-1].Kind]++
	}
	for _, kind := range []ax.EventKind{ax.EventSucceeded, ax.EventFailed, ax.EventRejected} {
		require.Equal(t, ends[kind], told[kind], kind.String())
		require.NotZero(t, told[kind], kind.String())
	}
}

// TestStatsOfManyLanes: a look at ten thousand lanes takes at most 20 ms, so one
// each second costs nothing.
func TestStatsOfManyLanes(t *testing.T) {
	const lanes = 10_000
	s := qReal(t, ax.Config{Hosts: &ax.Lane{MaxConcurrent: 4, Rate: ax.PerSecond(100), Breaker: &ax.Breaker{}}}, qNoop)
	for _, task := range qTasks(lanes) {
		_, err := s.Do(t.Context(), task)
		require.NoError(t, err)
	}
	best := time.Hour
	for i := 0; i < 5 || i < 50 && best >= 20*time.Millisecond; i++ {
		begin := time.Now()
		stats := s.Stats()
		best = min(best, time.Since(begin))
		require.Len(t, stats.Lanes, lanes)
	}
	if !raceEnabled {
		require.Less(t, best, 20*time.Millisecond)
	}
}

func BenchmarkStatsOfManyLanes(b *testing.B) {
	s := qReal(b, ax.Config{Hosts: &ax.Lane{MaxConcurrent: 4, Rate: ax.PerSecond(100), Breaker: &ax.Breaker{}}}, qNoop)
	for _, task := range qTasks(10_000) {
		_, err := s.Do(b.Context(), task)
		require.NoError(b, err)
	}
	for b.Loop() {
		s.Stats()
	}
}
