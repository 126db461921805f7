package ax

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func httpRequest(t *testing.T, method, u string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequest(method, u, body)
	require.NoError(t, err)
	return req
}

// An equivalent request is sent, and the caller's stays as it was.
func TestTaskFromIsEquivalent(t *testing.T) {
	for name, change := range map[string]func(*http.Request){
		"plain":    func(*http.Request) {},
		"method":   func(r *http.Request) { r.Method = "" },
		"header":   func(r *http.Request) { r.Header["x-raw"] = []string{"1", "2"} },
		"host":     func(r *http.Request) { r.Host = "b.test" },
		"no host":  func(r *http.Request) { r.Host = "" },
		"ignored":  func(r *http.Request) { r.Header["Host"] = []string{"ignored"} },
		"both":     func(r *http.Request) { r.Header["Host"] = []string{"ignored"}; r.Host = "b.test" },
		"nil":      func(r *http.Request) { r.Header = nil; r.Host = "b.test" },
		"close":    func(r *http.Request) { r.Close = true },
		"opaque":   func(r *http.Request) { r.URL.Opaque = "//a.test/x%2Fy" },
		"query":    func(r *http.Request) { r.URL.RawQuery = "a=b c#d" },
		"no slash": func(r *http.Request) { r.URL.Path = "x y" },
		"chunked":  func(r *http.Request) { setBody(r, "hello"); r.TransferEncoding = []string{"chunked"} },
		"getbody":  func(r *http.Request) { setBody(r, "hello"); r.ContentLength = 5 },
		"unknown":  func(r *http.Request) { setBody(r, "hello"); r.ContentLength = -1 },
		"no body":  func(r *http.Request) { r.Body = http.NoBody },
		"trailer":  func(r *http.Request) { setBody(r, "hello"); r.Trailer = http.Header{"X-Sum": {"1"}} },
	} {
		t.Run(name, func(t *testing.T) {
			make := func() *http.Request {
				r := httpRequest(t, "PUT", "http://u:p@A.test:80/x?z=1&a=2", nil)
				change(r)
				return r
			}
			req := make()
			before := *req
			task, err := TaskFrom(req, Request{Priority: Urgent, Lane: "l"})
			require.NoError(t, err)
			require.Equal(t, before.Header, req.Header)
			require.Equal(t, before.URL, req.URL)
			require.Equal(t, before.Host, req.Host)

			want := written(t, make())
			again := Must(task.Request().Task())
			for _, task := range []*Task{task, again} {
				require.True(t, task.replayable())
				for range 2 {
					sent, err := task.NewRequest(t.Context())
					require.NoError(t, err)
					require.Equal(t, want, written(t, sent))
				}
				require.Equal(t, Urgent, task.r.Priority)
			}
		})
	}
}

// setBody gives req a body that can be opened again.
func setBody(req *http.Request, s string) {
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(s)), nil }
	req.Body, _ = req.GetBody()
}

func TestTaskFromFaults(t *testing.T) {
	_, err := TaskFrom(nil, Request{})
	require.EqualError(t, err, "ax: invalid request: http.Request: nil")

	body := &closer{Reader: strings.NewReader("x")}
	req := httpRequest(t, "POST", "http://a.test/", body)
	_, err = TaskFrom(req, Request{
		Method: "GET", URL: "http://a.test", Query: url.Values{"a": nil}, Header: http.Header{"a": nil}, Body: []byte{},
		JSON: 1, GetBody: openNothing, ContentLength: 1,
	})
	var want []string
	for _, f := range []string{"Method", "URL", "Query", "Header", "Body", "JSON", "GetBody", "ContentLength"} {
		want = append(want, "Request."+f+": must be zero beside an http.Request, which has its own")
	}
	require.EqualError(t, err, "ax: invalid request: "+strings.Join(want, "\n"))
	require.Equal(t, 1, body.closed, "closed though refused")

	_, err = TaskFrom(&http.Request{ContentLength: 3}, Request{})
	require.EqualError(t, err, "ax: invalid request: http.Request.URL: nil\nhttp.Request.ContentLength: 3 without a body")

	req.Method, req.URL, req.Header = "a b", &url.URL{Path: "/x"}, http.Header{"A": {"\n"}}
	_, err = TaskFrom(req, Request{Dedupe: true, Retry: &Retry{}, NoRetry: true})
	require.EqualError(t, err, `ax: invalid request: http.Request.Method: "a b" is not a method`+
		"\nhttp.Request.URL: no scheme; it must be absolute, like https://host/path"+
		"\nhttp.Request.Header: A: a value holds a control character"+
		"\nRequest.Dedupe: body that is read once cannot be compared; set DedupeKey"+
		"\nRequest.Retry: contradicts NoRetry")
	require.Equal(t, 2, body.closed)
}

