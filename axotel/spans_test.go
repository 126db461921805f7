package axotel

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

func TestSpanOfTaskAndAttempt(t *testing.T) {
	traced(t, ax.Config{}, func(r *http.Request) (*http.Response, error) {
		time.Sleep(time.Second)
		return answer(r, 200, "hello"), nil
	}, func(r *rig) {
		ctx, parent := r.tp.Tracer("test").Start(r.Context(), "caller")
		start := time.Now()
		resp, err := r.S.Send(ctx, ax.Request{URL: "http://u:p@api.test:8080/v1/x?q=1#f", Owner: "search"})
		require.NoError(r, err)
		require.Equal(r, 200, resp.StatusCode)

		tasks, tries := r.tasks(), r.attempts()
		require.Len(r, tasks, 1)
		require.Len(r, tries, 1)
		task, try := tasks[0], tries[0]
		require.Equal(r, "ax GET", task.Name)
		require.Equal(r, parent.SpanContext().SpanID(), task.Parent.SpanID())
		require.True(r, task.StartTime.Equal(start))
		require.Equal(r, time.Second, task.EndTime.Sub(task.StartTime))
		require.Equal(r, []string{"started"}, events(task))
		require.Equal(r, map[string]any{
			"http.request.method": "GET", "url.full": "http://api.test:8080/v1/x",
			"server.address": "api.test", "server.port": int64(8080), "http.response.status_code": int64(200),
			"ax.lane": "api.test:8080", "ax.owner": "search", "ax.outcome": "succeeded", "ax.source": "network",
			"ax.attempts": int64(1), "ax.waited": 0.0,
		}, attrs(task))
		require.Equal(r, codes.Unset, task.Status.Code)

		require.Equal(r, "GET", try.Name)
		require.Equal(r, task.SpanContext.SpanID(), try.Parent.SpanID())
		require.Equal(r, time.Second, try.EndTime.Sub(try.StartTime))
		require.Equal(r, map[string]any{
			"http.request.method": "GET", "url.full": "http://api.test:8080/v1/x",
			"server.address": "api.test", "server.port": int64(8080), "http.response.status_code": int64(200),
			"ax.lane": "api.test:8080", "ax.owner": "search", "ax.attempt": int64(1),
		}, attrs(try))
	})
}

func TestSpanEventsOfQueueAndRetry(t *testing.T) {
	cfg := ax.Config{MaxConcurrent: 1, Retry: &ax.Retry{BaseDelay: time.Second, Jitter: ax.NoJitter}}
	slow := func(r *http.Request) (*http.Response, error) {
		time.Sleep(time.Second)
		return answer(r, 200, ""), nil
	}
	traced(t, cfg, script(slow, says(503), func(*http.Request) (*http.Response, error) {
		return nil, errors.New("wire cut")
	}, says(200)), func(r *rig) {
		first := r.S.Submit(r.Context(), ax.Must(ax.Request{URL: "http://a.test/1"}.Task()))
		synctest.Wait()
		resp, err := r.S.Get(r.Context(), "http://a.test/2")
		require.NoError(r, err)
		require.Equal(r, 3, resp.Attempts)
		_, err = first.Result()
		require.NoError(r, err)

		task := r.tasks()[1]
		require.Equal(r, []string{"queued", "started", "retry", "started", "retry", "started"}, events(task))
		require.Equal(r, "ax.delay", string(task.Events[2].Attributes[1].Key))
		require.Equal(r, 1.0, task.Events[2].Attributes[1].Value.AsFloat64())
		tries := r.attempts()[1:]
		require.Len(r, tries, 3)
		for i, try := range tries {
			require.Equal(r, task.SpanContext.SpanID(), try.Parent.SpanID())
			require.Equal(r, int64(i+1), attrs(try)["ax.attempt"])
		}
		require.Equal(r, codes.Error, tries[0].Status.Code)
		require.Equal(r, "503", attrs(tries[0])["error.type"])
		require.NotContains(r, attrs(tries[0]), "http.request.resend_count")
		require.Equal(r, "_OTHER", attrs(tries[1])["error.type"])
		require.Equal(r, int64(1), attrs(tries[1])["http.request.resend_count"])
		require.Equal(r, int64(2), attrs(tries[2])["http.request.resend_count"])
		require.Equal(r, codes.Unset, tries[2].Status.Code)
	})
}

