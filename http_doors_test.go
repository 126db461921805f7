package ax_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/axsched/ax"
)

// Send follows redirects and Transport does not, so neither is answered by the other,
// in flight or from the window.
func TestD1SendAndTransportShareNothing(t *testing.T) {
	var hits atomic.Int32
	both := make(chan struct{})
	srv := hServe(t, false, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/a" {
			io.WriteString(w, "final")
			return
		}
		if hits.Add(1) == 2 {
			close(both)
		}
		select {
		case <-both:
		case <-time.After(5 * time.Second):
			t.Error("one request for both")
		}
		http.Redirect(w, r, "/b/", http.StatusFound)
	})
	s := hNew(t, nil, ax.Config{Dedupe: &ax.Dedupe{Window: time.Minute}})
	last := func() {
		refused := false
		c := &http.Client{Transport: s.Transport(), CheckRedirect: func(*http.Request, []*http.Request) error {
			refused = true
			return http.ErrUseLastResponse
		}}
		r, err := c.Get(srv.URL + "/a")
		if err != nil || !refused || r.StatusCode != http.StatusFound {
			t.Errorf("through Transport: %v %v", r, err)
		}
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		last()
	}()
	r, err := s.Get(t.Context(), srv.URL+"/a")
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := r.Bytes(); r.StatusCode != 200 || string(b) != "final" {
		t.Errorf("redirect not followed: %d", r.StatusCode)
	}
	<-ended
	last() // not what Send has kept
}

// Trailers of a 204 or 304 over HTTP/2 arrive.
func TestTransportTrailersOfABodilessAnswer(t *testing.T) {
	for _, code := range []int{204, 304} {
		srv := hServe(t, true, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", "X-T")
			w.WriteHeader(code)
			w.Header().Set("X-T", "v")
		})
		r, err := srv.Client().Get(srv.URL)
		if err != nil {
			t.Fatal(err)
		}
		io.ReadAll(r.Body)
		r.Body.Close()
		s := hNew(t, srv.Client(), ax.Config{})
		r2, err := (&http.Client{Transport: s.Transport()}).Get(srv.URL)
		if err != nil {
			t.Fatal(err)
		}
		io.ReadAll(r2.Body)
		r2.Body.Close()
		if fmt.Sprint(r.Trailer) != fmt.Sprint(r2.Trailer) {
			t.Errorf("%d plain %v ax %v", code, r.Trailer, r2.Trailer)
		}
	}
}

