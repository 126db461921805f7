package ax_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

func TestF2WhatIsWorthRetrying(t *testing.T) {
	rows := []struct {
		name  string
		reply fReply
		sent  int
	}{
		{"wire cut", fBreak(errFWire), 3},
		{"reset", fBreak(&net.OpError{Op: "read", Err: errFWire}), 3},
		{"eof", fBreak(io.ErrUnexpectedEOF), 3},
		{"attempt timeout", fHang, 3},
		{"429", fAnswer(429, ""), 3},
		{"500", fAnswer(500, ""), 3},
		{"502", fAnswer(502, ""), 3},
		{"503", fAnswer(503, ""), 3},
		{"504", fAnswer(504, ""), 3},
		{"truncated", func(*hit) (*http.Response, error) {
			return fWith(200, &fStream{left: 5, fail: io.ErrUnexpectedEOF}, 10)(nil)
		}, 3},
		{"501", fAnswer(501, ""), 1},
		{"200", fAnswer(200, ""), 1},
		{"304", fAnswer(304, ""), 1},
		{"400", fAnswer(400, ""), 1},
		{"401", fAnswer(401, ""), 1},
		{"404", fAnswer(404, ""), 1},
		{"408 is an answer", fAnswer(408, ""), 1},
		{"413", fAnswer(413, ""), 1},
		{"unknown authority", fBreak(x509.UnknownAuthorityError{}), 1},
		{"wrapped certificate", fBreak(&tls.CertificateVerificationError{Err: x509.CertificateInvalidError{}}), 1},
		{"hostname", fBreak(fmt.Errorf("tls: %w", x509.HostnameError{Certificate: &x509.Certificate{}, Host: "a.test"})), 1},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			bubble(t, ax.Config{Retry: fRetry(2), AttemptTimeout: fsec}, func(t *tester) {
				t.Server.Reply = row.reply
				res := t.Do(t.Context(), fGet("/"))
				require.Equal(t, row.sent, t.Server.Count())
				require.EqualValues(t, row.sent-1, t.S.Stats().Retries)
				if res.Err != nil {
					require.Equal(t, row.sent, fError(t, res.Err).Attempts)
				} else {
					require.Equal(t, row.sent, res.Resp.Attempts)
				}
			})
		})
	}
}

func TestF2MethodSafety(t *testing.T) {
	dial := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	rows := []struct {
		name  string
		r     ax.Request
		retry *ax.Retry
		err   error
		sent  int
	}{
		{"GET", ax.Request{Method: "GET"}, nil, errFWire, 3},
		{"HEAD", ax.Request{Method: "HEAD"}, nil, errFWire, 3},
		{"OPTIONS", ax.Request{Method: "OPTIONS"}, nil, errFWire, 3},
		{"TRACE", ax.Request{Method: "TRACE"}, nil, errFWire, 3},
		{"PUT", ax.Request{Method: "PUT", Body: []byte("b")}, nil, errFWire, 3},
		{"DELETE", ax.Request{Method: "DELETE"}, nil, errFWire, 3},
		{"POST", ax.Request{Method: "POST", Body: []byte("b")}, nil, errFWire, 1},
		{"PATCH", ax.Request{Method: "PATCH", Body: []byte("b")}, nil, errFWire, 1},
		{"unknown method", ax.Request{Method: "PURGE"}, nil, errFWire, 1},
		{"POST with key", ax.Request{Method: "POST", Body: []byte("b"), IdempotencyKey: "k"}, nil, errFWire, 3},
		{"PATCH with key", ax.Request{Method: "PATCH", Body: []byte("b"), IdempotencyKey: "k"}, nil, errFWire, 3},
		{"POST with the caller's header", ax.Request{Method: "POST", Body: []byte("b"), Header: http.Header{"Idempotency-Key": {"k"}}}, nil, errFWire, 3},
		{"POST unsafe", ax.Request{Method: "POST", Body: []byte("b")}, &ax.Retry{Max: 2, BaseDelay: fms, Jitter: ax.NoJitter, Unsafe: true}, errFWire, 3},
		{"POST never sent", ax.Request{Method: "POST", Body: []byte("b")}, nil, dial, 3},
		{"POST cut while reading", ax.Request{Method: "POST", Body: []byte("b")}, nil, &net.OpError{Op: "read", Err: errFWire}, 1},
		{"NoRetry", ax.Request{Method: "GET", NoRetry: true}, nil, errFWire, 1},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			bubble(t, ax.Config{Retry: fRetry(2)}, func(t *tester) {
				t.Server.Reply = fBreak(row.err)
				row.r.URL, row.r.Retry = at("/"), row.retry
				res := t.Do(t.Context(), row.r)
				require.ErrorIs(t, res.Err, row.err)
				require.Equal(t, row.sent, t.Server.Count())
				for _, h := range t.Server.Hits() {
					require.Equal(t, string(row.r.Body), string(h.Body), "each attempt carries the whole body")
					if row.r.IdempotencyKey != "" || row.r.Header != nil {
						require.Equal(t, []string{"k"}, h.Header["Idempotency-Key"])
					}
				}
			})
		})
	}
}