func TestSpanLinksOfCoalescedCallers(t *testing.T) {
	cfg := ax.Config{Dedupe: &ax.Dedupe{Window: time.Minute}, Retry: &ax.Retry{BaseDelay: time.Second, Jitter: ax.NoJitter}}
	slow := func(status int) roundTrip {
		return func(r *http.Request) (*http.Response, error) {
			time.Sleep(time.Second)
			return answer(r, status, "ok"), nil
		}
	}
	traced(t, cfg, script(slow(503), slow(200)), func(r *rig) {
		task := ax.Must(ax.Request{URL: "http://a.test/"}.Task())
		calls := []*ax.Call{r.S.Submit(r.Context(), task)}
		for range 2 { // one after the other, so that the first leads
			synctest.Wait()
			calls = append(calls, r.S.Submit(r.Context(), task))
		}
		for _, c := range calls {
			_, err := c.Result()
			require.NoError(r, err)
		}
		hit, err := r.S.Do(r.Context(), task)
		require.NoError(r, err)
		require.Equal(r, ax.FromWindow, hit.Source)

		tries := r.attempts()
		require.Len(r, tries, 2)
		tasks := r.tasks()
		require.Len(r, tasks, 4)
		var led, joined int
		for _, s := range tasks {
			switch attrs(s)["ax.source"] {
			case "network":
				led++
				require.Empty(r, s.Links)
				for _, try := range tries {
					require.Equal(r, s.SpanContext.SpanID(), try.Parent.SpanID())
				}
			case "flight":
				joined++
				require.Equal(r, []string{"coalesced"}, events(s))
				require.Len(r, s.Links, 2)
				for i, try := range tries {
					require.Equal(r, try.SpanContext.SpanID(), s.Links[i].SpanContext.SpanID())
				}
			case "window":
				require.Equal(r, []string{"window-hit"}, events(s))
			}
		}
		require.Equal(r, 1, led)
		require.Equal(r, 2, joined)
	})
}

// The span of an attempt that is redirected describes where it ended, and tells
// how it came there.
func TestSpanOfRedirect(t *testing.T) {
	traced(t, ax.Config{Breaker: &ax.Breaker{Window: 1}}, func(r *http.Request) (*http.Response, error) {
		if r.URL.Host == "a.test" {
			return answer(r, 303, "", "Location", "https://b.test/new?token=1"), nil
		}
		return answer(r, 503, "busy"), nil
	}, func(r *rig) {
		_, err := r.S.Send(r.Context(), ax.Request{Method: "POST", URL: "http://a.test/old?q=1", Body: []byte("x")})
		require.NoError(r, err)
		require.Equal(r, uint64(1), r.S.Stats().Lanes["b.test"].Failures)
		require.Len(r, r.attempts(), 1)
		try := r.attempts()[0]
		require.Equal(r, "GET", try.Name)
		require.Equal(r, codes.Error, try.Status.Code)
		require.Equal(r, map[string]any{
			"http.request.method": "GET", "url.full": "https://b.test/new",
			"server.address": "b.test", "server.port": int64(443), "http.response.status_code": int64(503),
			"ax.lane": "a.test", "ax.attempt": int64(1), "error.type": "503",
		}, attrs(try))
		require.Equal(r, []string{"redirected"}, events(try))
		from := map[string]any{}
		for _, kv := range try.Events[0].Attributes {
			from[string(kv.Key)] = kv.Value.AsInterface()
		}
		require.Equal(r, map[string]any{
			"http.response.status_code": int64(303), "url.full": "http://a.test/old",
			"server.address": "a.test", "server.port": int64(80),
		}, from)
		require.Equal(r, "a.test", attrs(r.tasks()[0])["server.address"])
		// The metric knows the lane of the task alone.
		require.Equal(r, map[string]int64{"lane=a.test,outcome=failure": 1}, r.sums("ax.attempt.duration"))
	})
}

// A flight goes on when the caller that its attempt is told of has left.
func TestSpanOfAttemptOutlivesItsFirstCaller(t *testing.T) {
	traced(t, ax.Config{Dedupe: &ax.Dedupe{}}, func(r *http.Request) (*http.Response, error) {
		time.Sleep(2 * time.Second)
		return answer(r, 200, "ok"), nil
	}, func(r *rig) {
		task := ax.Must(ax.Request{URL: "http://a.test/"}.Task())
		first := r.S.Submit(r.Context(), task)
		synctest.Wait()
		second := r.S.Submit(r.Context(), task)
		time.Sleep(time.Second)
		first.Cancel()
		_, err := second.Result()
		require.NoError(r, err)
		require.Len(r, r.attempts(), 1)
		try := r.attempts()[0]
		require.Equal(r, 2*time.Second, try.EndTime.Sub(try.StartTime))
		require.Equal(r, codes.Unset, try.Status.Code)
		for _, s := range r.tasks() {
			if attrs(s)["ax.outcome"] == "canceled" {
				require.Equal(r, "canceled", attrs(s)["error.type"])
				require.Equal(r, codes.Unset, s.Status.Code)
				continue
			}
			require.Equal(r, "succeeded", attrs(s)["ax.outcome"])
			require.Len(r, s.Links, 1)
			require.Equal(r, try.SpanContext.SpanID(), s.Links[0].SpanContext.SpanID())
		}
	})
}

