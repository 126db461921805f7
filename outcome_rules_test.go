package ax_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// TestF1EachOutcomeIsJudged shows the judgement through a breaker that opens at the first failure.
func TestF1EachOutcomeIsJudged(t *testing.T) {
	rows := []struct {
		name  string
		reply fReply
		want  ax.BreakerState
	}{
		{"transport error", fBreak(errFWire), ax.BreakerOpen},
		{"attempt timeout", fHang, ax.BreakerOpen},
		{"500", fAnswer(500, ""), ax.BreakerOpen},
		{"501", fAnswer(501, ""), ax.BreakerOpen},
		{"502", fAnswer(502, ""), ax.BreakerOpen},
		{"503", fAnswer(503, ""), ax.BreakerOpen},
		{"504", fAnswer(504, ""), ax.BreakerOpen},
		{"599", fAnswer(599, ""), ax.BreakerOpen},
		{"truncated body", fWith(200, &fStream{left: 500, fail: io.ErrUnexpectedEOF}, 1000), ax.BreakerOpen},
		{"200", fAnswer(200, ""), ax.BreakerClosed},
		{"204", fAnswer(204, ""), ax.BreakerClosed},
		{"304", fAnswer(304, ""), ax.BreakerClosed},
		{"400", fAnswer(400, ""), ax.BreakerClosed},
		{"401", fAnswer(401, ""), ax.BreakerClosed},
		{"404", fAnswer(404, ""), ax.BreakerClosed},
		{"429", fAnswer(429, ""), ax.BreakerClosed},
		{"499", fAnswer(499, ""), ax.BreakerClosed},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			bubble(t, ax.Config{AttemptTimeout: fsec, Breaker: &ax.Breaker{Window: 1}}, func(t *tester) {
				t.Server.Reply = row.reply
				t.Do(t.Context(), fGet("/"))
				st := fLane(t)
				require.Equal(t, row.want, st.Breaker)
				require.EqualValues(t, 1, st.Attempts)
				if row.want == ax.BreakerOpen {
					require.EqualValues(t, 1, st.Failures)
				} else {
					require.Zero(t, st.Failures)
				}
			})
		})
	}
}

// TestF1NeutralNeverCounts ends attempts in each way that is the caller's or ax's own.
func TestF1NeutralNeverCounts(t *testing.T) {
	ends := map[string]func(t *tester, r ax.Request){
		"caller cancels": func(t *tester, r ax.Request) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(10*fms, cancel)
			require.ErrorIs(t, t.Do(ctx, r).Err, context.Canceled)
		},
		"caller's deadline": func(t *tester, r ax.Request) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*fms)
			defer cancel()
			require.ErrorIs(t, t.Do(ctx, r).Err, context.DeadlineExceeded)
		},
		"call canceled": func(t *tester, r ax.Request) {
			c := t.S.Submit(t.Context(), ax.Must(r.Task()))
			time.Sleep(10 * fms)
			c.Cancel()
			<-c.Done()
		},
		"tag": func(t *tester, r ax.Request) {
			r.Tags = []string{"x"}
			c := t.Go(t.Context(), r)
			time.Sleep(10 * fms)
			require.Equal(t, 1, t.S.CancelTag("x"))
			require.ErrorIs(t, (<-c).Err, ax.ErrCanceledByTag)
		},
		"stringified cancel after the end": func(t *tester, r ax.Request) {
			r.URL = at("/deaf")
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(10*fms, cancel)
			require.ErrorIs(t, t.Do(ctx, r).Err, context.Canceled)
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			bubble(t, ax.Config{Breaker: &ax.Breaker{Window: 2}}, func(t *tester) {
				t.Server.Reply = fPaths(map[string]fReply{
					"/hang": fHang,
					"/deaf": func(h *hit) (*http.Response, error) {
						<-h.Context().Done()
						return nil, errors.New("net/http: request canceled")
					},
					"/bad": fAnswer(500, ""),
				})
				for range 5 {
					end(t, fGet("/hang"))
				}
				require.Equal(t, ax.BreakerClosed, fLane(t).Breaker)
				require.Zero(t, fLane(t).Failures)
				t.Do(t.Context(), fGet("/bad"))
				require.Equal(t, ax.BreakerClosed, fLane(t).Breaker, "the neutral ones are no samples: one of two calls so far")
				t.Do(t.Context(), fGet("/bad"))
				require.Equal(t, ax.BreakerOpen, fLane(t).Breaker)
			})
		})
	}
}

func TestF1OutcomeOfAStreamIsItsHeaders(t *testing.T) {
	bubble(t, ax.Config{Retry: fRetry(2), Breaker: &ax.Breaker{Window: 1}}, func(t *tester) {
		t.Server.Reply = fWith(200, &fStream{left: 10, fail: io.ErrUnexpectedEOF}, -1)
		r := fGet("/")
		r.Stream = true
		res := t.Do(t.Context(), r)
		require.NoError(t, res.Err)
		_, err := io.ReadAll(res.Resp.Body)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.NoError(t, res.Resp.Body.Close())
		require.Equal(t, 1, t.Server.Count(), "a stream is not retried once its headers were good")
		require.Equal(t, ax.BreakerClosed, fLane(t).Breaker)
	})
}
