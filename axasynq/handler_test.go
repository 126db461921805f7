package axasynq_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/axsched/ax/axasynq"
	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"
)

// result reads what Handler has kept.
func result(t *testing.T, info *asynq.TaskInfo) axasynq.Result {
	t.Helper()
	var r axasynq.Result
	require.NoError(t, json.Unmarshal(info.Result, &r))
	return r
}

func TestHandlerSendsWhatWasStored(t *testing.T) {
	s := newStore(t)
	b := &backend{reply: func(_ int, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("Location", "/orders/7")
		w.Header().Set("Set-Cookie", "session=secret")
		w.WriteHeader(201)
		w.Write([]byte("created"))
	}}
	srv := httptest.NewServer(b)
	defer srv.Close()
	info := s.enqueue(ax.Request{
		Method: "POST", URL: srv.URL + "/orders", JSON: map[string]int{"n": 7}, Header: http.Header{"X-A": {"1"}},
	})
	s.serve(ax.Config{}, config())
	done := s.await(info, asynq.TaskStateCompleted)

	require.Len(t, b.saw(), 1)
	got := b.saw()[0]
	require.Equal(t, "POST", got.method)
	require.Equal(t, "/orders", got.path)
	require.JSONEq(t, `{"n":7}`, got.body)
	require.Equal(t, "1", got.header.Get("X-A"))
	require.Equal(t, info.ID, got.key)

	r := result(t, done)
	require.NotEmpty(t, r.Header.Get("Date"))
	r.Header.Del("Date")
	require.Equal(t, axasynq.Result{
		Status: 201, Header: http.Header{"Content-Type": {"text/plain"}, "Location": {"/orders/7"}},
		Body: []byte("created"), Attempts: 1, Source: "network",
	}, r)
}

// Its success frees the key.
func TestHandlerFreesTheKey(t *testing.T) {
	s := newStore(t)
	srv := httptest.NewServer(new(backend))
	defer srv.Close()
	first := s.enqueue(ax.Request{URL: srv.URL})
	s.serve(ax.Config{}, config())
	s.await(first, asynq.TaskStateCompleted)
	second := s.enqueue(ax.Request{URL: srv.URL})
	require.NotEqual(t, first.ID, second.ID)
	s.await(second, asynq.TaskStateCompleted)
}

// A task that was given up keeps its key, until it is deleted.
func TestHandlerKeepsTheKeyOfWhatWasGivenUp(t *testing.T) {
	s := newStore(t)
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	task := ax.Must(ax.Request{URL: srv.URL}.Task())
	info, err := axasynq.Enqueue(t.Context(), s.client, task)
	require.NoError(t, err)
	s.serve(ax.Config{}, config())
	s.await(info, asynq.TaskStateArchived)
	_, err = axasynq.Enqueue(t.Context(), s.client, task)
	require.ErrorIs(t, err, asynq.ErrDuplicateTask)
	require.NoError(t, s.inspector.DeleteTask(info.Queue, info.ID))
	_, err = axasynq.Enqueue(t.Context(), s.client, task)
	require.NoError(t, err)
}

func TestHandlerKeepsBodiesUpToABound(t *testing.T) {
	for _, c := range []struct {
		size      int
		stream    bool
		truncated bool
	}{{axasynq.MaxResultBody, false, false}, {axasynq.MaxResultBody + 1, false, true}, {3 * axasynq.MaxResultBody, true, true}} {
		t.Run(strconv.Itoa(c.size), func(t *testing.T) {
			s := newStore(t)
			body := bytes.Repeat([]byte("x"), c.size)
			srv := httptest.NewServer(&backend{reply: func(_ int, w http.ResponseWriter, _ *http.Request) { w.Write(body) }})
			defer srv.Close()
			info := s.enqueue(ax.Request{URL: srv.URL, Stream: c.stream})
			s.serve(ax.Config{}, config())
			r := result(t, s.await(info, asynq.TaskStateCompleted))
			require.Equal(t, c.truncated, r.Truncated)
			require.Equal(t, body[:min(c.size, axasynq.MaxResultBody)], r.Body)
		})
	}
}