func TestSpanEnds(t *testing.T) {
	hang := func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	for _, c := range []struct {
		name    string
		cfg     ax.Config
		do      func(*rig) error
		outcome string
		kind    string
		code    codes.Code
		tries   int
	}{
		{"attempt timeout", ax.Config{AttemptTimeout: time.Second}, func(r *rig) error {
			_, err := r.S.Get(r.Context(), "http://a.test/")
			return err
		}, "failed", "timeout", codes.Error, 1},
		{"caller's deadline", ax.Config{}, func(r *rig) error {
			ctx, cancel := context.WithTimeout(r.Context(), time.Second)
			defer cancel()
			_, err := r.S.Get(ctx, "http://a.test/")
			return err
		}, "canceled", "timeout", codes.Unset, 1},
		{"no wait", ax.Config{Rate: ax.PerMinute(1)}, func(r *rig) error {
			call := r.S.Submit(r.Context(), ax.Must(ax.Request{URL: "http://b.test/"}.Task()))
			defer call.Cancel()
			synctest.Wait()
			_, err := r.S.Send(r.Context(), ax.Request{URL: "http://a.test/", NoWait: true})
			return err
		}, "rejected", "would_wait", codes.Error, 1},
		{"unknown lane", ax.Config{}, func(r *rig) error {
			_, err := r.S.Send(r.Context(), ax.Request{URL: "http://a.test/", Lane: "typo"})
			return err
		}, "rejected", "_OTHER", codes.Error, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			traced(t, c.cfg, hang, func(r *rig) {
				require.Error(r, c.do(r))
				require.NoError(r, r.S.Close())
				synctest.Wait()
				require.Len(r, r.attempts(), c.tries)
				for _, s := range r.tasks() {
					if attrs(s)["server.address"] != "a.test" {
						continue
					}
					require.Equal(r, c.outcome, attrs(s)["ax.outcome"])
					require.Equal(r, c.kind, attrs(s)["error.type"])
					require.Equal(r, c.code, s.Status.Code)
				}
			})
		})
	}
}

func TestSpanOfStreamEndsWithItsBody(t *testing.T) {
	traced(t, ax.Config{}, says(200), func(r *rig) {
		resp, err := r.S.Send(r.Context(), ax.Request{URL: "http://a.test/", Stream: true})
		require.NoError(r, err)
		require.Len(r, r.tasks(), 1)
		require.Empty(r, r.attempts())
		require.Equal(r, map[string]int64{"lane=a.test": 1}, r.sums("ax.attempts.active"))
		time.Sleep(time.Second)
		_, err = io.ReadAll(resp.Body)
		require.NoError(r, err)
		require.Len(r, r.attempts(), 1)
		try := r.attempts()[0]
		require.Equal(r, time.Second, try.EndTime.Sub(try.StartTime))
	})
}

// Run has no executor: the events alone make the attempts' spans.
func TestSpanOfRun(t *testing.T) {
	traced(t, ax.Config{Retry: &ax.Retry{BaseDelay: time.Second, Jitter: ax.NoJitter}}, says(200), func(r *rig) {
		n := 0
		got, err := ax.Run(r.Context(), r.S, ax.Must(ax.Request{URL: "sql://db.test/"}.Task()), func(context.Context) (int, error) {
			n++
			time.Sleep(time.Second)
			if n == 1 {
				return 0, errors.New("deadlock")
			}
			return n, nil
		})
		require.NoError(r, err)
		require.Equal(r, 2, got)
		tries := r.attempts()
		require.Len(r, tries, 2)
		require.Equal(r, codes.Error, tries[0].Status.Code)
		require.Equal(r, codes.Unset, tries[1].Status.Code)
		require.Equal(r, time.Second, tries[1].EndTime.Sub(tries[1].StartTime))
		require.NotContains(r, attrs(tries[0]), "server.port")
	})
}

