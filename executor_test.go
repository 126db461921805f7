package ax

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// tripFunc is a func as a RoundTripper.
type tripFunc func(*http.Request) (*http.Response, error)

func (f tripFunc) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// bareAnswer answers with a status and "Name: value" headers.
func bareAnswer(status int, headers ...string) *http.Response {
	r := &http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	return r
}

func taskOf(t *testing.T, r Request) *Task {
	t.Helper()
	task, err := r.Task()
	require.NoError(t, err)
	return task
}

// fakeHops is an attempt that knows of nothing but its hops.
type fakeHops struct {
	context.Context
	single bool
	ask    func(req *http.Request, prev int) (*http.Request, error)
	seen   []string
}

func (h *fakeHops) Value(key any) any {
	if key == (hopperKey{}) {
		return hopper(h)
	}
	return h.Context.Value(key)
}

func (h *fakeHops) singleHop(*Task) bool { return h.single }
func (h *fakeHops) sends(string)         {}

func (h *fakeHops) hop(req *http.Request, prev int) (*http.Request, error) {
	h.seen = append(h.seen, http.StatusText(prev)+" "+req.Method+" "+req.URL.String())
	if h.ask != nil {
		return h.ask(req, prev)
	}
	return req, nil
}

func TestHTTPExecutorCopiesItsClient(t *testing.T) {
	sent := 0
	c := &http.Client{Transport: tripFunc(func(*http.Request) (*http.Response, error) {
		sent++
		return bareAnswer(200), nil
	})}
	x := HTTPExecutor(c)
	c.Transport = tripFunc(func(req *http.Request) (*http.Response, error) {
		return x.Execute(req.Context(), taskOf(t, Request{URL: "http://a.test/"}))
	})
	resp, err := c.Get("http://a.test/") // as an application does with Scheduler.Transport
	require.NoError(t, err)
	require.Equal(t, 200, resp.StatusCode)
	require.Equal(t, 1, sent)
}

func TestHTTPExecutorOfNil(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	x := HTTPExecutor(nil).(*httpExecutor)
	require.NotSame(t, http.DefaultTransport, x.base)
	resp, err := x.Execute(t.Context(), taskOf(t, Request{URL: srv.URL}))
	require.NoError(t, err)
	require.Equal(t, 404, resp.StatusCode)
	resp.Body.Close()
	x.closeIdle()

	shared := HTTPExecutor(&http.Client{}).(*httpExecutor)
	require.Same(t, http.DefaultTransport, shared.base, "as the client itself would")
	require.Nil(t, shared.own)
	shared.closeIdle()
}

func TestHTTPExecutorHonoursItsClient(t *testing.T) {
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	var cookies []string
	x := HTTPExecutor(&http.Client{
		Jar:           jar,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: tripFunc(func(req *http.Request) (*http.Response, error) {
			cookies = append(cookies, req.Header.Get("Cookie"))
			return bareAnswer(302, "Location: /next", "Set-Cookie: a=b"), nil
		}),
	})
	for range 2 {
		resp, err := x.Execute(t.Context(), taskOf(t, Request{URL: "http://a.test/"}))
		require.NoError(t, err)
		require.Equal(t, 302, resp.StatusCode)
	}
	require.Equal(t, []string{"", "a=b"}, cookies)
}

func TestHTTPExecutorHonoursTheTimeoutOfItsClient(t *testing.T) {
	_, address, _ := oneConnServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/body" {
			w.(http.Flusher).Flush()
		}
		<-r.Context().Done()
	})
	x := HTTPExecutor(&http.Client{Timeout: 50 * time.Millisecond, Transport: &http.Transport{}})
	_, err := x.Execute(t.Context(), taskOf(t, Request{URL: address}))
	requireTimeout(t, err)

	resp, err := x.Execute(t.Context(), taskOf(t, Request{URL: address + "/body"}))
	require.NoError(t, err)
	_, _, err = buffer(resp, 100, 0)
	requireTimeout(t, err)
}

