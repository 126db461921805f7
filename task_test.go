package ax

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/axsched/ax/internal/redact"
	"github.com/stretchr/testify/require"
)

func TestPriorityString(t *testing.T) {
	for p, want := range map[Priority]string{
		Low: "low", Normal: "normal", Important: "important", Urgent: "urgent", 7: "Priority(7)", -2: "Priority(-2)",
	} {
		require.Equal(t, want, p.String())
	}
}

func openNothing() (io.ReadCloser, error) { return http.NoBody, nil }
func prepareNothing(*http.Request) error  { return nil }

// chain is a task with n alternates behind it.
func chain(t *testing.T, n int) *Task {
	task := Must(Request{URL: "http://a.test/"}.Task())
	for range n {
		var err error
		task, err = Request{URL: "http://a.test/", Fallback: &Fallback{Alternate: task}}.Task()
		require.NoError(t, err)
	}
	return task
}

func TestTaskFaults(t *testing.T) {
	const u = "http://a.test/"
	for name, c := range map[string]struct {
		r    Request
		want []string
	}{
		"method":         {Request{URL: u, Method: "GE T"}, []string{`Request.Method: "GE T" is not a method`}},
		"method inject":  {Request{URL: u, Method: "GET\r\nX: y"}, []string{`Request.Method: "GET\r\nX: y" is not a method`}},
		"no URL":         {Request{}, []string{"Request.URL: empty; it must be absolute, like https://host/path"}},
		"relative":       {Request{URL: "/x"}, []string{"Request.URL: no scheme; it must be absolute, like https://host/path"}},
		"no host":        {Request{URL: "http:///x"}, []string{"Request.URL: no host; it must be absolute, like https://host/path"}},
		"port only":      {Request{URL: "http://:80/x"}, []string{"Request.URL: no host; it must be absolute, like https://host/path"}},
		"opaque":         {Request{URL: "mailto:a@b"}, []string{"Request.URL: no host; it must be absolute, like https://host/path"}},
		"URL control":    {Request{URL: "http://a.test/\n"}, []string{"Request.URL: does not parse: net/url: invalid control character in URL"}},
		"URL port":       {Request{URL: "http://user:hunter2/"}, []string{"Request.URL: does not parse: invalid port"}},
		"URL escape":     {Request{URL: "http://u:s3%zz@a.test/"}, []string{"Request.URL: does not parse: invalid URL escape"}},
		"header name":    {Request{URL: u, Header: http.Header{"A b": {"v"}}}, []string{`Request.Header: "A b" is not a header name`}},
		"header no name": {Request{URL: u, Header: http.Header{"": {"v"}}}, []string{`Request.Header: "" is not a header name`}},
		"header LF":      {Request{URL: u, Header: http.Header{"X-A": {"ok", "a\nb: c"}}}, []string{"Request.Header: X-A: a value holds a control character"}},
		"header CR":      {Request{URL: u, Header: http.Header{"X-A": {"a\rb"}}}, []string{"Request.Header: X-A: a value holds a control character"}},
		"header NUL":     {Request{URL: u, Header: http.Header{"X-A": {"\x00"}}}, []string{"Request.Header: X-A: a value holds a control character"}},
		"two headers": {Request{URL: u, Header: http.Header{"X-B": {"\x00"}, "X-A": {"\x7f"}}}, []string{
			"Request.Header: X-A: a value holds a control character", "Request.Header: X-B: a value holds a control character"}},
		"host":      {Request{URL: u, Header: http.Header{"Host": {"a b"}}}, []string{"Request.Header: Host: must be one host[:port]"}},
		"hosts":     {Request{URL: u, Header: http.Header{"Host": {"a", "b"}}}, []string{"Request.Header: Host: must be one host[:port]"}},
		"hosts 2":   {Request{URL: u, Header: http.Header{"Host": {"h"}, "host": {"h"}}}, []string{"ost: must be one host[:port]"}},
		"two body":  {Request{URL: u, Body: []byte("x"), JSON: 1}, []string{"Request.Body: excludes Request.JSON"}},
		"all body":  {Request{URL: u, Body: []byte{}, JSON: 1, GetBody: openNothing}, []string{"Request.Body: excludes Request.JSON and Request.GetBody"}},
		"JSON":      {Request{URL: u, JSON: math.NaN()}, []string{"Request.JSON: json: unsupported value: NaN"}},
		"length":    {Request{URL: u, Body: []byte("x"), ContentLength: 1}, []string{"Request.ContentLength: needs GetBody; other bodies are measured"}},
		"length <0": {Request{URL: u, GetBody: openNothing, ContentLength: -1}, []string{"Request.ContentLength: -1 is negative"}},
		"durations": {Request{URL: u, AttemptTimeout: -1, QueueTimeout: -time.Second, AgingStep: -1, DedupeWindow: -1, Cooldown: -1}, []string{
			"Request.AttemptTimeout: -1ns is negative", "Request.QueueTimeout: -1s is negative", "Request.AgingStep: -1ns is negative",
			"Request.DedupeWindow: -1ns is negative", "Request.Cooldown: -1ns is negative"}},
		"dedupe":          {Request{URL: u, Dedupe: true, NoDedupe: true}, []string{"Request.Dedupe: contradicts NoDedupe"}},
		"dedupe GetBody":  {Request{URL: u, Dedupe: true, GetBody: openNothing}, []string{"Request.Dedupe: body from GetBody cannot be compared; set DedupeKey"}},
		"dedupe Prepare":  {Request{URL: u, Dedupe: true, Prepare: prepareNothing}, []string{"Request.Dedupe: what Prepare does is not known beforehand; set DedupeKey"}},
		"cooldown":        {Request{URL: u, Cooldown: 1, Prepare: prepareNothing}, []string{"Request.Cooldown: what Prepare does is not known beforehand; set DedupeKey"}},
		"retry":           {Request{URL: u, Retry: &Retry{}, NoRetry: true}, []string{"Request.Retry: contradicts NoRetry"}},
		"fallback":        {Request{URL: u, Fallback: &Fallback{Stale: 1}, NoFallback: true}, []string{"Request.Fallback: contradicts NoFallback"}},
		"alternate zero":  {Request{URL: u, Fallback: &Fallback{Alternate: &Task{}}}, []string{"Request.Fallback.Alternate: is a zero Task"}},
		"alternate depth": {Request{URL: u, Fallback: &Fallback{Alternate: chain(t, 16)}}, []string{"Request.Fallback.Alternate: more than 16 alternates in a chain"}},
		"key inject":      {Request{URL: u, IdempotencyKey: "a\r\nb"}, []string{"Request.IdempotencyKey: holds a control character"}},
		"key twice": {Request{URL: u, IdempotencyKey: "a", Header: http.Header{"idempotency-key": {"b"}}},
			[]string{"Request.IdempotencyKey: differs from the Idempotency-Key header"}},
		"all at once": {Request{Method: "\n", URL: "x", AgingStep: -1, Dedupe: true, NoDedupe: true}, []string{
			`Request.Method: "\n" is not a method`, "Request.URL: no scheme; it must be absolute, like https://host/path",
			"Request.AgingStep: -1ns is negative", "Request.Dedupe: contradicts NoDedupe"}},
	} {
		task, err := c.r.Task()
		require.Nil(t, task, name)
		if name == "hosts 2" {
			require.ErrorContains(t, err, c.want[0], name)
			continue
		}
		require.EqualError(t, err, "ax: invalid request: "+strings.Join(c.want, "\n"), name)
	}
}

