package ax_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

func hNew(t *testing.T, c *http.Client, cfg ax.Config) *ax.Scheduler {
	t.Helper()
	s, err := ax.New(c, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

func hServe(t *testing.T, h2 bool, f http.HandlerFunc) *httptest.Server {
	srv := httptest.NewUnstartedServer(f)
	if srv.EnableHTTP2 = h2; h2 {
		srv.StartTLS()
	} else {
		srv.Start()
	}
	t.Cleanup(srv.Close)
	return srv
}

func hRecommended() ax.Config {
	cfg := ax.Recommended()
	cfg.Retry.BaseDelay = time.Millisecond
	return cfg
}

// A 304 or 204 with a Content-Length is an answer, over HTTP/2 too.
func TestF1NotModifiedOverHTTP2(t *testing.T) {
	for _, code := range []int{304, 204} {
		srv := hServe(t, true, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "1000")
			w.WriteHeader(code)
		})
		r, err := srv.Client().Get(srv.URL) // plain
		if err != nil || r.ContentLength != 1000 {
			t.Logf("%d: plain %v", code, err)
			continue
		}
		s := hNew(t, srv.Client(), hRecommended())
		resp, err := s.Get(t.Context(), srv.URL)
		if err != nil {
			t.Errorf("%d: %v", code, err)
			continue
		}
		resp.Body.Close()
	}
}

// Trailers that were not announced arrive.
func TestTransportTrailersNotAnnounced(t *testing.T) {
	srv := hServe(t, false, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "msg")
		w.(http.Flusher).Flush()
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
	})
	c := &http.Client{Transport: hNew(t, nil, ax.Config{}).Transport()} // &http.Client{} passes
	r, err := c.Get(srv.URL)
	require.NoError(t, err)
	io.Copy(io.Discard, r.Body)
	r.Body.Close()
	require.Equal(t, "0", r.Trailer.Get("Grpc-Status"))
}

// The end of one direction of an upgraded connection does not end the other.
func TestStreamUpgradeHalfClosed(t *testing.T) {
	got := make(chan string, 1)
	srv := hServe(t, false, func(w http.ResponseWriter, r *http.Request) {
		c, rw, _ := w.(http.Hijacker).Hijack()
		defer c.Close()
		rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: foo\r\n\r\nhi")
		rw.Flush()
		c.(*net.TCPConn).CloseWrite()
		b, _ := io.ReadAll(rw)
		got <- string(b)
	})
	req, _ := http.NewRequest("GET", srv.URL, nil)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "foo")
	r, err := hNew(t, nil, ax.Config{}).Transport().RoundTrip(req) // http.DefaultTransport passes
	require.NoError(t, err)
	b, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.Equal(t, "hi", string(b))
	_, err = r.Body.(io.Writer).Write([]byte("after eof"))
	r.Body.Close()
	if g := <-got; err != nil || g != "after eof" {
		t.Errorf("write: %v; the server got %q", err, g)
	}
}

// Two users of one jar do not share an answer.
func TestD1CookiesOfTheJarTellUsersApart(t *testing.T) {
	srv := hServe(t, false, func(w http.ResponseWriter, r *http.Request) {
		if u := r.URL.Query().Get("u"); u != "" {
			http.SetCookie(w, &http.Cookie{Name: "who", Value: u, Path: "/"})
		} else if c, err := r.Cookie("who"); err == nil {
			io.WriteString(w, c.Value)
		}
	})
	jar, _ := cookiejar.New(nil)
	s := hNew(t, &http.Client{Jar: jar}, ax.Config{Dedupe: &ax.Dedupe{Window: time.Minute}})
	for _, who := range []string{"alice", "bob"} {
		_, err := s.Send(t.Context(), ax.Request{Method: "POST", URL: srv.URL + "/login?u=" + who})
		require.NoError(t, err)
		r, err := s.Get(t.Context(), srv.URL+"/me")
		require.NoError(t, err)
		b, _ := r.Bytes()
		if string(b) != who {
			t.Errorf("logged in as %s, got the page of %s (%v)", who, b, r.Source)
		}
	}
}

// A body of another length than it was said to have is the caller's own fault.
func TestF2CallersBodyOfAnotherLength(t *testing.T) {
	srv := hServe(t, false, func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })
	s := hNew(t, nil, hRecommended())
	for range 5 { // the server is well
		_, err := s.Send(t.Context(), ax.Request{Method: "PUT", URL: srv.URL, ContentLength: 10, NoWait: true,
			GetBody: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("abc")), nil }})
		var e *ax.Error
		require.ErrorAs(t, err, &e)
		if e.Attempts > 1 {
			t.Errorf("%d attempts: %v", e.Attempts, err)
		}
	}
	for _, l := range s.Stats().Lanes {
		if l.Failures > 0 || l.Breaker != ax.BreakerClosed {
			t.Errorf("%d failures, breaker %v", l.Failures, l.Breaker)
		}
	}
}