func hRaw(t *testing.T, answer string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			go func() {
				br := bufio.NewReader(c)
				http.ReadRequest(br)
				io.WriteString(c, answer)
				time.Sleep(20 * time.Millisecond)
				c.Close()
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

// A malformed trailer is not quoted in errors and events.
func TestErrorDoesNotQuoteATrailer(t *testing.T) {
	u := hRaw(t, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nSet-Cookie sid=SECRET\r\n\r\n")
	var mu sync.Mutex
	var evs []string
	s := hNew(t, nil, ax.Config{OnEvent: func(e ax.Event) { mu.Lock(); evs = append(evs, e.String()); mu.Unlock() }})
	_, err := s.Get(t.Context(), u)
	if err != nil && strings.Contains(err.Error(), "SECRET") {
		t.Error("leak", err)
	}
	for _, e := range evs {
		if strings.Contains(e, "SECRET") {
			t.Error("event leak", e)
		}
	}
	r, err := s.Send(t.Context(), ax.Request{URL: u, Stream: true})
	if err == nil {
		_, err = ax.JSON[int](r, nil)
		if strings.Contains(err.Error(), "SECRET") {
			t.Error("leak by stream")
		}
	}
}

type trailerBody struct {
	req *http.Request
	n   atomic.Int64
}

func (b *trailerBody) Read(p []byte) (int, error) {
	for i := 0; i < 50; i++ {
		b.req.Trailer.Set("X-Sum", fmt.Sprint(b.n.Add(1)))
	}
	time.Sleep(time.Millisecond)
	p[0] = 'x'
	return 1, nil
}

func (b *trailerBody) Close() error { return nil }

// The caller's trailer map is its body's to fill: nobody else looks at it meanwhile.
func TestTrailersBelongToTheBody(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		for _, plain := range []bool{true, false} {
			t.Run(fmt.Sprint(h2, plain), func(t *testing.T) {
				srv := hServe(t, h2, func(w http.ResponseWriter, r *http.Request) {
					io.Copy(io.Discard, r.Body)
				})
				s := hNew(t, srv.Client(), ax.Config{})
				for range 20 {
					ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
					b := &trailerBody{}
					req, _ := http.NewRequestWithContext(ctx, "POST", srv.URL, b)
					b.req = req
					req.Trailer = http.Header{"X-Sum": nil}
					rt := s.Transport()
					if plain {
						rt = srv.Client().Transport
					}
					resp, err := rt.RoundTrip(req)
					if err == nil {
						resp.Body.Close()
					}
					cancel()
				}
			})
		}
	}
}

// A kept answer keeps nobody's context alive, redirected or not. What net/http
// remembers of a connection's last request may do so for a while: of three tries one
// must show the context gone.
func TestD4KeptAnswersKeepNoContext(t *testing.T) {
	for _, via := range []string{"Send", "Transport", "Send, not redirected"} {
		t.Run(via, func(t *testing.T) {
			for range 3 {
				if hContextGoes(t, via) {
					return
				}
			}
			t.Error("caller's ctx value kept alive by the window")
		})
	}
}

// hContextGoes tells whether the context of a call is collected while its answer is kept.
func hContextGoes(t *testing.T, via string) bool {
	srv := hServe(t, false, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/a" {
			http.Redirect(w, r, "/b", http.StatusFound)
			return
		}
		io.WriteString(w, "final")
	})
	s := hNew(t, nil, ax.Config{Dedupe: &ax.Dedupe{Window: time.Minute}})
	gone := make(chan struct{})
	func() {
		big := make([]byte, 10<<20)
		runtime.AddCleanup(&big[0], func(int) { close(gone) }, 0)
		type k struct{}
		ctx := context.WithValue(context.Background(), k{}, big)
		path := "/a"
		if via == "Send, not redirected" {
			path = "/b"
		}
		if via == "Transport" {
			req, _ := http.NewRequestWithContext(ctx, "GET", srv.URL+path, nil)
			r, err := (&http.Client{Transport: s.Transport()}).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			r.Body.Close()
			return
		}
		r, err := s.Get(ctx, srv.URL+path)
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
	}()
	for i := range 20 {
		if _, err := s.Get(context.Background(), fmt.Sprint(srv.URL, "/other/", i)); err != nil {
			t.Fatal(err)
		}
		runtime.GC()
		select {
		case <-gone:
			return true
		case <-time.After(30 * time.Millisecond):
		}
	}
	return false
}

// An answer to which a redirect added cookies is kept for nobody.
func TestD1CookiesOfARedirectAreInNoKey(t *testing.T) {
	srv := hServe(t, false, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/login":
			http.SetCookie(w, &http.Cookie{Name: "who", Value: r.URL.Query().Get("u"), Path: "/app"})
		case "/":
			http.Redirect(w, r, "/app/me", http.StatusFound)
		default:
			c, err := r.Cookie("who")
			if err == nil {
				io.WriteString(w, c.Value)
			}
		}
	})
	jar, _ := cookiejar.New(nil)
	s := hNew(t, &http.Client{Jar: jar}, ax.Config{Dedupe: &ax.Dedupe{Window: time.Minute}})
	for _, who := range []string{"alice", "bob"} {
		s.Send(t.Context(), ax.Request{Method: "POST", URL: srv.URL + "/login?u=" + who})
		r, err := s.Get(t.Context(), srv.URL+"/")
		if err != nil {
			t.Fatal(err)
		}
		b, _ := r.Bytes()
		if string(b) != who {
			t.Errorf("logged in as %s, got page of %s %v", who, b, r.Source)
		}
	}
}

