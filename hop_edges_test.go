package ax

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// hopEdges runs one task whose executor is do, beside an executor of package http
// that it may use as often as it likes.
func hopEdges(t *testing.T, do func(ctx context.Context, task *Task, send Executor) (*http.Response, error)) (*Scheduler, *Response, error) {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/from" {
			http.Redirect(w, r, "/to", http.StatusFound)
		}
	}))
	t.Cleanup(srv.Close)
	send := HTTPExecutor(srv.Client())
	s, err := New(nil, Config{Executor: ExecutorFunc(func(ctx context.Context, task *Task) (*http.Response, error) {
		return do(ctx, task, send)
	})})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	resp, err := s.Get(t.Context(), srv.URL+"/from")
	return s, resp, err
}

// TestL7TwoHopsAtOnce: an executor that sends twice may be redirected twice at the
// same time, and both hops belong to the one attempt.
func TestL7TwoHopsAtOnce(t *testing.T) {
	for range 50 {
		s, resp, err := hopEdges(t, func(ctx context.Context, task *Task, send Executor) (*http.Response, error) {
			var wg sync.WaitGroup
			var second *http.Response
			wg.Go(func() {
				if resp, err := send.Execute(ctx, task); err == nil {
					second = resp
				}
			})
			first, err := send.Execute(ctx, task)
			wg.Wait()
			if second != nil {
				second.Body.Close()
			}
			return first, err
		})
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.Equal(t, uint64(1), s.Stats().Attempts)
		require.Zero(t, s.Stats().Active)
	}
}

// TestL7HopAfterTheEnd: a request that an executor left behind is not let through
// once its attempt is over, whoever ended it.
func TestL7HopAfterTheEnd(t *testing.T) {
	var left hopper
	s, _, err := hopEdges(t, func(ctx context.Context, task *Task, send Executor) (*http.Response, error) {
		left = hopperFrom(ctx)
		return &http.Response{StatusCode: http.StatusOK}, nil
	})
	require.NoError(t, err)
	req := httptest.NewRequest(http.MethodGet, "http://a.test/", nil)
	_, err = left.hop(req, http.StatusFound)
	require.ErrorIs(t, err, context.Canceled)
	st := s.Stats()
	require.Equal(t, uint64(1), st.Attempts)
	require.Zero(t, st.Active)
}

// TestL7HopDuringAStream: the same while the body of the answer is still being read.
func TestL7HopDuringAStream(t *testing.T) {
	var left hopper
	s, resp, err := hopEdges(t, func(ctx context.Context, task *Task, send Executor) (*http.Response, error) {
		left = hopperFrom(ctx)
		body, w := io.Pipe()
		go func() { <-ctx.Done(); w.Close() }()
		return &http.Response{StatusCode: http.StatusOK, ContentLength: -1, Body: body, Header: http.Header{"Content-Type": {"text/event-stream"}}}, nil
	})
	require.NoError(t, err)
	req := httptest.NewRequest(http.MethodGet, "http://a.test/", nil)
	_, err = left.hop(req, http.StatusFound)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 1, s.Stats().Active)
	require.NoError(t, resp.Body.Close())
	require.Eventually(t, func() bool { return s.Stats().Active == 0 }, time.Second, time.Millisecond)
}
