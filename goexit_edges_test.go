package ax_test

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// goexitBody ends the goroutine that closes it.
type goexitBody struct{ io.Reader }

func (goexitBody) Close() error { runtime.Goexit(); return nil }

// qBlock answers when its attempt has ended.
func qBlock(ctx context.Context, _ *ax.Task) (*http.Response, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// qLeaveByGoexit has a caller leave the queue whose body ends its goroutine.
func qLeaveByGoexit(t *testing.T, s *ax.Scheduler, r ax.Request) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequest("POST", at("/p"), goexitBody{strings.NewReader("hello")})
	require.NoError(t, err)
	go s.Do(ctx, ax.Must(ax.TaskFrom(req, r)))
	synctest.Wait()
	cancel()
	synctest.Wait()
}

// qCloses requires that nothing holds Close up.
func qCloses(t *testing.T, s *ax.Scheduler) {
	t.Helper()
	closed := make(chan struct{})
	go func() { s.Close(); close(closed) }()
	time.Sleep(time.Minute)
	select {
	case <-closed:
	default:
		t.Errorf("Close hangs: %d active", s.Stats().Active)
	}
}

// TestX6GoexitWhileLeavingHoldsNobodyUp who leaves later.
func TestX6GoexitWhileLeavingHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := qReal(t, ax.Config{MaxConcurrent: 1}, qBlock)
		go s.Get(t.Context(), at("/"))
		synctest.Wait()
		qLeaveByGoexit(t, s, ax.Request{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { s.Get(ctx, at("/")); close(done) }()
		synctest.Wait()
		cancel()
		synctest.Wait()
		select {
		case <-done:
		default:
			t.Error("a Do outlived its ctx")
			s.Close()
		}
	})
}

// TestX6GoexitWhileLeavingIsAnEnd: of a task that is alone.
func TestX6GoexitWhileLeavingIsAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ends atomic.Int32
		s, err := ax.New(nil, ax.Config{MaxConcurrent: 1, OnEvent: func(e ax.Event) {
			if e.Kind == ax.EventCanceled && e.Seq == 2 {
				ends.Add(1)
			}
		}, Executor: ax.ExecutorFunc(qBlock)})
		require.NoError(t, err)
		go s.Get(t.Context(), at("/"))
		synctest.Wait()
		qLeaveByGoexit(t, s, ax.Request{})
		if ends.Load() != 1 {
			t.Errorf("terminal events: %d", ends.Load())
		}
		qCloses(t, s)
	})
}

// TestX6GoexitWhileLeavingAFlightIsAnEnd: of one that could be shared.
func TestX6GoexitWhileLeavingAFlightIsAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := ax.New(nil, ax.Config{MaxConcurrent: 1, Executor: ax.ExecutorFunc(qBlock)})
		require.NoError(t, err)
		go s.Get(t.Context(), at("/"))
		synctest.Wait()
		qLeaveByGoexit(t, s, ax.Request{DedupeKey: "k"})
		qCloses(t, s)
	})
}

// TestX6GoexitOfAnotherTasksListenerAtAdmission: the newcomer's slot comes back.
func TestX6GoexitOfAnotherTasksListenerAtAdmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := ax.New(nil, ax.Config{OnEvent: func(e ax.Event) {
			if e.Kind == ax.EventCanceled && e.Seq == 1 {
				runtime.Goexit()
			}
		}, Executor: ax.ExecutorFunc(qBlock)})
		require.NoError(t, err)
		s.Submit(t.Context(), ax.Must(ax.Request{URL: at("/"), Supersede: "n"}.Task()))
		synctest.Wait()
		go s.Send(t.Context(), ax.Request{URL: at("/"), Supersede: "n"})
		synctest.Wait()
		qCloses(t, s)
	})
}

// TestX6GoexitOfAnotherTasksListenerAtSubmit: the Call lives on, and ends with its
// context.
func TestX6GoexitOfAnotherTasksListenerAtSubmit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ends atomic.Int32
		s, err := ax.New(nil, ax.Config{OnEvent: func(e ax.Event) {
			if e.Kind == ax.EventCanceled && ends.Add(1) == 1 {
				runtime.Goexit()
			}
		}, Executor: ax.ExecutorFunc(qBlock)})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		s.Submit(t.Context(), ax.Must(ax.Request{URL: at("/"), Supersede: "n"}.Task()))
		synctest.Wait()
		go s.Submit(ctx, ax.Must(ax.Request{URL: at("/"), Supersede: "n"}.Task()))
		synctest.Wait()
		require.Equal(t, 1, s.Stats().Active)
		cancel()
		synctest.Wait()
		require.Zero(t, s.Stats().Active)
		require.EqualValues(t, 2, ends.Load())
		require.NoError(t, s.Close())
	})
}