// An answer that was sent with other cookies than it was asked for with is kept for
// nobody.
func TestD1CookiesThatChangeInTheQueue(t *testing.T) {
	srv := hServe(t, false, func(w http.ResponseWriter, r *http.Request) {
		c, err := r.Cookie("who")
		if err == nil {
			io.WriteString(w, c.Value)
		}
	})
	jar, _ := cookiejar.New(nil)
	u, _ := url.Parse(srv.URL)
	set := func(who string) { jar.SetCookies(u, []*http.Cookie{{Name: "who", Value: who, Path: "/"}}) }
	s := hNew(t, &http.Client{Jar: jar}, ax.Config{Dedupe: &ax.Dedupe{Window: time.Minute}})
	set("alice")
	s.Pause("")
	task := ax.Must(ax.Request{URL: srv.URL + "/me"}.Task())
	call := s.Submit(t.Context(), task)
	set("bob")
	s.Resume("")
	r0, err := call.Result()
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := r0.Bytes(); string(b) != "bob" {
		t.Errorf("the jar is asked when the request leaves, as with net/http: %s", b)
	}
	set("alice")
	r, _ := s.Get(t.Context(), srv.URL+"/me")
	b, _ := r.Bytes()
	if string(b) != "alice" {
		t.Errorf("alice got page of %s (%v)", b, r.Source)
	}
}

type panicJar struct{}

func (panicJar) Cookies(*url.URL) []*http.Cookie { panic("jar") }

func (panicJar) SetCookies(*url.URL, []*http.Cookie) {}

// A jar that panics does not hold up Close.
func TestX3PanicInTheJar(t *testing.T) {
	for _, how := range []string{"Do", "Submit"} {
		t.Run(how, func(t *testing.T) {
			s, _ := ax.New(&http.Client{Jar: panicJar{}}, ax.Config{Dedupe: &ax.Dedupe{}})
			task := ax.Must(ax.Request{URL: "http://127.0.0.1:1/"}.Task())
			func() {
				defer func() { _ = recover() }()
				if how == "Do" {
					s.Do(context.Background(), task)
				} else {
					s.Submit(context.Background(), task)
				}
			}()
			d := make(chan struct{})
			go func() { s.Close(); close(d) }()
			select {
			case <-d:
			case <-time.After(2 * time.Second):
				t.Error("Close hangs")
			}
		})
	}
}

// The trailer of a request goes along, also if its body is compared with others.
func TestTaskFromKeepsTheTrailer(t *testing.T) {
	var got http.Header
	srv := hServe(t, true, func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body); got = r.Trailer })
	for _, dd := range []bool{false, true} {
		req, _ := http.NewRequest("POST", srv.URL, strings.NewReader("abc"))
		req.Trailer = http.Header{"X-Sum": {"1"}}
		s := hNew(t, srv.Client(), ax.Config{})
		task, err := ax.TaskFrom(req, ax.Request{Dedupe: dd})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = s.Do(t.Context(), task); err != nil {
			t.Fatal(err)
		}
		if got.Get("X-Sum") != "1" {
			t.Error("trailer lost", dd)
		}
	}
}

// Whatever a server sends that is no HTTP, no error and no event quotes it.
func TestErrorQuotesNoHeader(t *testing.T) {
	for name, ans := range map[string]string{
		"te":      "HTTP/1.1 200 OK\r\nTransfer-Encoding: SECRET\r\n\r\n",
		"te2":     "HTTP/1.1 200 OK\r\nTransfer-Encoding: SECRET\r\nTransfer-Encoding: b\r\n\r\n",
		"cl":      "HTTP/1.1 200 OK\r\nContent-Length: SECRET\r\n\r\n",
		"cl2":     "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: SECRET\r\n\r\n",
		"status":  "HTTP/1.1 SECRET\r\n\r\n",
		"proto":   "SECRET/1.1 200 OK\r\n\r\n",
		"line":    "SECRET\r\n\r\n",
		"init":    "HTTP/1.1 200 OK\r\n SECRET\r\n\r\n",
		"loc":     "HTTP/1.1 302 OK\r\nLocation: SECRET:x\r\n\r\n",
		"loc2":    "HTTP/1.1 302 OK\r\nLocation: http://h/%zz?SECRET\r\n\r\n",
		"loc3":    "HTTP/1.1 302 OK\r\nLocation: http://127.0.0.1:1/?k=SECRET\r\n\r\n",
		"loc4":    "HTTP/1.1 302 OK\r\nLocation: http://u:SECRET@127.0.0.1:1/\r\n\r\n",
		"loc5":    "HTTP/1.1 302 OK\r\nLocation: http://127.0.0.1:SECRET/\r\n\r\n",
		"loc6":    "HTTP/1.1 302 OK\r\nLocation: http:///SECRET\r\n\r\n",
		"trkey":   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: Content-Length\r\n\r\n0\r\n\r\n",
		"chunk":   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nSECRET\r\n",
		"trailer": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nSECRET\r\n\r\n",
		"gzip":    "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 6\r\n\r\nSECRET",
		"early":   "HTTP/1.1 103 SECRET\r\nfoo SECRET\r\n\r\n",
	} {
		for _, mode := range []string{"send", "transport", "retry"} {
			u := hRaw(t, ans)
			var mu sync.Mutex
			var all []string
			cfg := ax.Config{OnEvent: func(e ax.Event) { mu.Lock(); all = append(all, "ev "+e.String()); mu.Unlock() }}
			if mode == "retry" {
				cfg.Retry = &ax.Retry{Max: 1, BaseDelay: time.Millisecond}
				cfg.Fallback = &ax.Fallback{Static: func(context.Context, *ax.Task, error) (*http.Response, error) { return nil, errors.New("no") }}
			}
			s := hNew(t, nil, cfg)
			var err error
			if mode == "transport" {
				req, _ := http.NewRequest("GET", u, nil)
				var r *http.Response
				r, err = s.Transport().RoundTrip(req)
				if err == nil {
					_, err = io.ReadAll(r.Body)
					r.Body.Close()
				}
			} else {
				var r *ax.Response
				r, err = s.Get(t.Context(), u)
				if err == nil {
					_, err = r.Bytes()
				}
			}
			mu.Lock()
			if err != nil {
				all = append(all, "err "+err.Error())
			}
			for _, a := range all {
				if strings.Contains(a, "SECRET") || strings.Contains(a, "secret") {
					t.Errorf("%s %s: %s", name, mode, a)
					break
				}
			}
			mu.Unlock()
		}
	}
}