// TestF2ServerErrorOfAKeylessPostIsFinal: a 502 may have been executed.
func TestF2ServerErrorOfAKeylessPostIsFinal(t *testing.T) {
	for _, status := range []int{429, 500, 502, 503} {
		bubble(t, ax.Config{Retry: fRetry(2)}, func(t *tester) {
			t.Server.Reply = fAnswer(status, "no")
			res := t.Do(t.Context(), ax.Request{Method: "POST", URL: at("/"), Body: []byte("x")})
			require.Equal(t, "no", fBody(t, res))
			require.Equal(t, status, res.Status())
			require.Equal(t, 1, t.Server.Count())
		})
	}
}

func TestF2BodyMustBeReplayable(t *testing.T) {
	once := func() *ax.Task {
		req, err := http.NewRequest("PUT", at("/"), io.NopCloser(bytes.NewReader([]byte("once"))))
		require.NoError(t, err)
		return ax.Must(ax.TaskFrom(req, ax.Request{}))
	}
	t.Run("answer", func(t *testing.T) {
		bubble(t, ax.Config{Retry: fRetry(2)}, func(t *tester) {
			t.Server.Reply = fAnswer(503, "busy")
			resp, err := t.S.Do(t.Context(), once())
			require.Equal(t, "busy", fBody(t, result{resp, err, 0}))
			require.ErrorIs(t, resp.Cause, ax.ErrNotReplayable)
			require.Equal(t, "once", string(t.Server.Hits()[0].Body))
			require.Equal(t, 1, t.Server.Count())
			require.Zero(t, t.At(), "it is final at once")
		})
	})
	t.Run("error", func(t *testing.T) {
		bubble(t, ax.Config{Retry: fRetry(2)}, func(t *tester) {
			t.Server.Reply = fBreak(errFWire)
			_, err := t.S.Do(t.Context(), once())
			require.ErrorIs(t, err, ax.ErrNotReplayable)
			require.ErrorIs(t, err, errFWire)
			require.Equal(t, 1, t.Server.Count())
		})
	})
	t.Run("replayable", func(t *testing.T) {
		for name, r := range map[string]ax.Request{
			"Body":    {Body: []byte(`{"a":1}`)},
			"JSON":    {JSON: map[string]int{"a": 1}},
			"GetBody": {GetBody: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(`{"a":1}`)), nil }},
		} {
			bubble(t, ax.Config{Retry: fRetry(2)}, func(t *tester) {
				t.Server.Reply = fScript(fAnswer(503, ""), fAnswer(503, ""), fAnswer(200, "ok"))
				r.Method, r.URL = "PUT", at("/")
				require.Equal(t, "ok", fBody(t, t.Do(t.Context(), r)), name)
				for _, h := range t.Server.Hits() {
					require.Equal(t, `{"a":1}`, string(h.Body), name)
				}
			})
		}
	})
}