func requireTimeout(t *testing.T, err error) {
	t.Helper()
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, context.Canceled)
	timeout, ok := err.(interface{ Timeout() bool })
	require.True(t, ok && timeout.Timeout())
	var final *clientError
	require.False(t, errors.As(err, &final))
	require.NotContains(t, err.Error(), "http://")
}

func TestHTTPExecutorPreparesTheFirstHopOnly(t *testing.T) {
	var signed []string
	x := HTTPExecutor(&http.Client{Transport: tripFunc(func(req *http.Request) (*http.Response, error) {
		if signed = append(signed, req.URL.Path); req.URL.Path == "/" {
			return bareAnswer(307, "Location: /next"), nil
		}
		return bareAnswer(200), nil
	})})
	prepared := 0
	_, err := x.Execute(t.Context(), taskOf(t, Request{URL: "http://a.test/", Prepare: func(*http.Request) error {
		prepared++
		return nil
	}}))
	require.NoError(t, err)
	require.Equal(t, []string{"/", "/next"}, signed)
	require.Equal(t, 1, prepared)

	_, err = x.Execute(t.Context(), taskOf(t, Request{URL: "http://a.test/", Prepare: func(*http.Request) error { return errTorn }}))
	require.ErrorIs(t, err, errTorn)
	require.Len(t, signed, 2, "not sent")
}

func TestL6HopsPassThroughTheAttempt(t *testing.T) {
	type mark struct{}
	var sent []string
	x := HTTPExecutor(&http.Client{Transport: tripFunc(func(req *http.Request) (*http.Response, error) {
		auth, _ := req.Context().Value(mark{}).(string)
		sent = append(sent, req.Method+" "+req.URL.String()+" "+req.Header.Get("Authorization")+auth)
		switch req.URL.Host + req.URL.Path {
		case "a.test/":
			return bareAnswer(303, "Location: /2"), nil
		case "a.test/2":
			return bareAnswer(307, "Location: http://b.test/3"), nil
		}
		return bareAnswer(200), nil
	})})
	h := &fakeHops{Context: t.Context(), ask: func(req *http.Request, _ int) (*http.Request, error) {
		return req.WithContext(context.WithValue(req.Context(), mark{}, "!")), nil
	}}
	for range 2 { // no count survives an attempt
		sent, h.seen = nil, nil
		resp, err := x.Execute(h, taskOf(t, Request{
			Method: "POST", URL: "http://a.test/", Body: []byte("x"), Header: http.Header{"Authorization": {"for A"}},
		}))
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode)
		require.Equal(t, []string{"See Other GET http://a.test/2", "Temporary Redirect GET http://b.test/3"}, h.seen)
		require.Equal(t, []string{"POST http://a.test/ for A", "GET http://a.test/2 for A!", "GET http://b.test/3 !"}, sent)
	}
}

func TestL6RefusedHopEndsTheAttempt(t *testing.T) {
	x := HTTPExecutor(&http.Client{Transport: tripFunc(func(req *http.Request) (*http.Response, error) {
		return bareAnswer(308, "Location: /next"), nil
	})})
	h := &fakeHops{Context: t.Context(), ask: func(*http.Request, int) (*http.Request, error) { return nil, ErrQueueTimeout }}
	_, err := x.Execute(h, taskOf(t, Request{Method: "PUT", URL: "http://a.test/", Body: []byte("x")}))
	require.Equal(t, ErrQueueTimeout, err)
	require.Len(t, h.seen, 1)
}

func TestCaseH54SingleHopIsTheTransportAlone(t *testing.T) {
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	x := HTTPExecutor(&http.Client{Jar: jar, Timeout: time.Nanosecond, Transport: tripFunc(func(req *http.Request) (*http.Response, error) {
		_, timed := req.Context().Deadline()
		require.False(t, timed)
		require.Empty(t, req.Header.Get("Cookie"))
		return bareAnswer(302, "Location: /next", "Set-Cookie: a=b"), nil
	})})
	h := &fakeHops{Context: t.Context(), single: true}
	for range 2 {
		resp, err := x.Execute(h, taskOf(t, Request{URL: "http://a.test/"}))
		require.NoError(t, err)
		require.Equal(t, 302, resp.StatusCode)
	}
	require.Empty(t, h.seen)
}