// Errors must not give away what they are about.
func TestTaskErrorsAreRedacted(t *testing.T) {
	for _, u := range []string{
		"http://user:SECRET@a.test:x/?q=SECRET", "http://user:SECRET/", "http://u:SECRET%zz@a.test/", "//u:SECRET@h/?q=SECRET",
		"SECRET://\x7f", "http://u:SECRET@:80/?token=SECRET", "http://[SECRET/", ":SECRET", "http://a.test:SECRET/", "SECRET",
	} {
		_, err := Request{URL: u, Header: http.Header{"Authorization": {"SECRET\n"}, "Host": {"SECRET /"}}, IdempotencyKey: "SECRET\n"}.Task()
		require.Error(t, err, u)
		require.NotContains(t, err.Error(), "SECRET", u)
	}
}

func TestTaskAcceptsAnyScheme(t *testing.T) {
	task, err := Request{URL: "htps://a.test/"}.Task()
	require.NoError(t, err)
	require.Equal(t, "a.test", task.authority)
}

func TestMustPanics(t *testing.T) {
	require.Panics(t, func() { Must(Request{}.Task()) })
}

func TestAuthority(t *testing.T) {
	for u, want := range map[string]string{
		"http://API.Example.com/":        "api.example.com",
		"http://api.example.com:80/":     "api.example.com",
		"https://api.example.com:443/":   "api.example.com",
		"https://api.example.com:80/":    "api.example.com:80",
		"http://api.example.com:/":       "api.example.com",
		"http://127.0.0.1:8080/":         "127.0.0.1:8080",
		"http://[::1]:8080/":             "[::1]:8080",
		"HTTP://[::1]:80/":               "[::1]",
		"http://[FE80::1]/":              "[fe80::1]",
		"http://user:pw@a.test:80/?a=:1": "a.test",
	} {
		require.Equal(t, want, Must(Request{URL: u}.Task()).authority, u)
	}
}