// Nor what it says beside a GOAWAY.
func TestErrorQuotesNoGoAway(t *testing.T) {
	l, _ := net.Listen("tcp", "127.0.0.1:0")
	defer l.Close()
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			go func() {
				c.Write([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0})
				time.Sleep(30 * time.Millisecond)
				c.Read(make([]byte, 4096))
				dbg := "SECRET"
				p := append([]byte{0, 0, 0, 1, 0, 0, 0, 2}, dbg...)
				c.Write(append([]byte{0, 0, byte(len(p)), 7, 0, 0, 0, 0, 0}, p...))
				time.Sleep(20 * time.Millisecond)
				c.Close()
			}()
		}
	}()
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	s := hNew(t, &http.Client{Transport: tr}, ax.Config{})
	_, err := s.Get(t.Context(), "http://"+l.Addr().String())
	if err == nil || strings.Contains(err.Error(), "SECRET") {
		t.Errorf("none, or one that quotes the server: %v", err)
	}
}

// A redirected write that fails where it leads to forgets nothing there.
func TestD2FailedWriteAfterARedirectForgetsNothing(t *testing.T) {
	srv := hServe(t, false, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == "GET":
			io.WriteString(w, "x")
		case r.URL.Path == "/a":
			http.Redirect(w, r, "/b", http.StatusTemporaryRedirect)
		default:
			w.WriteHeader(500)
		}
	})
	for _, path := range []string{"/b", "/a"} {
		for _, via := range []string{"send", "transport"} {
			s := hNew(t, nil, ax.Config{Dedupe: &ax.Dedupe{Window: time.Minute}})
			s.Get(t.Context(), srv.URL+"/b")
			if via == "send" {
				s.Send(t.Context(), ax.Request{Method: "POST", URL: srv.URL + path, Body: []byte("x")})
			} else {
				(&http.Client{Transport: s.Transport()}).Post(srv.URL+path, "a/b", strings.NewReader("x"))
			}
			r, _ := s.Get(t.Context(), srv.URL+"/b")
			if r.Source != ax.FromWindow {
				t.Error(path, via, r.Source)
			}
		}
	}
}

// The requests before a redirect have the caller's context as well.
func TestResponseChainHasTheCallersContext(t *testing.T) {
	srv := hServe(t, false, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/a" {
			http.Redirect(w, r, "/b", http.StatusFound)
		}
	})
	s := hNew(t, nil, ax.Config{})
	r, err := s.Get(context.Background(), srv.URL+"/a")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Request.Response.Request.Context().Err(); err != nil {
		t.Error("redirect's request ctx:", err)
	}
}