// What another try cannot help is given up at once, with the answer kept.
func TestHandlerGivesUp(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		r      ax.Request
	}{{"4xx", 404, ax.Request{}}, {"501", 501, ax.Request{}}, {"NoRetry", 503, ax.Request{NoRetry: true}}} {
		t.Run(c.name, func(t *testing.T) {
			s := newStore(t)
			b := &backend{reply: func(_ int, w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", c.status) }}
			srv := httptest.NewServer(b)
			defer srv.Close()
			c.r.URL = srv.URL
			info := s.enqueue(c.r)
			s.serve(ax.Config{Retry: &ax.Retry{}}, config())
			got := s.await(info, asynq.TaskStateArchived)
			require.Equal(t, c.status, result(t, got).Status)
			require.Equal(t, "axasynq: answered "+strings.TrimSpace(statusLine(c.status))+": skip retry for the task", got.LastErr)
			require.Len(t, b.saw(), 1)
		})
	}
}

func statusLine(code int) string {
	return map[int]string{404: "404 Not Found", 501: "501 Not Implemented", 503: "503 Service Unavailable"}[code]
}

// Retry-After says when; every try carries the same key, a caller's own is kept.
func TestHandlerHeedsRetryAfter(t *testing.T) {
	for _, c := range []struct{ name, own string }{{"task's id", ""}, {"caller's own", "mine"}} {
		t.Run(c.name, func(t *testing.T) {
			s := newStore(t)
			b := &backend{reply: func(n int, w http.ResponseWriter, _ *http.Request) {
				if n == 1 {
					w.Header().Set("Retry-After", "1")
					w.WriteHeader(429)
				}
			}}
			srv := httptest.NewServer(b)
			defer srv.Close()
			r := ax.Request{Method: "POST", URL: srv.URL}
			if c.own != "" {
				r.Header = http.Header{"idempotency-key": {c.own}}
			}
			info := s.enqueue(r)
			s.serve(ax.Config{}, config())
			got := s.await(info, asynq.TaskStateCompleted)
			require.Equal(t, 1, got.Retried)
			saw := b.saw()
			require.Len(t, saw, 2)
			require.GreaterOrEqual(t, saw[1].at.Sub(saw[0].at), 900*time.Millisecond)
			want := cmp.Or(c.own, info.ID)
			require.Equal(t, want, saw[0].key)
			require.Equal(t, want, saw[1].key)
		})
	}
}

// A task that the scheduler refused was not sent, and has not failed.
func TestHandlerDoesNotCountRefusals(t *testing.T) {
	s := newStore(t)
	b := &backend{reply: func(n int, w http.ResponseWriter, _ *http.Request) {
		if n == 1 {
			w.WriteHeader(500)
		}
	}}
	srv := httptest.NewServer(b)
	defer srv.Close()
	server := config()
	server.Concurrency = 1
	refusals := make(chan error, 100)
	server.ErrorHandler = asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) { refusals <- err })
	server.RetryDelayFunc = func(n int, err error, task *asynq.Task) time.Duration {
		if axasynq.IsFailure(err) {
			return time.Millisecond // asynq's own begins at 15 s
		}
		return axasynq.RetryDelay(n, err, task)
	}
	info := s.enqueue(ax.Request{Method: "POST", URL: srv.URL})
	s.serve(ax.Config{Breaker: &ax.Breaker{Window: 1, OpenFor: 2 * time.Second, WhenOpen: ax.OpenReject}}, server)
	got := s.await(info, asynq.TaskStateCompleted)
	require.Equal(t, 1, got.Retried) // the 500
	require.Len(t, b.saw(), 2)
	require.ErrorContains(t, <-refusals, "answered 500")
	require.ErrorIs(t, <-refusals, ax.ErrCircuitOpen)
}

// A task that was sent and failed has failed, also if its retry was refused: else it
// would run against a dead server for ever.
func TestHandlerCountsWhatWasSentBeforeARefusal(t *testing.T) {
	dead := httptest.NewServer(nil)
	url := dead.URL
	dead.Close()
	retry := &ax.Retry{Max: 2, BaseDelay: time.Millisecond}
	for _, c := range []struct {
		name string
		cfg  ax.Config
	}{
		{"breaker", ax.Config{Retry: retry, Breaker: &ax.Breaker{Window: 1, OpenFor: time.Minute, WhenOpen: ax.OpenReject}}},
		{"queue timeout", ax.Config{Retry: retry, Breaker: &ax.Breaker{Window: 1, OpenFor: time.Minute}}},
		{"rate", ax.Config{Retry: retry, Rate: ax.PerMinute(1)}},
		{"budget", ax.Config{Retry: retry, Budgets: map[string]ax.Budget{"o": {Rate: ax.PerMinute(1), Over: ax.OverReject}}}},
		{"alternate", ax.Config{
			Breaker:  &ax.Breaker{Window: 1, OpenFor: time.Minute, WhenOpen: ax.OpenReject},
			Fallback: &ax.Fallback{Alternate: ax.Must(ax.Request{URL: url + "/other", Lane: "other"}.Task())},
			Lanes:    []ax.Lane{{Name: "other", NoFallback: true, NoBreaker: true}},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			sched, err := ax.New(nil, c.cfg)
			require.NoError(t, err)
			defer sched.Close()
			text, err := ax.Must(ax.Request{URL: url, Owner: "o", QueueTimeout: 50 * time.Millisecond}.Task()).MarshalJSON()
			require.NoError(t, err)
			stored := asynq.NewTaskWithHeaders(axasynq.Type, nil, map[string]string{"ax-task": string(text)})
			h := axasynq.Handler(sched)
			require.True(t, axasynq.IsFailure(h.ProcessTask(t.Context(), stored)))
			if c.name == "alternate" { // now the breaker is open, and only the alternate is sent
				err := h.ProcessTask(t.Context(), stored)
				require.ErrorIs(t, err, ax.ErrCircuitOpen)
				require.True(t, axasynq.IsFailure(err))
			}
			require.NotZero(t, sched.Stats().Attempts)
		})
	}
}