func TestCaseH43ErrorsOfTheClientAreFinal(t *testing.T) {
	sent := 0
	for name, c := range map[string]struct {
		location string
		check    func(*http.Request, []*http.Request) error
		sent     int
		text     string
	}{
		"loop":            {"/", nil, 10, "ax: 302 redirect not followed: stopped after 10 redirects"},
		"refused":         {"/", func(*http.Request, []*http.Request) error { return errTorn }, 1, "ax: 302 redirect not followed: torn"},
		"no URL":          {"http://[bad/?token=secret", nil, 1, "ax: redirected to a Location that is not a URL"},
		"strange scheme":  {"htps://a.test/?token=secret", nil, 2, "strange"},
		"back to a first": {"http://a.test/", nil, 10, "ax: 302 redirect not followed: stopped after 10 redirects"},
	} {
		sent = 0
		x := HTTPExecutor(&http.Client{CheckRedirect: c.check, Transport: tripFunc(func(req *http.Request) (*http.Response, error) {
			sent++
			if req.URL.Scheme != "http" {
				return nil, errors.New("strange")
			}
			return bareAnswer(302, "Location: "+c.location), nil
		})})
		resp, err := x.Execute(t.Context(), taskOf(t, Request{URL: "http://a.test/"}))
		require.Nil(t, resp)
		var final *clientError
		require.True(t, errors.As(err, &final), name)
		require.EqualError(t, err, c.text)
		require.Equal(t, c.sent, sent, name)
		require.EqualError(t, final, c.text)
		if c.check != nil {
			require.ErrorIs(t, err, errTorn)
		}
		if strings.Contains(c.text, "302") {
			require.Equal(t, 302, final.resp.StatusCode)
			require.Equal(t, http.NoBody, final.resp.Body)
		}
	}
}

func TestBadLocationOfAnAnswerThatIsNotFollowed(t *testing.T) {
	x := HTTPExecutor(&http.Client{Transport: tripFunc(func(*http.Request) (*http.Response, error) {
		return bareAnswer(307, "Location: http://[bad"), nil
	})}).(*httpExecutor)
	req, err := http.NewRequest("PUT", "http://a.test/", io.NopCloser(strings.NewReader("x")))
	require.NoError(t, err)
	require.Nil(t, req.GetBody)
	resp, err := x.client.Do(req)
	require.NoError(t, err)
	require.Equal(t, 307, resp.StatusCode)
}

func TestCaseH43HopelessErrorsKeepTheirType(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.NotFoundHandler())
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	defer srv.Close()
	x := HTTPExecutor(nil)
	_, err := x.Execute(t.Context(), taskOf(t, Request{URL: srv.URL}))
	var unknown x509.UnknownAuthorityError
	require.ErrorAs(t, err, &unknown)

	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	_, err = x.Execute(t.Context(), taskOf(t, Request{URL: "https://" + plain.Listener.Addr().String()}))
	require.ErrorIs(t, err, http.ErrSchemeMismatch)
	var final *clientError
	require.True(t, errors.As(err, &final))
}

func TestCaseH11ErrorsReachTheSocket(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	l.Close()
	_, err = HTTPExecutor(nil).Execute(t.Context(), taskOf(t, Request{URL: "http://" + address + "/?token=secret"}))
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	var op *net.OpError
	require.ErrorAs(t, err, &op)
	require.Equal(t, "dial", op.Op)
	require.NotContains(t, err.Error(), "secret")
	var final *clientError
	require.False(t, errors.As(err, &final))
	_, marked := err.(*roundTripError)
	require.False(t, marked)
}

