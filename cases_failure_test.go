package ax_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// TestCaseH09 a backoff, a Retry-After and a pause all end with the caller.
func TestCaseH09SleepHonoursCancel(t *testing.T) {
	slow := &ax.Retry{BaseDelay: 10 * fsec, Jitter: ax.NoJitter}
	rows := map[string]struct {
		header string
		op     string
	}{"backoff": {"X-None: 1", "retry"}, "Retry-After": {"Retry-After: 10", "retry"}}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			bubble(t, ax.Config{Retry: slow}, func(t *tester) {
				t.Server.Reply = fAnswer(503, "busy", row.header)
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(100*fms, cancel)
				res := t.Do(ctx, fGet("/"))
				require.Equal(t, 100*fms, res.At)
				require.ErrorIs(t, res.Err, context.Canceled)
				e := fError(t, res.Err)
				require.Equal(t, row.op, e.Op)
				require.Equal(t, 1, e.Attempts)
				require.NotNil(t, e.Response, "the last answer is still there")
				require.Equal(t, 503, e.Response.StatusCode)
				b, err := e.Response.Bytes()
				require.NoError(t, err)
				require.Equal(t, "busy", string(b))
				require.Equal(t, 1, t.Server.Count())
				require.EqualValues(t, 1, t.S.Stats().Canceled)
			})
		})
	}
	for name, cfg := range map[string]ax.Config{"lane pause": {}, "open breaker": {Breaker: &ax.Breaker{Window: 1, OpenFor: 10 * fsec}}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, cfg, func(t *tester) {
				t.Server.Reply = fAnswer(503, "", "Retry-After: 10")
				t.Do(t.Context(), fGet("/"))
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(100*fms, cancel)
				res := t.Do(ctx, fGet("/"))
				require.Equal(t, 100*fms, res.At)
				require.ErrorIs(t, res.Err, context.Canceled)
				require.Equal(t, "queue", fError(t, res.Err).Op)
				require.Equal(t, 1, t.Server.Count())
			})
		})
	}
}

// TestCaseH10 a retry that can no longer happen is not waited for.
func TestCaseH10NoWaitForAnImpossibleRetry(t *testing.T) {
	rows := map[string]struct {
		reply fReply
		base  time.Duration
	}{
		"Retry-After":     {fAnswer(503, "busy", "Retry-After: 5"), 100 * fms},
		"own delay":       {fAnswer(503, "busy"), 3 * fsec},
		"transport error": {fBreak(errFWire), 3 * fsec},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			bubble(t, ax.Config{Retry: &ax.Retry{BaseDelay: row.base, Jitter: ax.NoJitter}}, func(t *tester) {
				t.Server.Reply = func(h *hit) (*http.Response, error) { h.Sleep(50 * fms); return row.reply(h) }
				ctx, cancel := context.WithTimeout(t.Context(), fsec)
				defer cancel()
				res := t.Do(ctx, fGet("/"))
				require.Equal(t, 50*fms, res.At)
				require.Equal(t, 1, t.Server.Count())
				if name == "transport error" {
					require.ErrorIs(t, res.Err, errFWire)
					require.NotErrorIs(t, res.Err, context.DeadlineExceeded)
					require.EqualValues(t, 1, t.S.Stats().Failed)
					return
				}
				require.Equal(t, "busy", fBody(t, res))
				require.Equal(t, 503, res.Status())
				require.EqualValues(t, 1, t.S.Stats().Succeeded)
			})
		})
	}
}