// A name in Supersede that was stored nevertheless ends nothing: what is stored is sent.
func TestHandlerSupersedesNothing(t *testing.T) {
	s := newStore(t)
	var came atomic.Int32
	both := make(chan struct{})
	b := &backend{reply: func(int, http.ResponseWriter, *http.Request) {
		if came.Add(1) == 2 {
			close(both)
		}
		<-both // are in flight at once
	}}
	srv := httptest.NewServer(b)
	t.Cleanup(srv.Close)
	var all []*asynq.TaskInfo
	for range 2 {
		text, err := ax.Must(ax.Request{Method: "PUT", URL: srv.URL, Supersede: "profile-7"}.Task()).MarshalJSON()
		require.NoError(t, err)
		info, err := s.client.Enqueue(asynq.NewTaskWithHeaders(axasynq.Type, nil, map[string]string{"ax-task": string(text)}), asynq.Retention(time.Hour))
		require.NoError(t, err)
		all = append(all, info)
	}
	s.serve(ax.Config{}, config())
	for _, info := range all {
		s.await(info, asynq.TaskStateCompleted)
	}
	require.Len(t, b.saw(), 2)
}

func TestHandlerRefusesWhatItDidNotStore(t *testing.T) {
	sched, err := ax.New(nil, ax.Config{})
	require.NoError(t, err)
	defer sched.Close()
	h := axasynq.Handler(sched)
	for _, c := range []struct {
		task *asynq.Task
		want string
	}{
		{asynq.NewTask("mail", nil), `axasynq: task of type "mail", not "ax:request": skip retry for the task`},
		{asynq.NewTask(axasynq.Type, nil), `axasynq: task without the header "ax-task": was it stored by Enqueue?: skip retry for the task`},
		{asynq.NewTaskWithHeaders(axasynq.Type, nil, map[string]string{"ax-task": "{"}), `axasynq: unexpected end of JSON input: skip retry for the task`},
		{asynq.NewTaskWithHeaders(axasynq.Type, nil, map[string]string{"ax-task": "null"}), `axasynq: no task in the header "ax-task": skip retry for the task`},
		{asynq.NewTaskWithHeaders(axasynq.Type, nil, map[string]string{"ax-task": "7"}), `axasynq: ax: task JSON: json: cannot unmarshal number into Go value of type ax.taskJSON: skip retry for the task`},
		{asynq.NewTaskWithHeaders("mail", nil, map[string]string{"ax-task": `{"url":"http://a.test/"}`}), `axasynq: task of type "mail", not "ax:request": skip retry for the task`},
	} {
		err := h.ProcessTask(t.Context(), c.task)
		require.ErrorIs(t, err, asynq.SkipRetry)
		require.EqualError(t, err, c.want)
	}
}

// What a newer ax has stored is left to a newer worker.
func TestHandlerLeavesWhatItDoesNotKnow(t *testing.T) {
	sched, err := ax.New(nil, ax.Config{})
	require.NoError(t, err)
	defer sched.Close()
	for _, c := range []struct {
		name, text, want string
		failure          bool
	}{
		{"field", `{"url":"http://a.test/?key=secret","newer":1}`, `axasynq: ax: task JSON: json: unknown field "newer"`, true},
		{"field, NoRetry", `{"url":"http://a.test/","no_retry":true,"newer":1}`, `axasynq: ax: task JSON: json: unknown field "newer"`, false},
		{"value", `{"url":"http://a.test/","retry":{"jitter":"newer"}}`, `axasynq: ax: task JSON: unknown jitter "newer": full, equal or none`, true},
		{"field of an alternate", `{"url":"http://a.test/","fallback":{"alternate":{"url":"http://b.test/","newer":1}}}`,
			`axasynq: Request.Fallback.Alternate: ax: task JSON: json: unknown field "newer"`, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := axasynq.Handler(sched).ProcessTask(t.Context(), asynq.NewTaskWithHeaders(axasynq.Type, nil, map[string]string{"ax-task": c.text}))
			require.EqualError(t, err, c.want)
			require.NotErrorIs(t, err, asynq.SkipRetry)
			require.Equal(t, c.failure, axasynq.IsFailure(err))
			require.GreaterOrEqual(t, axasynq.RetryDelay(0, err, nil), 15*time.Second)
		})
	}
}