func TestRedactURL(t *testing.T) {
	for u, want := range map[string]string{
		"http://u:p@a.test/x%2Fy?b=1&a=2&a=3#frag": "http://a.test/x%2Fy?b=xxxxx&a=xxxxx&a=xxxxx",
		"http://a.test?flag&x=":                    "http://a.test?flag&x=xxxxx",
		"http://a.test/?":                          "http://a.test/?",
		"/relative?x=1=2":                          "/relative?x=xxxxx",
		"http://a.test/?a=1;b=secret":              "http://a.test/?a=xxxxx",
	} {
		p, err := url.Parse(u)
		require.NoError(t, err)
		require.Equal(t, want, redact.URL(p))
	}
	require.Empty(t, redact.URL(nil))
	require.Equal(t, "http://a.test/?q=xxxxx", Must(Request{URL: "http://a.test/", Query: url.Values{"q": {"s"}}}.Task()).redactedURL())
}

func TestTaskAccessors(t *testing.T) {
	task := Must(Request{URL: "http://a.test/x?b=2&a=1#f", Query: url.Values{"c": {"x y"}, "b": {"3"}}}.Task())
	require.Equal(t, "GET", task.Method())
	require.Equal(t, "http://a.test/x?b=2&a=1&b=3&c=x+y#f", task.URL())
	require.Equal(t, "http://a.test/x?c=1", Must(Request{URL: "http://a.test/x", Query: url.Values{"c": {"1"}}}.Task()).URL())
	require.Equal(t, "PURGE", Must(Request{URL: "http://a.test/", Method: "PURGE"}.Task()).Method())
	require.Equal(t, "http://a.test/?x", Must(Request{URL: "http://a.test/?x", Query: url.Values{"c": nil}}.Task()).URL())
}

func TestZeroTask(t *testing.T) {
	for _, task := range []*Task{{}} {
		require.False(t, task.usable())
		require.Equal(t, "GET", task.Method())
		require.Empty(t, task.URL())
		require.Empty(t, task.Key())
		require.Empty(t, task.redactedURL())
		require.Equal(t, Request{}, task.Request())
		_, err := task.NewRequest(t.Context())
		require.EqualError(t, err, "ax: zero Task; make one with Request.Task")
		_, ok := task.baseKey(nil, "")
		require.False(t, ok)
		_, err = json.Marshal(task)
		require.ErrorIs(t, err, errZeroTask)
	}
	require.False(t, (*Task)(nil).usable())
}

func TestTaskMethods(t *testing.T) {
	for m, c := range map[string]struct{ safe, idempotent bool }{
		"": {true, true}, "GET": {true, true}, "HEAD": {true, true}, "OPTIONS": {true, true}, "TRACE": {true, true},
		"PUT": {false, true}, "DELETE": {false, true}, "POST": {}, "PATCH": {}, "CONNECT": {}, "get": {},
	} {
		r := Request{URL: "http://a.test/", Method: m}
		task := Must(r.Task())
		require.Equal(t, c.safe, task.safe(), m)
		require.Equal(t, c.idempotent, task.idempotent(), m)
		r.IdempotencyKey = "k"
		require.True(t, Must(r.Task()).idempotent(), m)
		r.IdempotencyKey, r.Header = "", http.Header{"idempotency-key": {"k"}}
		require.True(t, Must(r.Task()).idempotent(), m)
	}
}