// TestCaseH11 the last failure keeps its face.
func TestCaseH11FinalFailureIsNotAnonymised(t *testing.T) {
	t.Run("answers", func(t *testing.T) {
		bubble(t, ax.Config{Retry: fRetry(2)}, func(t *tester) {
			var bodies []*fStream
			t.Server.Reply = func(h *hit) (*http.Response, error) {
				bodies = append(bodies, &fStream{left: 7})
				return fWith(500, bodies[h.N-1], 7)(h)
			}
			res := t.Do(t.Context(), fGet("/"))
			require.Equal(t, strings.Repeat("\x00", 7), fBody(t, res))
			require.Equal(t, 500, res.Status())
			require.Equal(t, 3, res.Resp.Attempts)
			require.Equal(t, 3, t.Server.Count())
			for i, b := range bodies {
				_, closed := b.State()
				require.True(t, closed, "body %d", i)
			}
		})
		bubble(t, ax.Config{Retry: fRetry(2)}, func(t *tester) {
			t.Server.Reply = fAnswer(500, "db down")
			_, err := ax.JSON[map[string]any](t.S.Send(t.Context(), fGet("/")))
			var se *ax.StatusError
			require.ErrorAs(t, err, &se)
			require.Equal(t, 500, se.StatusCode)
			require.Equal(t, "db down", string(se.Body))
		})
	})
	t.Run("errors", func(t *testing.T) {
		bubble(t, ax.Config{Retry: fRetry(2)}, func(t *tester) {
			t.Server.Reply = fBreak(&net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET})
			res := t.Do(t.Context(), ax.Request{URL: "http://planted1:planted2@a.test/x?token=planted3"})
			require.ErrorIs(t, res.Err, syscall.ECONNRESET)
			var op *net.OpError
			require.ErrorAs(t, res.Err, &op)
			e := fError(t, res.Err)
			require.Equal(t, []any{"attempt", "GET", "a.test", 3}, []any{e.Op, e.Method, e.Lane, e.Attempts})
			require.Nil(t, e.Response)
			require.Equal(t, 1, strings.Count(e.Error(), "http://"), "the URL once: %s", e)
			require.NotContains(t, e.Error()+e.URL, "planted")
		})
	})
	t.Run("an answer before the last error", func(t *testing.T) {
		bubble(t, ax.Config{Retry: fRetry(1)}, func(t *tester) {
			t.Server.Reply = fScript(fAnswer(503, "busy"), fBreak(errFWire))
			res := t.Do(t.Context(), fGet("/"))
			require.ErrorIs(t, res.Err, errFWire)
			e := fError(t, res.Err)
			require.Equal(t, 2, e.Attempts)
			require.NotNil(t, e.Response, "the last answer seen")
			require.Equal(t, 503, e.Response.StatusCode)
		})
	})
}

// TestCaseH16 no number of attempts turns the backoff into a hot loop.
func TestCaseH16BackoffNeverOverflows(t *testing.T) {
	rows := []ax.Retry{
		{Max: 200, BaseDelay: 100 * fms, MaxDelay: 10 * fsec, Jitter: ax.NoJitter},
		{Max: 200, BaseDelay: 1, MaxDelay: 10 * fsec, Jitter: ax.NoJitter},
		{Max: 200, BaseDelay: 10 * fsec, MaxDelay: 10 * fsec, Jitter: ax.NoJitter},
	}
	for _, p := range rows {
		t.Run(p.BaseDelay.String(), func(t *testing.T) {
			p.Budget = 1000 // one first attempt each 10 s would not bear them
			bubble(t, ax.Config{Retry: &p}, func(t *tester) {
				t.Server.Reply = fAnswer(500, "")
				keep := make(chan struct{})
				go func() { // first attempts, so that the budget is none of this test's business
					for {
						select {
						case <-keep:
							return
						case <-time.After(fsec):
							r := fGet("/first")
							r.NoRetry = true
							t.S.Do(context.Background(), ax.Must(r.Task()))
						}
					}
				}()
				res := t.Do(t.Context(), fGet("/"))
				close(keep)
				require.Equal(t, 201, res.Resp.Attempts)
				ts := fPathHits(t, "/")
				bound := p.BaseDelay
				for i := 1; i < len(ts); i++ {
					require.Equal(t, min(bound, p.MaxDelay), ts[i]-ts[i-1], "delay %d", i)
					bound = min(2*bound, p.MaxDelay)
				}
			})
		})
	}
}

