package ax

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// watchedScheduler has one slot, which is taken.
func watchedScheduler(t *testing.T, onEvent func(Event)) (*Scheduler, *Task) {
	t.Helper()
	s, err := New(nil, Config{MaxConcurrent: 1, MaxQueue: NoLimit, OnEvent: onEvent, Executor: ExecutorFunc(func(ctx context.Context, _ *Task) (*http.Response, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	task := Must(Request{URL: "http://a.test/"}.Task())
	s.Submit(context.Background(), task)
	return s, task
}

func (s *Scheduler) watched() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watches.len()
}

var errBatch = errors.New("the batch is off")

// TestX1CallsOfOneContextEndTogether: with its cause, at once, and nothing watches
// the context any more.
func TestX1CallsOfOneContextEndTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, task := watchedScheduler(t, nil)
		synctest.Wait() // the task under way has its goroutine
		before := runtime.NumGoroutine()
		ctx, cancel := context.WithCancelCause(t.Context())
		calls := make([]*Call, 1000)
		for i := range calls {
			calls[i] = s.Submit(ctx, task)
		}
		other := s.Submit(t.Context(), task)
		synctest.Wait()
		require.Equal(t, 2, s.watched())
		require.Less(t, runtime.NumGoroutine(), before+100, "a waiting Call costs no goroutine") // others' come and go
		for _, c := range calls[100:200] {
			c.Cancel()
		}
		require.Equal(t, 901, s.Stats().Queued)
		cancel(errBatch)
		synctest.Wait()
		require.Equal(t, 1, s.watched())
		require.Equal(t, 1, s.Stats().Queued)
		for i, c := range calls {
			_, err := c.Result()
			require.ErrorIs(t, err, context.Canceled)
			require.Equal(t, i < 100 || i >= 200, errors.Is(err, errBatch), i)
		}
		other.Cancel()
		require.Zero(t, s.watched())
		require.Equal(t, uint64(1001), s.Stats().Canceled)
	})
}

// plainCtx is a context whose values say nothing of which one it is, and which cannot
// be a key of a map.
type plainCtx struct {
	context.Context
	_ []int
}

// TestX1CallsOfAContextThatIsNoPointer: they are watched one by one.
func TestX1CallsOfAContextThatIsNoPointer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, task := watchedScheduler(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		a, b := s.Submit(plainCtx{Context: ctx}, task), s.Submit(plainCtx{Context: ctx}, task)
		require.Zero(t, s.watched())
		a.Cancel()
		cancel()
		for _, c := range []*Call{a, b} {
			_, err := c.Result()
			require.ErrorIs(t, err, context.Canceled)
		}
	})
}

// TestX1AListenerThatEndsTheGoroutineLosesNoCall of those that end with it.
func TestX1AListenerThatEndsTheGoroutineLosesNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told atomic.Int32
		s, task := watchedScheduler(t, func(e Event) {
			if e.Kind == EventCanceled && told.Add(1)%100 == 7 {
				runtime.Goexit()
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		var calls []*Call
		for range 500 {
			calls = append(calls, s.Submit(ctx, task))
		}
		cancel()
		synctest.Wait()
		require.EqualValues(t, 500, told.Load())
		for _, c := range calls {
			_, err := c.Result()
			require.ErrorIs(t, err, context.Canceled)
		}
		require.Zero(t, s.watched())
	})
}

// TestX1SubmitWhileTheContextEnds: whoever comes first, each Call ends.
func TestX1SubmitWhileTheContextEnds(t *testing.T) {
	s, task := watchedScheduler(t, nil)
	for range 500 {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan *Call, 3)
		for range cap(done) {
			go func() { done <- s.Submit(ctx, task) }()
		}
		go cancel()
		for range cap(done) {
			select {
			case <-(<-done).Done():
			case <-time.After(10 * time.Second):
				require.Fail(t, "a Call outlived its context")
			}
		}
	}
	require.Zero(t, s.watched())
}

// pooledCtx is used again, as some web frameworks do with theirs.
type pooledCtx struct{ context.Context }

// TestX1APooledContextIsAnother: where a context is used again for the next request, its
// old Calls end with the old one, the new ones with the new.
func TestX1APooledContextIsAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, task := watchedScheduler(t, nil)
		one, endOne := context.WithCancel(t.Context())
		two, endTwo := context.WithCancel(t.Context())
		p := &pooledCtx{one}
		a := s.Submit(p, task)
		p.Context = two
		b, c := s.Submit(p, task), s.Submit(p, task)
		endOne()
		_, err := a.Result()
		require.ErrorIs(t, err, context.Canceled)
		synctest.Wait()
		require.Equal(t, 2, s.Stats().Queued)
		endTwo()
		for _, call := range []*Call{b, c} {
			_, err = call.Result()
			require.ErrorIs(t, err, context.Canceled)
		}
		require.Zero(t, s.watched())
	})
}