func TestTaskFromOneShot(t *testing.T) {
	body := &closer{Reader: strings.NewReader("hello")}
	req := httpRequest(t, "PUT", "http://a.test/", body)
	req.ContentLength = 5
	task, err := TaskFrom(req, Request{})
	require.NoError(t, err)
	require.False(t, task.replayable())
	require.Empty(t, task.Key())
	_, ok := task.baseKey(nil, "")
	require.False(t, ok)
	require.Zero(t, body.closed)
	copied := Must(task.Request().Task())
	require.True(t, task.claim())
	require.False(t, task.claim())
	require.False(t, copied.claim(), "a copy has the same body")

	sent, err := task.NewRequest(t.Context())
	require.NoError(t, err)
	require.Nil(t, sent.GetBody)
	require.EqualValues(t, 5, sent.ContentLength)
	require.Equal(t, "hello", readBody(t, sent.Body))
	task.closeBody()
	require.Equal(t, 1, body.closed)

	_, err = task.NewRequest(t.Context())
	require.ErrorIs(t, err, ErrNotReplayable)
	_, marked := errors.AsType[*bodyError](err)
	require.True(t, marked)

	r := task.Request()
	r.Body, r.ContentLength = []byte("other"), 0
	other := Must(r.Task())
	require.True(t, other.replayable())
	require.True(t, other.claim())
	sent, err = other.NewRequest(t.Context())
	require.NoError(t, err)
	require.Equal(t, "other", readBody(t, sent.Body))
}

func TestCloseBody(t *testing.T) {
	body := &closer{Reader: strings.NewReader("hello")}
	task, err := TaskFrom(httpRequest(t, "PUT", "http://a.test/", body), Request{})
	require.NoError(t, err)
	task.closeBody()
	task.closeBody()
	require.Equal(t, 1, body.closed)
	require.False(t, task.claim())
	Must(Request{URL: "http://a.test/"}.Task()).closeBody()
}

func TestClaimOnce(t *testing.T) {
	task, err := TaskFrom(httpRequest(t, "PUT", "http://a.test/", &closer{Reader: strings.NewReader("x")}), Request{})
	require.NoError(t, err)
	var claims atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if task.claim() {
				claims.Add(1)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, claims.Load())
	forever := Must(Request{URL: "http://a.test/"}.Task())
	require.True(t, forever.claim())
	require.True(t, forever.claim())
}

// The body comes before GetBody: who wrapped it may have forgotten GetBody.
func TestTaskFromSendsBodyFirst(t *testing.T) {
	first := &closer{Reader: strings.NewReader("first")}
	req := httpRequest(t, "PUT", "http://a.test/", first)
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("again")), nil }
	task, err := TaskFrom(req, Request{})
	require.NoError(t, err)
	require.True(t, task.replayable())
	require.True(t, task.claim())
	require.True(t, task.claim())
	for _, task := range []*Task{Must(task.Request().Task()), task, task} {
		sent, err := task.NewRequest(t.Context())
		require.NoError(t, err)
		want := "again"
		if first.closed == 0 && task.r.wire.first != nil {
			want = "first"
		}
		require.Equal(t, want, readBody(t, sent.Body))
		again, err := sent.GetBody()
		require.NoError(t, err)
		require.Equal(t, "again", readBody(t, again))
	}
	require.Equal(t, 1, first.closed)
}

