package axotel

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// What an attempt proves is what the lane's own failures and breaker make of it.
func TestOutcomeIsTheSchedulers(t *testing.T) {
	hangs := func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	fails := func(err error) roundTrip {
		return func(*http.Request) (*http.Response, error) { return nil, err }
	}
	get := ax.Request{URL: "http://a.test/"}
	for _, c := range []struct {
		name   string
		server roundTrip
		do     func(*rig)
		want   string
	}{
		{"200", says(200), sends(get), "success"},
		{"404", says(404), sends(get), "success"},
		{"429", says(429), sends(get), "success"},
		{"503", says(503), sends(get), "failure"},
		{"wire cut", fails(io.ErrUnexpectedEOF), sends(get), "failure"},
		{"transport's timeout", fails(os.ErrDeadlineExceeded), sends(get), "failure"},
		{"transport's own cancel", fails(context.Canceled), sends(get), "failure"},
		{"transport's own deadline", fails(context.DeadlineExceeded), sends(get), "failure"},
		{"attempt timeout", hangs, sends(ax.Request{URL: "http://a.test/", AttemptTimeout: time.Second}), "failure"},
		{"attempt timeout before the caller's deadline", hangs, func(r *rig) {
			ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
			defer cancel()
			_, _ = r.S.Send(ctx, ax.Request{URL: "http://a.test/", AttemptTimeout: time.Second})
		}, "failure"},
		{"caller's deadline", hangs, func(r *rig) {
			ctx, cancel := context.WithTimeout(r.Context(), time.Second)
			defer cancel()
			_, _ = r.S.Send(ctx, get)
		}, "neutral"},
		{"caller's deadline with a cause", hangs, func(r *rig) {
			ctx, cancel := context.WithTimeoutCause(r.Context(), time.Second, errors.New("page closed"))
			defer cancel()
			_, _ = r.S.Send(ctx, get)
		}, "neutral"},
		{"caller's cancel", hangs, func(r *rig) {
			ctx, cancel := context.WithCancel(r.Context())
			time.AfterFunc(time.Second, cancel)
			_, _ = r.S.Send(ctx, get)
		}, "neutral"},
		{"Prepare", says(200), sends(ax.Request{URL: "http://a.test/", Prepare: func(*http.Request) error {
			return errors.New("no token")
		}}), "neutral"},
		{"own body does not open", says(200), sends(ax.Request{Method: "POST", URL: "http://a.test/", GetBody: func() (io.ReadCloser, error) {
			return nil, errors.New("no such file")
		}}), "neutral"},
		{"own body breaks off", func(r *http.Request) (*http.Response, error) {
			_, err := io.Copy(io.Discard, r.Body)
			return nil, err
		}, sends(ax.Request{Method: "POST", URL: "http://a.test/", GetBody: func() (io.ReadCloser, error) {
			return io.NopCloser(io.MultiReader(strings.NewReader("x"), broken{})), nil
		}}), "neutral"},
		{"nested refusal", fails(ax.ErrWouldWait), sends(get), "neutral"},
		{"redirect loop", says(302, "Location", "/"), sends(get), "failure"},
		{"panic", func(*http.Request) (*http.Response, error) { panic("boom") }, func(r *rig) {
			require.Panics(r, func() { _, _ = r.S.Send(r.Context(), get) })
		}, "neutral"},
		{"panic of a submitted task", func(*http.Request) (*http.Response, error) { panic("boom") }, func(r *rig) {
			_, _ = r.S.Submit(r.Context(), ax.Must(get.Task())).Result()
		}, "neutral"},
	} {
		t.Run(c.name, func(t *testing.T) {
			traced(t, ax.Config{Breaker: &ax.Breaker{Window: 1}}, c.server, func(r *rig) {
				c.do(r)
				synctest.Wait()
				require.Equal(r, map[string]int64{"lane=a.test,outcome=" + c.want: 1}, r.sums("ax.attempt.duration"))
				lane := r.S.Stats().Lanes["a.test"]
				require.Equal(r, c.want == "failure", lane.Failures == 1)
				require.Equal(r, c.want == "failure", lane.Breaker == ax.BreakerOpen)
			})
		})
	}
}

// A CheckRedirect that refuses says nothing about the server, nor does a request
// that no transport would send.
func TestOutcomeOfWhatTheClientRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &http.Client{
			Transport:     Transport(says(302, "Location", "http://b.test/")),
			CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("stay here") },
		}
		r := newRig(t, ax.Config{Executor: ax.HTTPExecutor(client)}, nil)
		defer r.S.Close()
		_, err := r.S.Get(r.Context(), "http://a.test/")
		require.Error(r, err)
		_, err = r.S.Get(r.Context(), "sql://a.test/")
		require.Error(r, err)
		require.Equal(r, map[string]int64{"lane=a.test,outcome=neutral": 2}, r.sums("ax.attempt.duration"))
		require.Zero(r, r.S.Stats().Lanes["a.test"].Failures)
	})
}

// Where a breaker has a rule of its own the outcome is by that.
func TestOutcomeByIsFailure(t *testing.T) {
	cfg := ax.Config{Breaker: &ax.Breaker{IsFailure: func(o ax.Outcome) bool { return o.Response != nil && o.Response.StatusCode == 404 }}}
	traced(t, cfg, script(says(404), says(503)), func(r *rig) {
		sends(ax.Request{URL: "http://a.test/"})(r)
		sends(ax.Request{URL: "http://a.test/"})(r)
		require.Equal(r, map[string]int64{"lane=a.test,outcome=failure": 1, "lane=a.test,outcome=success": 1}, r.sums("ax.attempt.duration"))
	})
}

// sends is one request, whatever comes of it.
func sends(req ax.Request) func(*rig) {
	return func(r *rig) { _, _ = r.S.Send(r.Context(), req) }
}

// broken is a body that cannot be read.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("disk gone") }