// The task is a deep copy, and so is what Request returns.
func TestTaskIsImmutable(t *testing.T) {
	r := Request{
		URL: "http://a.test/", Method: "POST", Query: url.Values{"q": {"1"}}, Header: http.Header{"X-A": {"1"}}, Body: []byte("body"),
		Tags: []string{"t"}, Retry: &Retry{Max: 1}, Fallback: &Fallback{Stale: 1}, Hedge: &Hedge{After: 1},
	}
	task := Must(r.Task())
	before := task.Request()
	spoil := func(r Request) {
		r.Query["q"][0], r.Header["X-A"][0], r.Body[0], r.Tags[0] = "2", "2", 'B', "u"
		r.Query["p"], r.Header["X-B"] = nil, nil
		r.Retry.Max, r.Fallback.Stale, r.Hedge.After = 2, 2, 2
	}
	spoil(r)
	require.Equal(t, before, task.Request())
	spoil(task.Request())
	require.Equal(t, before, task.Request())
	req, err := task.NewRequest(t.Context())
	require.NoError(t, err)
	req.Header["X-A"][0], req.URL.Path = "2", "/other"
	again, err := task.NewRequest(t.Context())
	require.NoError(t, err)
	require.Equal(t, "http://a.test/?q=1", again.URL.String())
	require.Equal(t, http.Header{"X-A": {"1"}}, again.Header)
	require.Equal(t, "body", readBody(t, again.Body))
}

// A buffer reused after Task is no buffer of the task.
func TestCaseH55TaskCopiesBody(t *testing.T) {
	buf := []byte(strings.Repeat("x", 1<<10))
	v := map[string]any{"k": []int{1}}
	task := Must(Request{URL: "http://a.test/", Method: "POST", Body: buf}.Task())
	jsonTask := Must(Request{URL: "http://a.test/", Method: "POST", JSON: v}.Task())
	clear(buf)
	v["k"] = 2
	for range 2 {
		req, err := task.NewRequest(t.Context())
		require.NoError(t, err)
		require.Equal(t, strings.Repeat("x", 1<<10), readBody(t, req.Body))
		req, err = jsonTask.NewRequest(t.Context())
		require.NoError(t, err)
		require.Equal(t, `{"k":[1]}`, readBody(t, req.Body))
	}
}

func TestRequestRoundTrip(t *testing.T) {
	for name, r := range map[string]Request{
		"get":  {URL: "http://u:p@A.test:80/x?z=1#f", Query: url.Values{"q": {"1", "2"}}, Header: http.Header{"x-raw": {"1"}, "Host": {"b.test"}}},
		"body": {URL: "http://a.test/", Method: "PUT", Body: []byte("x"), IdempotencyKey: "k"},
		"json": {URL: "http://a.test/", Method: "POST", JSON: json.RawMessage(`{"a":"<"}`), Dedupe: true, Owner: "o", Priority: -9},
		"null": {URL: "http://a.test/", Method: "POST", JSON: json.RawMessage(`null`)},
	} {
		task := Must(r.Task())
		again := Must(task.Request().Task())
		require.Equal(t, task.Request(), again.Request(), name)
		require.Equal(t, task.Key(), again.Key(), name)
		a, err := task.NewRequest(t.Context())
		require.NoError(t, err)
		b, err := again.NewRequest(t.Context())
		require.NoError(t, err)
		require.Equal(t, written(t, a), written(t, b), name)
	}
}

// written is the request as it goes over the wire.
func written(t *testing.T, req *http.Request) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, req.Write(&b))
	return b.String()
}

func readBody(t *testing.T, body io.ReadCloser) string {
	t.Helper()
	b, err := io.ReadAll(body)
	require.NoError(t, err)
	require.NoError(t, body.Close())
	return string(b)
}

