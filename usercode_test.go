package ax_test

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

type nilableError struct{ text string }

func (e *nilableError) Error() string { return e.text } // panics for a typed nil, as most do

func within(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(3 * time.Second):
		buf := make([]byte, 1<<20)
		t.Log(string(buf[:runtime.Stack(buf, true)]))
		t.Fatal("wedged: " + what)
	}
}

func hanging(t *testing.T, cfg ax.Config) *ax.Scheduler {
	cfg.Executor = ax.ExecutorFunc(func(ctx context.Context, task *ax.Task) (*http.Response, error) {
		if task.URL() != at("/hangs") {
			return reply(500, ""), nil
		}
		<-ctx.Done()
		return nil, ctx.Err()
	})
	s, err := ax.New(nil, cfg)
	require.NoError(t, err)
	return s
}

// The text of a scope's cause is users' code: its panic must not leave the mutex locked.
func TestUsersCodeScopeCausePanics(t *testing.T) {
	s := hanging(t, ax.Config{})
	sc := s.Scope(context.Background())
	sc.Submit(context.Background(), ax.Must(ax.Request{URL: at("/hangs")}.Task()))
	var cause *nilableError
	func() {
		defer func() { _ = recover() }() // as net/http does
		sc.Cancel(cause)
	}()
	within(t, "Stats", func() { s.Stats() })
}

type askingError struct{ s *ax.Scheduler }

func (e askingError) Error() string { e.s.Stats(); return "asking" }

func TestUsersCodeScopeCauseAsksBack(t *testing.T) {
	s := hanging(t, ax.Config{})
	sc := s.Scope(context.Background())
	sc.Submit(context.Background(), ax.Must(ax.Request{URL: at("/hangs")}.Task()))
	within(t, "Scope.Cancel", func() { sc.Cancel(askingError{s}) })
}

// A fallback's context is made of the caller's, which is users' code.
func TestUsersCodeContextOfAFallbackAsksBack(t *testing.T) {
	s := hanging(t, ax.Config{Fallback: &ax.Fallback{Static: func(context.Context, *ax.Task, error) (*http.Response, error) {
		return reply(200, "static"), nil
	}}})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	within(t, "Get", func() {
		_, err := s.Get(askingCtx{ctx, s}, at("/"))
		require.NoError(t, err)
	})
}

// unwrapsError asks back when looked through.
type unwrapsError struct{ s *ax.Scheduler }

func (e unwrapsError) Error() string { return "unwraps" }
func (e unwrapsError) Unwrap() error { e.s.Stats(); return errors.New("inner") }

func TestUsersCodeErrorOfAWriteAsksBack(t *testing.T) {
	var s *ax.Scheduler
	s, err := ax.New(nil, ax.Config{Executor: ax.ExecutorFunc(func(ctx context.Context, task *ax.Task) (*http.Response, error) {
		return nil, unwrapsError{s}
	})})
	require.NoError(t, err)
	within(t, "Send of a POST", func() {
		_, err := s.Send(context.Background(), ax.Request{Method: "POST", URL: at("/")})
		require.Error(t, err)
	})
}

// Retry.If ends the goroutine that judges an attempt which was left behind.
func TestGoexitWhileJudgingWhatWasLeftBehind(t *testing.T) {
	s, err := ax.New(nil, ax.Config{
		AttemptTimeout: 20 * time.Millisecond,
		Retry:          &ax.Retry{If: func(ax.Outcome) bool { runtime.Goexit(); return false }},
		Executor: ax.ExecutorFunc(func(ctx context.Context, task *ax.Task) (*http.Response, error) {
			time.Sleep(200 * time.Millisecond)
			return reply(200, ""), nil
		}),
	})
	require.NoError(t, err)
	call := s.Submit(context.Background(), ax.Must(ax.Request{URL: at("/")}.Task()))
	within(t, "Result", func() {
		_, err := call.Result()
		require.Error(t, err)
	})
}