func TestF2ErrorOfTheCallersBodyIsFinal(t *testing.T) {
	boom := errors.New("disk gone")
	rows := map[string]func() (io.ReadCloser, error){
		"reading": func() (io.ReadCloser, error) { return &fStream{left: 3, fail: boom}, nil },
		"opening": func() (io.ReadCloser, error) { return nil, boom },
	}
	for name, get := range rows {
		t.Run(name, func(t *testing.T) {
			bubble(t, ax.Config{Retry: fRetry(2)}, func(t *tester) {
				res := t.Do(t.Context(), ax.Request{Method: "PUT", URL: at("/"), GetBody: get})
				require.ErrorIs(t, res.Err, boom)
				require.Zero(t, res.At, "not retried")
				require.Zero(t, t.S.Stats().Retries)
			})
		})
	}
	t.Run("opening for the retry", func(t *testing.T) {
		calls := 0
		bubble(t, ax.Config{Retry: fRetry(2)}, func(t *tester) {
			t.Server.Reply = fAnswer(503, "")
			res := t.Do(t.Context(), ax.Request{Method: "PUT", URL: at("/"), GetBody: func() (io.ReadCloser, error) {
				if calls++; calls > 1 {
					return nil, boom
				}
				return io.NopCloser(strings.NewReader("x")), nil
			}})
			require.ErrorIs(t, res.Err, boom)
			require.Equal(t, 1, t.Server.Count())
		})
	})
}

func TestF2IfReplacesWorthNotSafety(t *testing.T) {
	rows := []struct {
		name   string
		method string
		status int
		worth  bool
		sent   int
	}{
		{"a 404 that is worth it", "GET", 404, true, 3},
		{"a 503 that is not", "GET", 503, false, 1},
		{"a 200 that is worth it", "GET", 200, true, 3},
		{"worth it, yet not safe", "POST", 503, true, 1},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			var seen []ax.Outcome
			p := fRetry(2)
			p.If = func(o ax.Outcome) bool { seen = append(seen, o); return row.worth }
			bubble(t, ax.Config{Retry: p}, func(t *tester) {
				t.Server.Reply = after(7*fms, row.status, "")
				task := ax.Must(ax.Request{Method: row.method, URL: at("/")}.Task())
				_, err := t.S.Do(t.Context(), task)
				require.NoError(t, err)
				require.Equal(t, row.sent, t.Server.Count())
				for i, o := range seen {
					require.Equal(t, i+1, o.Attempt)
					require.Same(t, task, o.Task)
					require.Equal(t, row.status, o.Response.StatusCode)
					require.NoError(t, o.Err)
					require.Equal(t, 7*fms, o.Took)
				}
			})
		})
	}
}

// TestF2TheNearestPolicyReplacesTheOthers: the request's, then the lane's, then the scheduler's, never merged.
func TestF2TheNearestPolicyReplacesTheOthers(t *testing.T) {
	cfg := ax.Config{Retry: fRetry(3), Lanes: []ax.Lane{
		{Name: "own", Match: []string{"own.test"}, Retry: &ax.Retry{Max: 1, Jitter: ax.NoJitter}},
		{Name: "none", Match: []string{"none.test"}, NoRetry: true},
	}}
	rows := []struct {
		r    ax.Request
		want []time.Duration
	}{
		{ax.Request{URL: "http://a.test/"}, []time.Duration{0, 100 * fms, 300 * fms, 700 * fms}},
		{ax.Request{URL: "http://own.test/"}, []time.Duration{0, 200 * fms}}, // its BaseDelay is the default, not the scheduler's
		{ax.Request{URL: "http://none.test/"}, []time.Duration{0}},
		{ax.Request{URL: "http://own.test/", Retry: &ax.Retry{Max: 2, BaseDelay: fsec, Jitter: ax.NoJitter}}, []time.Duration{0, fsec, 3 * fsec}},
		{ax.Request{URL: "http://own.test/", NoRetry: true}, []time.Duration{0}},
	}
	for _, row := range rows {
		bubble(t, cfg, func(t *tester) {
			t.Server.Reply = fAnswer(503, "")
			require.NoError(t, t.Do(t.Context(), row.r).Err)
			require.Equal(t, row.want, t.Server.Times())
		})
	}
}