// A body that nobody took is closed, and the task can still be sent.
func TestCloseBodyOfReplayable(t *testing.T) {
	first := &closer{Reader: strings.NewReader("first")}
	req := httpRequest(t, "PUT", "http://a.test/", first)
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("again")), nil }
	task, err := TaskFrom(req, Request{})
	require.NoError(t, err)
	task.closeBody()
	task.closeBody()
	require.Equal(t, 1, first.closed)
	require.True(t, task.claim())
	sent, err := task.NewRequest(t.Context())
	require.NoError(t, err)
	require.Equal(t, "again", readBody(t, sent.Body))
}

// The caller fills the trailer while the body is read.
func TestTaskFromTrailerIsLive(t *testing.T) {
	req := httpRequest(t, "PUT", "http://a.test/", &closer{Reader: strings.NewReader("x")})
	req.Trailer = http.Header{"X-Sum": nil}
	task, err := TaskFrom(req, Request{})
	require.NoError(t, err)
	sent, err := task.NewRequest(t.Context())
	require.NoError(t, err)
	req.Trailer["X-Sum"] = []string{"1"}
	require.Equal(t, http.Header{"X-Sum": {"1"}}, sent.Trailer)
}

// The context of the request is not kept.
func TestTaskFromDropsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	task, err := TaskFrom(httpRequest(t, "GET", "http://a.test/", nil).WithContext(ctx), Request{})
	require.NoError(t, err)
	sent, err := task.NewRequest(t.Context())
	require.NoError(t, err)
	require.Equal(t, t.Context(), sent.Context())
	require.Nil(t, task.r.wire)
}

func TestTaskFromKey(t *testing.T) {
	req := httpRequest(t, "GET", "http://a.test/?b=1&a=2", nil)
	req.Header.Set("Accept", "x")
	task, err := TaskFrom(req, Request{Owner: "o"})
	require.NoError(t, err)
	twin := Must(Request{URL: "http://A.test:80/?a=2&b=1", Header: http.Header{"accept": {"x"}}, Owner: "o"}.Task())
	require.NotEmpty(t, task.Key())
	require.Equal(t, twin.Key(), task.Key())
	req.Host = "b.test"
	other, err := TaskFrom(req, Request{Owner: "o"})
	require.NoError(t, err)
	require.NotEqual(t, task.Key(), other.Key())
}

func TestTaskFromJSON(t *testing.T) {
	req := httpRequest(t, "GET", "http://a.test/?b=1", nil)
	req.Host = "b.test"
	task, err := TaskFrom(req, Request{})
	require.NoError(t, err)
	b, err := json.Marshal(task)
	require.NoError(t, err)
	require.JSONEq(t, `{"method":"GET","url":"http://a.test/?b=1","header":{"Host":["b.test"]}}`, string(b))

	req = httpRequest(t, "PUT", "http://a.test/", &closer{Reader: strings.NewReader("x")})
	req.Close, req.TransferEncoding, req.Trailer, req.URL.Opaque = true, []string{"chunked"}, http.Header{"X": nil}, "//a.test/x%2Fy"
	task, err = TaskFrom(req, Request{})
	require.NoError(t, err)
	_, err = task.MarshalJSON()
	require.EqualError(t, err, "ax: task has no JSON form: http.Request.Body: cannot be written as JSON\nhttp.Request.URL: cannot be written as JSON"+
		"\nhttp.Request.Trailer: cannot be written as JSON\nhttp.Request.TransferEncoding: cannot be written as JSON\nhttp.Request.Close: cannot be written as JSON")
}

func BenchmarkTaskFrom(b *testing.B) {
	req, _ := http.NewRequest("GET", "https://api.example.com/v1/users?b=2&a=1", nil)
	req.Header.Set("Authorization", "Bearer x")
	b.ReportAllocs()
	for b.Loop() {
		TaskFrom(req, Request{})
	}
}