// A panic in a lone attempt unwinds its caller; its spans end all the same.
func TestSpanOfPanic(t *testing.T) {
	traced(t, ax.Config{}, func(*http.Request) (*http.Response, error) { panic("boom") }, func(r *rig) {
		require.PanicsWithValue(r, "boom", func() {
			_, _ = r.S.Send(r.Context(), ax.Request{Method: "POST", URL: "http://a.test/"})
		})
		require.Len(r, r.tasks(), 1)
		require.Len(r, r.attempts(), 1)
		require.Equal(r, codes.Error, r.attempts()[0].Status.Code)
	})
}

// A task made inside an attempt is a child of that attempt's span.
func TestSpanOfNestedTask(t *testing.T) {
	var r *rig
	traced(t, ax.Config{}, func(req *http.Request) (*http.Response, error) {
		if req.URL.Host == "outer.test" {
			if _, err := r.S.Get(req.Context(), "http://inner.test/"); err != nil {
				return nil, err
			}
		}
		return answer(req, 200, "ok"), nil
	}, func(got *rig) {
		r = got
		_, err := r.S.Get(r.Context(), "http://outer.test/")
		require.NoError(r, err)
		tries, tasks := r.attempts(), r.tasks()
		require.Len(r, tries, 2)
		require.Len(r, tasks, 2)
		byHost := map[any]trace.SpanContext{}
		for _, s := range tries {
			byHost[attrs(s)["server.address"]] = s.SpanContext
		}
		for _, s := range tasks {
			if attrs(s)["server.address"] == "inner.test" {
				require.Equal(r, byHost["outer.test"].SpanID(), s.Parent.SpanID())
			}
		}
	})
}

// An OnEvent finds the span of what it is told about in Event.Context.
func TestSpanInEventContext(t *testing.T) {
	var seen []string
	cfg := ax.Config{OnEvent: func(e ax.Event) {
		if e.Task != nil {
			seen = append(seen, e.Kind.String()+" "+trace.SpanContextFromContext(e.Context).SpanID().String())
		}
	}}
	traced(t, cfg, says(200), func(r *rig) {
		_, err := r.S.Send(r.Context(), ax.Request{Method: "POST", URL: "http://a.test/"})
		require.NoError(r, err)
		task, try := r.tasks()[0].SpanContext.SpanID().String(), r.attempts()[0].SpanContext.SpanID().String()
		require.Equal(r, []string{"submitted " + task, "started " + try, "attempt-done " + task, "succeeded " + task}, seen)
	})
}

// An executor that runs under another context than the event's waits a moment,
// then goes on as a child of the caller's span.
func TestSpanOfAttemptWithoutEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, ax.Config{}, says(200))
		defer r.S.Close()
		x := &executor{o: r.o, next: ax.HTTPExecutor(&http.Client{Transport: Transport(says(200))})}
		ctx, parent := r.tp.Tracer("test").Start(t.Context(), "caller")
		resp, err := x.Execute(ctx, ax.Must(ax.Request{URL: "http://a.test/"}.Task()))
		require.NoError(t, err)
		b, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, "ok", string(b))
		require.Len(t, r.attempts(), 1)
		require.Equal(t, parent.SpanContext().SpanID(), r.attempts()[0].Parent.SpanID())
		r.empty()
	})
}

// What is derived from an attempt's context ends with it, without a goroutine.
func TestAttemptContextEndsWhatIsDerived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, cancel := context.WithCancel(t.Context())
		type key struct{}
		ctx := &attemptContext{Context: parent, values: context.WithValue(parent, key{}, 1)}
		require.Equal(t, 1, ctx.Value(key{}))
		child, done := context.WithTimeout(ctx, time.Hour)
		defer done()
		cancel()
		<-child.Done()
		require.ErrorIs(t, child.Err(), context.Canceled)
	})
}

func TestBodyOfUpgradeKeepsBothDirections(t *testing.T) {
	ended := 0
	rw := struct {
		io.Reader
		io.Writer
		io.Closer
	}{strings.NewReader("in"), new(strings.Builder), io.NopCloser(nil)}
	b := newBody(rw, func(error) { ended++ })
	got, err := io.ReadAll(b)
	require.NoError(t, err)
	require.Equal(t, "in", string(got))
	require.Zero(t, ended)
	_, err = b.(io.Writer).Write([]byte("out"))
	require.NoError(t, err)
	require.ErrorIs(t, b.(interface{ CloseWrite() error }).CloseWrite(), errors.ErrUnsupported)
	require.NoError(t, b.Close())
	require.Equal(t, 1, ended)
}