// TestRetryPolicyIsCopied: changing it later changes nothing.
func TestRetryPolicyIsCopied(t *testing.T) {
	p := fRetry(1)
	bubble(t, ax.Config{Retry: p}, func(t *tester) {
		p.Max = 3
		t.Server.Reply = fAnswer(503, "")
		require.Equal(t, 2, t.Do(t.Context(), fGet("/")).Resp.Attempts)
	})
}

func TestF2PrepareRunsOnEachAttempt(t *testing.T) {
	bubble(t, ax.Config{Retry: fRetry(2)}, func(t *tester) {
		n := 0
		t.Server.Reply = fScript(fAnswer(503, ""), fBreak(errFWire), fAnswer(200, ""))
		res := t.Do(t.Context(), ax.Request{URL: at("/"), Prepare: func(r *http.Request) error {
			n++
			r.Header.Set("X-Sign", strconv.Itoa(n))
			return nil
		}})
		require.NoError(t, res.Err)
		for i, h := range t.Server.Hits() {
			require.Equal(t, []string{strconv.Itoa(i + 1)}, h.Header["X-Sign"])
		}
		require.Equal(t, 3, n)
	})
}

func TestF2EarlierBodiesAreDrainedAndClosed(t *testing.T) {
	bubble(t, ax.Config{Retry: fRetry(2)}, func(t *tester) {
		small, huge := &fStream{left: 10_000}, &fStream{left: 1 << 30}
		t.Server.Reply = fScript(
			fWith(503, small, 10_000),
			func(h *hit) (*http.Response, error) {
				read, closed := small.State()
				require.True(t, closed, "closed before the next attempt")
				require.Equal(t, 10_000, read, "a small one is drained, so that its connection is kept")
				return fWith(503, huge, -1)(h)
			},
			func(h *hit) (*http.Response, error) {
				read, closed := huge.State()
				require.True(t, closed)
				require.LessOrEqual(t, read, 256<<10)
				return reply(200, "end"), nil
			})
		require.Equal(t, "end", fBody(t, t.Do(t.Context(), fGet("/"))))
		require.Equal(t, []time.Duration{0, 100 * fms, 300 * fms}, t.Server.Times(), "draining delays nothing")
	})
}

func TestRetryContradictionsAreRefusedByName(t *testing.T) {
	rows := []struct {
		path string
		cfg  ax.Config
	}{
		{"Retry.Max", ax.Config{Retry: &ax.Retry{Max: -1}}},
		{"Retry.BaseDelay", ax.Config{Retry: &ax.Retry{BaseDelay: -1}}},
		{"BaseDelay", ax.Config{Retry: &ax.Retry{BaseDelay: 2 * fsec, MaxDelay: fsec}}},
		{"BaseDelay", ax.Config{Retry: &ax.Retry{BaseDelay: time.Minute}}}, // above the default cap
		{"Retry.Budget", ax.Config{Retry: &ax.Retry{Budget: -0.1}}},
		{"Retry.Budget", ax.Config{Retry: &ax.Retry{Budget: math.NaN()}}},
		{"Lanes[0].Retry.MaxDelay", ax.Config{Lanes: []ax.Lane{{Name: "x", Match: []string{"a.test"}, Retry: &ax.Retry{MaxDelay: -1}}}}},
	}
	for _, row := range rows {
		_, err := ax.New(nil, row.cfg)
		require.ErrorContains(t, err, row.path)
	}
	_, err := ax.Request{URL: at("/"), Retry: &ax.Retry{Max: -1}}.Task()
	require.ErrorContains(t, err, "Retry.Max")
}