// TestCaseH17 what may have been executed is not executed twice.
func TestCaseH17NonIdempotentReplays(t *testing.T) {
	dial := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	rows := []struct {
		method, key string
		err         error
		executions  int
	}{
		{"POST", "", errFWire, 1}, {"PATCH", "", errFWire, 1},
		{"GET", "", errFWire, 3}, {"HEAD", "", errFWire, 3}, {"PUT", "", errFWire, 3}, {"DELETE", "", errFWire, 3},
		{"POST", "order-1", errFWire, 3}, {"POST", "", dial, 3},
		{"POST", "", nil, 1}, {"PUT", "", nil, 3}, {"POST", "order-1", nil, 3},
	}
	for _, row := range rows {
		t.Run(fmt.Sprint(row), func(t *testing.T) {
			bubble(t, ax.Config{Retry: fRetry(2)}, func(t *tester) {
				t.Server.Reply = fAnswer(502, "")
				if row.err != nil {
					t.Server.Reply = fBreak(row.err)
				}
				res := t.Do(t.Context(), ax.Request{Method: row.method, URL: at("/"), IdempotencyKey: row.key})
				require.Equal(t, row.err != nil, res.Err != nil)
				require.Equal(t, row.executions, t.Server.Count())
				for _, h := range t.Server.Hits() {
					require.Equal(t, row.key, h.Header.Get("Idempotency-Key"))
				}
			})
		})
	}
}

// TestCaseH35 the total time is one budget for all attempts.
func TestCaseH35TotalTimeBudget(t *testing.T) {
	for _, base := range []time.Duration{fms, 4 * fms, 10 * fms} {
		t.Run(base.String(), func(t *testing.T) {
			bubble(t, ax.Config{AttemptTimeout: 95 * fms, Retry: &ax.Retry{Max: 5, BaseDelay: base, Jitter: ax.NoJitter}}, func(t *tester) {
				t.Server.Reply = fHang
				ctx, cancel := context.WithTimeout(t.Context(), 100*fms)
				defer cancel()
				res := t.Do(ctx, fGet("/"))
				require.ErrorIs(t, res.Err, context.DeadlineExceeded)
				require.True(t, fError(t, res.Err).Timeout())
				hits := t.Server.Hits()
				if base >= 5*fms { // the retry would begin past the deadline: the first outcome is final
					require.Equal(t, 95*fms, res.At)
					require.Len(t, hits, 1)
					return
				}
				require.Equal(t, 100*fms, res.At)
				require.Len(t, hits, 2)
				require.Equal(t, 95*fms+base, hits[1].At, "the backoff counts")
				require.Equal(t, 100*fms, hits[1].End, "it gets only the rest")
			})
		})
	}
}

// TestCaseH42 the budget dries up in an outage and refills after it.
func TestCaseH42RetryBudgetRefills(t *testing.T) {
	bubble(t, ax.Config{Retry: &ax.Retry{Budget: 0.2, BaseDelay: 50 * fms}}, func(t *tester) {
		var down atomic.Bool
		down.Store(true)
		t.Server.Reply = func(*hit) (*http.Response, error) {
			if down.Load() {
				return reply(503, ""), nil
			}
			return reply(200, ""), nil
		}
		var cs []<-chan result
		for i := range 100 {
			cs = append(cs, t.GoAt(time.Duration(i)*100*fms, t.Context(), fGet(fmt.Sprint("/", i))))
		}
		refused := 0
		for i, c := range cs {
			r := <-c
			require.NoError(t, r.Err)
			require.Equal(t, 503, r.Status())
			require.Equal(t, time.Duration(i)*100*fms, fPathHits(t, fmt.Sprint("/", i))[0], "a first attempt is never blocked")
			if errors.Is(r.Resp.Cause, ax.ErrRetryBudget) {
				refused++
			}
		}
		require.Positive(t, refused)
		require.LessOrEqual(t, t.Server.Count(), 123)
		require.Greater(t, t.Server.Count(), 103, "the budget was used, too")

		down.Store(false)
		t.Until(25 * fsec)
		require.Equal(t, 200, t.Do(t.Context(), fGet("/healthy")).Status())
		t.Server.Reply = fScript(fAnswer(503, ""), fAnswer(200, ""))
		res := t.Do(t.Context(), fGet("/once-more"))
		require.Equal(t, 200, res.Status())
		require.Equal(t, 2, res.Resp.Attempts)
	})
}

// fWire is a real transport that cannot dial, counting the attempts it was given.
type fWire struct {
	n  atomic.Int64
	tr http.Transport
}

// RoundTrip counts and delegates.
func (w *fWire) RoundTrip(r *http.Request) (*http.Response, error) {
	w.n.Add(1)
	return w.tr.RoundTrip(r)
}