// HTTP where TLS was expected is no reason to try again, and is told as net/http does.
func TestF2SchemeMismatch(t *testing.T) {
	srv := hServe(t, false, func(http.ResponseWriter, *http.Request) {})
	u := strings.Replace(srv.URL, "http:", "https:", 1)
	s := hNew(t, nil, hRecommended())
	_, err := (&http.Client{Transport: s.Transport()}).Get(u) // http.Get(u) Is ErrSchemeMismatch
	var e *ax.Error
	require.ErrorAs(t, err, &e)
	if !errors.Is(err, http.ErrSchemeMismatch) || e.Attempts != 1 {
		t.Errorf("%d attempts: %v", e.Attempts, err)
	}
}

type panickingClose struct{ io.Reader }

func (panickingClose) Close() error { panic("close") }

// A body whose Close panics does not keep its task from its end.
func TestX2PanicInCloseOfTheCallersBody(t *testing.T) {
	for _, how := range []string{"Do", "Submit"} {
		t.Run(how, func(t *testing.T) {
			var ends atomic.Int32
			s, err := ax.New(nil, ax.Config{QueueTimeout: 5 * time.Millisecond, OnEvent: func(e ax.Event) {
				if e.Kind == ax.EventRejected {
					ends.Add(1)
				}
			}})
			require.NoError(t, err)
			require.NoError(t, s.Pause(""))
			req, _ := http.NewRequest("POST", "http://127.0.0.1:1/", panickingClose{strings.NewReader("x")})
			task, err := ax.TaskFrom(req, ax.Request{})
			require.NoError(t, err)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				defer func() { recover() }()
				if how == "Do" {
					s.Do(context.Background(), task)
				} else {
					s.Submit(context.Background(), task).Result()
				}
			}()
			select {
			case <-ended:
			case <-time.After(time.Second):
				t.Error("no answer")
			}
			if ends.Load() != 1 {
				t.Errorf("%d terminal events", ends.Load())
			}
			closed := make(chan struct{})
			go func() { s.Close(); close(closed) }()
			select {
			case <-closed:
			case <-time.After(time.Second):
				t.Error("Close hangs")
			}
		})
	}
}

// The empty body of a HEAD over HTTP/2 holds no slot.
func TestL1HeadOverHTTP2HoldsNoSlot(t *testing.T) {
	srv := hServe(t, true, func(http.ResponseWriter, *http.Request) {})
	s := hNew(t, srv.Client(), ax.Config{})
	c := &http.Client{Transport: s.Transport()}
	r, err := c.Head(srv.URL)
	require.NoError(t, err)
	require.Zero(t, s.Stats().Active) // over HTTP/1.1 it is
	r.Body.Close()
}

// The request of an answer has the caller's context, not that of the attempt, which is
// over.
func TestResponseRequestHasTheCallersContext(t *testing.T) {
	srv := hServe(t, false, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "x") })
	s := hNew(t, nil, ax.Config{})
	r, err := s.Get(context.Background(), srv.URL)
	require.NoError(t, err)
	require.NoError(t, r.Request.Context().Err())
	_, err = http.DefaultClient.Do(r.Request.Clone(r.Request.Context()))
	require.NoError(t, err)
}

// A status above 599 is no 5xx.
func TestF1StatusAbove599IsNoFailure(t *testing.T) {
	srv := hServe(t, false, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(999) })
	s := hNew(t, nil, hRecommended())
	r, err := s.Get(t.Context(), srv.URL)
	require.NoError(t, err)
	require.Equal(t, 1, r.Attempts)
}

// An Executor may answer HEAD without a Request.
func TestExecutorAnswersHead(t *testing.T) {
	exec := func(resp *http.Response) ax.Config {
		return ax.Config{Executor: ax.ExecutorFunc(func(context.Context, *ax.Task) (*http.Response, error) { return resp, nil })}
	}
	s := hNew(t, nil, exec(&http.Response{StatusCode: 200, ContentLength: 7, Body: io.NopCloser(strings.NewReader(""))}))
	if _, err := s.Send(t.Context(), ax.Request{Method: "HEAD", URL: "http://x.test/"}); err != nil {
		t.Error(err)
	}
	s = hNew(t, nil, exec(&http.Response{StatusCode: 200}))
	if _, err := ax.JSON[int](s.Send(t.Context(), ax.Request{Method: "HEAD", URL: "http://x.test/"})); err != nil {
		t.Error(err)
	}
}

