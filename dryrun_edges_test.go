package ax_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// A ghost that is refused while it waits is no flight: its end takes nothing off the
// list of what is unfinished, which Shutdown is to end.
func TestX8RefusedGhostLeavesTheUnfinishedAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := ax.New(nil, ax.Config{
			DryRun: true,
			Executor: ax.ExecutorFunc(func(ctx context.Context, task *ax.Task) (*http.Response, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}),
		})
		require.NoError(t, err)
		require.NoError(t, s.Pause("a.test"))
		call := s.Submit(context.Background(), ax.Must(ax.Request{URL: "http://a.test/"}.Task()))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		require.ErrorIs(t, s.Shutdown(ctx), context.DeadlineExceeded)
		synctest.Wait()
		select {
		case <-call.Done():
		default:
			call.Cancel()
			t.Fatal("Shutdown has ended nothing")
		}
	})
}

func TestX8RefusedGhostOfAnOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := ax.New(nil, ax.Config{
			DryRun: true, MaxConcurrent: 1,
			Budgets: map[string]ax.Budget{"o": {MaxConcurrent: 1, Over: ax.OverReject}},
			Executor: ax.ExecutorFunc(func(ctx context.Context, task *ax.Task) (*http.Response, error) {
				select {
				case <-ctx.Done():
					return nil, ctx.Err()
				case <-time.After(time.Second):
				}
				return reply(200, ""), nil
			}),
		})
		require.NoError(t, err)
		s.Submit(context.Background(), ax.Must(ax.Request{URL: "http://a.test/1"}.Task()))
		s.Submit(context.Background(), ax.Must(ax.Request{URL: "http://a.test/2", Owner: "o"}.Task()))
		s.Submit(context.Background(), ax.Must(ax.Request{URL: "http://a.test/3", Owner: "o"}.Task()))
		time.Sleep(10 * time.Second)
		require.EqualValues(t, 1, s.Stats().Would.Rejected)
		s.Close()
	})
}

// DryRun has no fallback.
func TestX8NoFallbackForTheDeaf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := ax.New(nil, ax.Config{
			DryRun: true, MaxConcurrent: 1, AttemptTimeout: time.Second,
			Fallback: &ax.Fallback{Static: func(context.Context, *ax.Task, error) (*http.Response, error) {
				return reply(200, "static"), nil
			}},
			Executor: ax.ExecutorFunc(func(ctx context.Context, task *ax.Task) (*http.Response, error) {
				if task.URL() == "http://a.test/deaf" {
					time.Sleep(5 * time.Second)
				}
				return reply(200, ""), nil
			}),
		})
		require.NoError(t, err)
		defer s.Close()
		_, err = s.Submit(context.Background(), ax.Must(ax.Request{URL: "http://a.test/deaf"}.Task())).Result()
		if err == nil {
			t.Error("a fallback answered in DryRun")
		}
		time.Sleep(time.Hour)
		_, err = s.Get(context.Background(), "http://a.test/next")
		require.NoError(t, err)
		require.Zero(t, s.Stats().Would.Queued, "nothing was under way")
	})
}