// TestCaseH43 hopeless errors are not tried again.
func TestCaseH43HopelessErrors(t *testing.T) {
	t.Run("by net/http itself", func(t *testing.T) {
		for name, r := range map[string]ax.Request{
			"scheme": {URL: "htps://a.test/"},
			"header": {URL: at("/"), Header: http.Header{"X-Bad": {"a\nb"}}},
			"name":   {URL: at("/"), Header: http.Header{"X Bad": {"a"}}},
		} {
			synctest.Test(t, func(t *testing.T) {
				w := &fWire{tr: http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
					return nil, errors.New("must not dial")
				}}}
				s, err := ax.New(&http.Client{Transport: w}, ax.Config{Retry: &ax.Retry{Max: 5, BaseDelay: fsec, Jitter: ax.NoJitter}})
				require.NoError(t, err)
				defer s.Close()
				start := time.Now()
				_, err = s.Send(t.Context(), r) // refused when the task is built, or by one attempt
				require.Error(t, err, name)
				require.NotContains(t, err.Error(), "must not dial")
				require.Zero(t, time.Since(start), name)
				require.LessOrEqual(t, w.n.Load(), int64(1), name)
			})
		}
	})
	t.Run("certificates", func(t *testing.T) {
		for _, err := range []error{
			x509.UnknownAuthorityError{}, x509.CertificateInvalidError{Reason: x509.Expired},
			x509.HostnameError{Certificate: &x509.Certificate{}, Host: "a.test"},
			&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}},
			fmt.Errorf("remote error: %w", &tls.CertificateVerificationError{Err: errors.New("custom")}),
		} {
			bubble(t, ax.Config{Retry: fRetry(5)}, func(t *tester) {
				t.Server.Reply = fBreak(err)
				res := t.Do(t.Context(), fGet("/"))
				require.Error(t, res.Err)
				require.Zero(t, res.At)
				require.Equal(t, 1, t.Server.Count(), "%T", err)
			})
		}
	})
	t.Run("statuses", func(t *testing.T) {
		for _, status := range []int{400, 401, 403, 404, 405, 410, 413, 422, 501} {
			bubble(t, ax.Config{Retry: fRetry(5)}, func(t *tester) {
				t.Server.Reply = fAnswer(status, "")
				require.Equal(t, status, t.Do(t.Context(), fGet("/")).Status())
				require.Equal(t, 1, t.Server.Count())
			})
		}
	})
	t.Run("redirect loop", func(t *testing.T) {
		bubble(t, ax.Config{Retry: fRetry(5)}, func(t *tester) {
			t.Server.Reply = fAnswer(302, "", "Location: /")
			res := t.Do(t.Context(), fGet("/"))
			require.Error(t, res.Err)
			require.Zero(t, res.At)
			require.Equal(t, 10, t.Server.Count(), "net/http's own bound, once")
		})
	})
	t.Run("a CheckRedirect that refuses", func(t *testing.T) {
		boom := errors.New("not there")
		synctest.Test(t, func(t *testing.T) {
			srv := &server{start: time.Now(), Reply: fAnswer(302, "", "Location: /")}
			c := &http.Client{Transport: srv, CheckRedirect: func(*http.Request, []*http.Request) error { return boom }}
			s, err := ax.New(c, ax.Config{Retry: fRetry(5)})
			require.NoError(t, err)
			defer s.Close()
			_, err = s.Get(t.Context(), at("/"))
			require.ErrorIs(t, err, boom)
		})
	})
	t.Run("a body that is too large to read", func(t *testing.T) {
		bubble(t, ax.Config{Retry: fRetry(5), MaxBodyBytes: 1000}, func(t *tester) {
			t.Server.Reply = fWith(200, &fStream{left: 5000}, 5000)
			res := t.Do(t.Context(), fGet("/"))
			require.NoError(t, res.Err, "it is streamed")
			b, err := io.ReadAll(res.Resp.Body)
			require.NoError(t, err)
			require.Len(t, b, 5000)
			require.NoError(t, res.Resp.Body.Close())
			require.Equal(t, 1, t.Server.Count())
		})
	})
}