// A retry that nothing can let start before the deadline is not waited for: the last
// outcome is final, with the reason in its Cause.
func TestF3RetryThatCannotStartInTime(t *testing.T) {
	slow := ax.PerMinute(1)
	for name, c := range map[string]struct {
		cfg ax.Config
		at  time.Duration
	}{
		"scheduler's rate": {ax.Config{Rate: slow}, 0},
		"lane's rate":      {ax.Config{Hosts: &ax.Lane{Rate: slow}}, 0},
		"owner's rate":     {ax.Config{Owners: &ax.Budget{Rate: slow}}, 0},
		"breaker":          {ax.Config{Breaker: &ax.Breaker{Window: 1, OpenFor: time.Minute}}, 0},
		"foreign breaker":  {ax.Config{Breaker: &ax.Breaker{Window: 2, OpenFor: time.Minute}}, 100 * fms},
	} {
		for _, breaks := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", breaks: ", breaks), func(t *testing.T) {
				c.cfg.Retry = fRetry(2)
				bubble(t, c.cfg, func(t *tester) {
					t.Server.Reply = fAnswer(503, "down")
					if breaks {
						t.Server.Reply = fBreak(io.ErrUnexpectedEOF)
					}
					ctx, cancel := context.WithTimeout(dBG, 5*fsec)
					defer cancel()
					if c.at > 0 {
						other := t.GoAt(50*fms, dBG, ax.Request{URL: at("/other"), NoRetry: true})
						defer func() { <-other }()
					}
					r := t.Do(ctx, ax.Request{URL: at("/"), Owner: "o"})
					require.Equal(t, c.at, r.At)
					if breaks {
						require.ErrorIs(t, r.Err, io.ErrUnexpectedEOF)
						require.ErrorIs(t, r.Err, ax.ErrWouldExceedDeadline)
						require.Equal(t, 1, fError(t, r.Err).Attempts)
						return
					}
					require.Equal(t, "down", fBody(t, r))
					require.ErrorIs(t, r.Resp.Cause, ax.ErrWouldExceedDeadline)
				})
			})
		}
	}
}

// With OpenReject the outcome that opens the breaker is final at once, and a probe's
// own retry is judged by what the probe has brought about.
func TestF6RetryIsJudgedAfterTheOutcome(t *testing.T) {
	cfg := ax.Config{Breaker: &ax.Breaker{Window: 2, WhenOpen: ax.OpenReject, OpenFor: 5 * fsec}, Retry: &ax.Retry{BaseDelay: fsec, Jitter: ax.NoJitter}}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = fScript(fAnswer(503, ""), fAnswer(503, ""), fAnswer(429, ""), fAnswer(200, ""))
		t.Do(dBG, ax.Request{URL: at("/"), NoRetry: true})
		r := t.Do(dBG, fGet("/"))
		require.Equal(t, 503, r.Status())
		require.Zero(t, r.At, "no backoff for a retry that will be refused")
		require.ErrorIs(t, r.Resp.Cause, ax.ErrCircuitOpen)
		time.Sleep(5 * fsec)
		r = t.Do(dBG, fGet("/"))
		require.Equal(t, 200, r.Status())
		require.Equal(t, 2, r.Resp.Attempts)
	})
}

// A probe whose grant is lost leaves its permit to its own retry.
func TestF6LostProbeIsRetried(t *testing.T) {
	lose := false
	gov := qGovernor(func(context.Context, ax.Ask) (ax.Grant, error) {
		if !lose {
			return ax.Grant{}, nil
		}
		lose = false
		lost := make(chan struct{})
		time.AfterFunc(5*fms, func() { close(lost) })
		return ax.Grant{Lost: lost}, nil
	})
	bubble(t, ax.Config{Breaker: &ax.Breaker{Window: 1, WhenOpen: ax.OpenReject}, Retry: fRetry(2), Governor: gov}, func(t *tester) {
		t.Server.Reply = fScript(fAnswer(500, ""), after(10*fms, 200, ""))
		t.Do(dBG, ax.Request{URL: at("/"), NoRetry: true})
		time.Sleep(3 * fsec)
		lose = true
		r := t.Do(dBG, fGet("/"))
		require.NoError(t, r.Err)
		require.Equal(t, 200, r.Status())
	})
}