func TestNewRequest(t *testing.T) {
	task := Must(Request{
		URL: "http://u:p@a.test/x?b=1", Method: "POST", Query: url.Values{"c": {"2"}}, JSON: map[string]int{"n": 1},
		Header: http.Header{"X-A": {"1", "2"}, "host": {"b.test"}}, IdempotencyKey: "key",
	}.Task())
	ctx := context.WithValue(t.Context(), hintsKey{}, 1)
	req, err := task.NewRequest(ctx)
	require.NoError(t, err)
	require.Equal(t, ctx, req.Context())
	require.Equal(t, "POST", req.Method)
	require.Equal(t, "http://u:p@a.test/x?b=1&c=2", req.URL.String())
	require.Equal(t, "b.test", req.Host)
	require.EqualValues(t, 7, req.ContentLength)
	require.Equal(t, http.Header{"X-A": {"1", "2"}, "Content-Type": {"application/json"}, "Idempotency-Key": {"key"}}, req.Header)
	again, err := req.GetBody()
	require.NoError(t, err)
	require.Equal(t, `{"n":1}`, readBody(t, again))
	require.Equal(t, `{"n":1}`, readBody(t, req.Body))

	var none context.Context
	_, err = task.NewRequest(none)
	require.EqualError(t, err, "ax: nil context")

	get, err := Must(Request{URL: "http://a.test"}.Task()).NewRequest(t.Context())
	require.NoError(t, err)
	require.Nil(t, get.Body)
	require.Nil(t, get.GetBody)
	require.NotNil(t, get.Header)
	require.Equal(t, "GET / HTTP/1.1\r\nHost: a.test\r\nUser-Agent: Go-http-client/1.1\r\n\r\n", written(t, get))
}

func TestNewRequestKeepsContentType(t *testing.T) {
	req, err := Must(Request{URL: "http://a.test", JSON: 1, Header: http.Header{"content-type": {"application/merge-patch+json"}}}.Task()).NewRequest(t.Context())
	require.NoError(t, err)
	require.Equal(t, http.Header{"content-type": {"application/merge-patch+json"}}, req.Header)
}

// The key is the same on all attempts.
func TestCaseH17SameIdempotencyKey(t *testing.T) {
	for _, r := range []Request{
		{URL: "http://a.test/", Method: "POST", IdempotencyKey: "k1"},
		{URL: "http://a.test/", Method: "POST", Header: http.Header{"Idempotency-Key": {"k1"}}},
		{URL: "http://a.test/", Method: "POST", Header: http.Header{"idempotency-key": {"k1"}}, IdempotencyKey: "k1"},
	} {
		task := Must(r.Task())
		for range 3 {
			req, err := task.NewRequest(t.Context())
			require.NoError(t, err)
			require.Equal(t, 1, strings.Count(strings.ToLower(written(t, req)), "idempotency-key: k1"))
		}
	}
}

// closer counts how often it is closed.
type closer struct {
	io.Reader
	closed int
}

func (c *closer) Close() error { c.closed++; return nil }

var errDisk = errors.New("disk")

// failing fails after its first byte.
type failing struct{}

func (failing) Read(p []byte) (int, error) { p[0] = 'x'; return 1, errDisk }

func TestNewRequestGetBody(t *testing.T) {
	body := &closer{Reader: failing{}}
	task := Must(Request{URL: "http://a.test/", Method: "POST", ContentLength: 9, GetBody: func() (io.ReadCloser, error) { return body, nil }}.Task())
	require.True(t, task.replayable())
	req, err := task.NewRequest(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 9, req.ContentLength)
	b, err := io.ReadAll(req.Body)
	require.Equal(t, "x", string(b))
	marked, ok := errors.AsType[*bodyError](err)
	require.True(t, ok)
	require.Equal(t, errDisk, marked.Err)
	require.ErrorIs(t, err, errDisk)
	require.EqualError(t, err, "ax: request body: disk")
	require.NoError(t, req.Body.Close())
	require.Equal(t, 1, body.closed)
}

func TestNewRequestGetBodyFails(t *testing.T) {
	for _, open := range []func() (io.ReadCloser, error){
		func() (io.ReadCloser, error) { return nil, errDisk },
		func() (io.ReadCloser, error) { return nil, nil },
	} {
		_, err := Must(Request{URL: "http://a.test/", Method: "POST", GetBody: open}.Task()).NewRequest(t.Context())
		_, ok := errors.AsType[*bodyError](err)
		require.True(t, ok)
	}
}

// The mark of a read error survives the way through net/http.
func TestBodyErrorThroughClient(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) }))
	defer srv.Close()
	task := Must(Request{URL: srv.URL, Method: "POST", GetBody: func() (io.ReadCloser, error) { return &closer{Reader: failing{}}, nil }}.Task())
	req, err := task.NewRequest(t.Context())
	require.NoError(t, err)
	_, err = srv.Client().Do(req)
	_, ok := errors.AsType[*bodyError](err)
	require.True(t, ok, "%v", err)
}