func TestRunExecutorFillsIn(t *testing.T) {
	run := func(resp *http.Response, err error) (*http.Response, error) {
		return runExecutor(t.Context(), ExecutorFunc(func(context.Context, *Task) (*http.Response, error) { return resp, err }), taskOf(t, Request{URL: "http://a.test/"}))
	}
	resp, err := run(&http.Response{StatusCode: 200}, nil)
	require.NoError(t, err)
	require.Equal(t, http.NoBody, resp.Body)
	require.NotNil(t, resp.Header)

	_, err = run(nil, nil)
	require.Equal(t, errNoAnswer, err)

	both, body := bodyAnswer(200, -1, strings.NewReader(""))
	resp, err = run(both, &url.Error{Err: errTorn})
	require.Nil(t, resp)
	require.Equal(t, errTorn, err)
	require.EqualValues(t, 1, body.closed.Load())

	_, err = run(&http.Response{}, errTorn)
	require.Equal(t, errTorn, err)
}

func TestX5RequestBodyIsClosedWhenAHopIsRefused(t *testing.T) {
	var opened, closed atomic.Int64
	x := HTTPExecutor(&http.Client{Transport: tripFunc(func(req *http.Request) (*http.Response, error) {
		req.Body.Close()
		return bareAnswer(307, "Location: /next"), nil
	})})
	h := &fakeHops{Context: t.Context(), ask: func(*http.Request, int) (*http.Request, error) { return nil, ErrWouldWait }}
	_, err := x.Execute(h, taskOf(t, Request{Method: "PUT", URL: "http://a.test/", ContentLength: 1, GetBody: func() (io.ReadCloser, error) {
		opened.Add(1)
		once := sync.OnceFunc(func() { closed.Add(1) })
		return hookedBody{strings.NewReader("x"), once}, nil
	}}))
	require.Equal(t, ErrWouldWait, err)
	require.EqualValues(t, 2, opened.Load())
	require.EqualValues(t, 2, closed.Load())
}

type hookedBody struct {
	io.Reader
	close func()
}

func (c hookedBody) Close() error {
	c.close()
	return nil
}

func TestCaseH55BufferReusedAfterTheAttempt(t *testing.T) {
	var mu sync.Mutex
	var bodies [][]byte
	_, address, _ := oneConnServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		w.WriteHeader(503)
		w.(http.Flusher).Flush()
		if b, err := io.ReadAll(r.Body); err == nil {
			mu.Lock()
			bodies = append(bodies, b)
			mu.Unlock()
		}
	})
	x := HTTPExecutor(&http.Client{Transport: &http.Transport{}})
	for range 20 {
		mine := pattern(1 << 20)
		resp, err := x.Execute(t.Context(), taskOf(t, Request{Method: "POST", URL: address, Body: mine}))
		clear(mine)
		if err == nil {
			drainBody(resp, 0, nil)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for _, b := range bodies {
		require.True(t, bytes.Equal(pattern(1<<20), b))
	}
}

// An attempt that waits inside the transport for its only connection ends with its ctx.
func TestCaseH61CancelInsideTheTransport(t *testing.T) {
	arrived := make(chan struct{}, 10)
	c, address, _ := oneConnServer(t, func(w http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-r.Context().Done()
	})
	x := HTTPExecutor(c)
	first, stop := context.WithCancel(t.Context())
	defer stop()
	go func() { _, _ = x.Execute(first, taskOf(t, Request{URL: address})) }()
	<-arrived
	for range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Millisecond, cancel)
		start := time.Now()
		_, err := x.Execute(ctx, taskOf(t, Request{URL: address}))
		require.Equal(t, context.Canceled, err)
		require.Less(t, time.Since(start), time.Second)
	}
	require.Empty(t, arrived, "the server never saw them")
}

func BenchmarkHTTPExecutor(b *testing.B) {
	transport := tripFunc(func(*http.Request) (*http.Response, error) { return bareAnswer(200), nil })
	r := Request{Method: "GET", URL: "http://a.test/"}
	t := Must(r.Task())
	b.Run("client", func(b *testing.B) {
		b.ReportAllocs()
		c := &http.Client{Transport: transport}
		for b.Loop() {
			req, _ := t.NewRequest(context.Background())
			_, _ = c.Do(req)
		}
	})
	b.Run("executor", func(b *testing.B) {
		b.ReportAllocs()
		x := HTTPExecutor(&http.Client{Transport: transport})
		for b.Loop() {
			_, _ = x.Execute(context.Background(), t)
		}
	})
}