// A malformed header line is not quoted.
func TestErrorDoesNotQuoteTheServer(t *testing.T) {
	l, _ := net.Listen("tcp", "127.0.0.1:0")
	defer l.Close()
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			c.Read(make([]byte, 4096))
			io.WriteString(c, "HTTP/1.1 200 OK\r\nSet-Cookie sid=SECRET\r\n\r\n")
			c.Close()
		}
	}()
	_, err := hNew(t, nil, ax.Config{}).Get(t.Context(), "http://"+l.Addr().String())
	require.NotContains(t, err.Error(), "SECRET")
}

// A Host in another script is sent as net/http spells it.
func TestTransportHostInAnotherScript(t *testing.T) {
	var host string
	srv := hServe(t, false, func(w http.ResponseWriter, r *http.Request) { host = r.Host })
	req, _ := http.NewRequest("GET", srv.URL, nil)
	req.Host = "bücher.example"
	_, err := hNew(t, nil, ax.Config{}).Transport().RoundTrip(req) // http.DefaultTransport sends xn--bcher-kva.example
	require.NoError(t, err)
	require.Equal(t, "xn--bcher-kva.example", host)
}

func hDialTo(srv *httptest.Server) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, nw, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, nw, srv.Listener.Addr().String())
	}}}
}

// An empty port is left out, as http.NewRequest does.
func TestURLWithAnEmptyPort(t *testing.T) {
	var host string
	srv := hServe(t, false, func(w http.ResponseWriter, r *http.Request) { host = r.Host })
	_, err := hNew(t, hDialTo(srv), ax.Config{}).Get(t.Context(), "http://ex.test:/x") // http.Client.Get sends "ex.test"
	require.NoError(t, err)
	require.Equal(t, "ex.test", host)
}

// An opaque URL and a path that reads alike are two resources.
func TestD1OpaqueURLIsNoPath(t *testing.T) {
	var wire []string
	srv := hServe(t, false, func(w http.ResponseWriter, r *http.Request) { wire = append(wire, r.RequestURI) })
	s := hNew(t, nil, ax.Config{Dedupe: &ax.Dedupe{Window: time.Minute}})
	host := srv.Listener.Addr().String()
	for _, u := range []*url.URL{{Scheme: "http", Host: host, Opaque: "//" + host + "/zz"}, {Scheme: "http", Host: host, Path: "//" + host + "/zz"}} {
		task, err := ax.TaskFrom(&http.Request{Method: "GET", URL: u}, ax.Request{})
		require.NoError(t, err)
		_, err = s.Do(t.Context(), task)
		require.NoError(t, err)
	}
	require.Len(t, wire, 2, fmt.Sprint(wire))
}

type redirectSeer struct{ hop bool }

func (s *redirectSeer) RoundTrip(r *http.Request) (*http.Response, error) {
	s.hop = s.hop || r.Response != nil
	return http.DefaultTransport.RoundTrip(r)
}

// A transport below sees by what answer a request was redirected.
func TestTransportTellsWhatRedirected(t *testing.T) {
	srv := hServe(t, false, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/a" {
			http.Redirect(w, r, "/b", http.StatusFound)
		}
	})
	seer := &redirectSeer{}
	_, err := (&http.Client{Transport: hNew(t, &http.Client{Transport: seer}, ax.Config{}).Transport()}).Get(srv.URL + "/a")
	require.NoError(t, err)
	require.True(t, seer.hop)
}

// The answer whose redirect was refused is in the error.
func TestErrorHasTheRedirectThatWasRefused(t *testing.T) {
	srv := hServe(t, false, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/", http.StatusFound) })
	_, err := hNew(t, nil, ax.Config{}).Get(t.Context(), srv.URL) // http.Get returns the 302 beside its error
	var e *ax.Error
	require.ErrorAs(t, err, &e)
	require.NotNil(t, e.Response)
}

// Answered before its body was read, a request may still be on its way when the call
// returns; its bytes are the caller's again all the same.
func TestCaseH55CallersBufferThroughTransport(t *testing.T) {
	var n atomic.Int64
	srv := hServe(t, false, func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1)%2 == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		io.Copy(io.Discard, r.Body)
	})
	s := hNew(t, nil, ax.Config{Retry: &ax.Retry{BaseDelay: time.Millisecond, Budget: 100}})
	client := &http.Client{Transport: s.Transport()}
	for i := range 60 {
		buf := bytes.Repeat([]byte("abcdefgh"), 1<<17)
		req, err := http.NewRequest("PUT", srv.URL, bytes.NewReader(buf))
		require.NoError(t, err)
		var resp *http.Response
		if i%2 == 0 {
			resp, err = client.Do(req)
		} else {
			task, taskErr := ax.TaskFrom(req, ax.Request{})
			require.NoError(t, taskErr)
			var r *ax.Response
			if r, err = s.Do(t.Context(), task); err == nil {
				resp = r.Response
			}
		}
		if err == nil {
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		for i := range buf { // the race detector looks
			buf[i] = 'z'
		}
	}
}