// http.Client sends the body again on 307, which needs req.GetBody.
func TestNewRequestBodySurvivesRedirect(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			http.Redirect(w, r, "/to", http.StatusTemporaryRedirect)
			return
		}
		io.Copy(w, r.Body)
	}))
	defer srv.Close()
	req, err := Must(Request{URL: srv.URL, Method: "POST", Body: []byte("hello")}.Task()).NewRequest(t.Context())
	require.NoError(t, err)
	resp, err := srv.Client().Do(req)
	require.NoError(t, err)
	require.Equal(t, "hello", readBody(t, resp.Body))
}

func TestPrepare(t *testing.T) {
	body := &closer{Reader: strings.NewReader("x")}
	r := Request{URL: "http://a.test/", Method: "POST", GetBody: func() (io.ReadCloser, error) { return body, nil }}
	r.Prepare = func(req *http.Request) error { req.Header.Set("Signature", req.URL.Path); return nil }
	req, err := Must(r.Task()).NewRequest(t.Context())
	require.NoError(t, err)
	require.Equal(t, "/", req.Header.Get("Signature"))
	require.Zero(t, body.closed)

	r.Prepare = func(req *http.Request) error { return errDisk }
	_, err = Must(r.Task()).NewRequest(t.Context())
	marked, ok := errors.AsType[*prepareError](err)
	require.True(t, ok)
	require.Equal(t, errDisk, marked.Unwrap())
	require.EqualError(t, err, "ax: Prepare: disk")
	require.Equal(t, 1, body.closed)

	r.Prepare = func(req *http.Request) error { panic("x") }
	require.Panics(t, func() { Must(r.Task()).NewRequest(t.Context()) })
	require.Equal(t, 2, body.closed)
}

func FuzzRequest(f *testing.F) {
	f.Add("GET", "http://a.test/?a=1", "X-A", "v", []byte("x"), int64(0), int64(0), uint8(0))
	f.Add("P\n", "http://u:p@[::1]:80/%zz", "Host", "b.test:1", []byte(`{"a":1}`), int64(-1), int64(3), uint8(255))
	f.Fuzz(func(t *testing.T, method, u, name, value string, body []byte, length, timeout int64, bits uint8) {
		r := Request{
			Method: method, URL: u, Header: http.Header{name: {value}}, Query: url.Values{name: {value}}, ContentLength: length,
			AttemptTimeout: time.Duration(timeout), Dedupe: bits&1 != 0, NoDedupe: bits&2 != 0, IdempotencyKey: value,
		}
		if bits&4 != 0 {
			r.Body = body
		}
		if bits&8 != 0 {
			r.JSON = json.RawMessage(body)
		}
		if bits&16 != 0 {
			r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		}
		task, err := r.Task()
		if err != nil {
			require.Nil(t, task)
			return
		}
		req, err := task.NewRequest(t.Context())
		require.NoError(t, err)
		require.NotContains(t, req.Method+req.Host, "\n")
		again, err := task.Request().Task()
		require.NoError(t, err)
		require.Equal(t, task.Key(), again.Key())
		require.Equal(t, task.URL(), again.URL())
		require.NotEmpty(t, task.authority)
		require.NotEmpty(t, task.redactedURL())
	})
}

func BenchmarkTask(b *testing.B) {
	for name, r := range benchRequests() {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r.Task()
			}
		})
	}
}

func BenchmarkNewRequest(b *testing.B) {
	for name, r := range benchRequests() {
		b.Run(name, func(b *testing.B) {
			task := Must(r.Task())
			b.ReportAllocs()
			for b.Loop() {
				task.NewRequest(b.Context())
			}
		})
	}
}

func benchRequests() map[string]Request {
	return map[string]Request{
		"get":    {URL: "https://api.example.com/v1/users/42"},
		"header": {URL: "https://api.example.com/v1/users?b=2&a=1", Header: http.Header{"Authorization": {"Bearer x"}, "Accept": {"application/json"}, "User-Agent": {"x"}}},
		"json":   {URL: "https://api.example.com/v1/users", Method: "POST", JSON: map[string]any{"name": "a", "age": 3}, Dedupe: true},
	}
}
