package ax_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// dClient is a client whose requests go through t.S.
func dClient(t *tester) *http.Client { return &http.Client{Transport: t.S.Transport()} }

// TestTransportOverLoopback: what an unchanged client does over a real server
// works the same through the scheduler, over both versions of HTTP.
func TestTransportOverLoopback(t *testing.T) {
	for name, h2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		t.Run(name, func(t *testing.T) {
			cfg := ax.Recommended()
			s, srv := dLoop(t, cfg, h2, dSite)
			jar, err := cookiejar.New(nil)
			require.NoError(t, err)
			client := &http.Client{Transport: s.Transport(), Jar: jar}
			get := func(path string) *http.Response {
				resp, err := client.Get(srv.URL + path)
				require.NoError(t, err)
				return resp
			}
			resp := get("/hello")
			require.Equal(t, name, resp.Proto)
			require.Equal(t, "hello", dText(t, resp))
			require.EqualValues(t, 5, resp.ContentLength)
			require.NotNil(t, resp.Request)
			require.Equal(t, name == "HTTP/2.0", resp.TLS != nil)

			resp = get("/redirect")
			require.Equal(t, "/hello", resp.Request.URL.Path)
			require.Equal(t, "hello", dText(t, resp))

			require.Equal(t, "set", dText(t, get("/login")))
			require.Equal(t, "session=1", dText(t, get("/cookie")))

			resp = get("/gzip")
			require.Equal(t, strings.Repeat("zip", 1000), dText(t, resp))
			require.True(t, resp.Uncompressed)
			require.Empty(t, resp.Header.Get("Content-Encoding"))

			resp, err = client.Head(srv.URL + "/hello")
			require.NoError(t, err)
			require.EqualValues(t, 5, resp.ContentLength)
			require.Empty(t, dText(t, resp))

			resp, err = client.Post(srv.URL+"/echo", "text/plain", strings.NewReader("ping"))
			require.NoError(t, err)
			require.Equal(t, "POST text/plain 4 ping", dText(t, resp))
			resp, err = client.Post(srv.URL+"/307", "text/plain", strings.NewReader("ping"))
			require.NoError(t, err)
			require.Equal(t, "POST text/plain 4 ping", dText(t, resp))

			resp = get("/trailer")
			require.Equal(t, "body", dText(t, resp))
			require.Equal(t, "after", resp.Trailer.Get("X-After"))

			require.Equal(t, 204, get("/204").StatusCode)
			require.Equal(t, 404, get("/nowhere").StatusCode)
		})
	}
}

// dSite is a small web site.
func dSite(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/hello":
		w.Header().Set("Content-Length", "5")
		io.WriteString(w, "hello")
	case "/redirect":
		http.Redirect(w, r, "/hello", http.StatusFound)
	case "/307":
		http.Redirect(w, r, "/echo", http.StatusTemporaryRedirect)
	case "/login":
		http.SetCookie(w, &http.Cookie{Name: "session", Value: "1"})
		io.WriteString(w, "set")
	case "/cookie":
		io.WriteString(w, r.Header.Get("Cookie"))
	case "/gzip":
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		io.WriteString(z, strings.Repeat("zip", 1000))
		z.Close()
	case "/echo":
		b, _ := io.ReadAll(r.Body)
		fmt.Fprint(w, r.Method, " ", r.Header.Get("Content-Type"), " ", r.ContentLength, " ", string(b))
	case "/trailer":
		w.Header().Set("Trailer", "X-After")
		io.WriteString(w, "body")
		w.Header().Set("X-After", "after")
	case "/204":
		w.WriteHeader(204)
	default:
		http.NotFound(w, r)
	}
}

// TestTransportStreamsUnknownLength: the first bytes are readable while the
// server still writes, over both versions of HTTP.
func TestTransportStreamsUnknownLength(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		next := make(chan struct{})
		s, srv := dLoop(t, ax.Recommended(), h2, func(w http.ResponseWriter, r *http.Request) {
			for i := range 3 {
				fmt.Fprint(w, i)
				w.(http.Flusher).Flush()
				select {
				case <-next:
				case <-r.Context().Done():
					return
				}
			}
		})
		resp, err := (&http.Client{Transport: s.Transport()}).Get(srv.URL)
		require.NoError(t, err)
		require.EqualValues(t, -1, resp.ContentLength)
		buf := make([]byte, 1)
		for i := range 3 {
			_, err := io.ReadFull(resp.Body, buf)
			require.NoError(t, err)
			require.Equal(t, fmt.Sprint(i), string(buf))
			require.Equal(t, 1, s.Stats().Active, "the slot is held")
			next <- struct{}{}
		}
		_, err = resp.Body.Read(buf)
		require.ErrorIs(t, err, io.EOF)
		require.NoError(t, resp.Body.Close())
		dEventually(t, func() bool { return s.Stats().Active == 0 }, "the slot is free after the end")
	}
}

// TestTransportGivesBackRedirects as they are: following is the client's.
func TestTransportGivesBackRedirects(t *testing.T) {
	bubble(t, ax.Config{}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) { return reply(302, "", "Location: /next"), nil }
		req, err := http.NewRequest("GET", at("/x"), nil)
		require.NoError(t, err)
		resp, err := t.S.Transport().RoundTrip(req)
		require.NoError(t, err)
		require.Equal(t, 302, resp.StatusCode)
		require.Equal(t, at("/x"), resp.Request.URL.String())
		require.NoError(t, resp.Body.Close())
		require.Equal(t, 1, t.Server.Count())
		client := dClient(t)
		client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		resp, err = client.Get(at("/x"))
		require.NoError(t, err)
		require.Equal(t, 302, resp.StatusCode)
		require.NoError(t, resp.Body.Close())
		client.CheckRedirect = nil
		_, err = client.Get(at("/x"))
		require.ErrorContains(t, err, "stopped after 10 redirects")
		require.Equal(t, 2+10, t.Server.Count())
	})
}

// TestTransportDoesNotRecurse when the client that was given to New gets the
// scheduler's transport afterwards.
func TestTransportDoesNotRecurse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &server{start: time.Now()}
		client := &http.Client{Transport: srv}
		s, err := ax.New(client, ax.Config{MaxConcurrent: 1, Rate: []ax.Rate{{Limit: 2, Per: time.Hour}}})
		require.NoError(t, err)
		client.Transport = s.Transport()
		resp, err := client.Get(at("/x"))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		_, err = s.Get(dBG, at("/y"))
		require.NoError(t, err)
		require.Equal(t, []string{"/x", "/y"}, srv.Paths())
		require.EqualValues(t, 2, s.Stats().Submitted, "each was scheduled once")
		require.NoError(t, s.Close())
	})
}

// TestTransportClientsOwnSettings: Jar, CheckRedirect and Timeout of New's client hold for Do.
func TestTransportClientsOwnSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &server{start: time.Now(), Reply: func(h *hit) (*http.Response, error) {
			switch h.URL.Path {
			case "/login":
				return reply(200, "", "Set-Cookie: s=1"), nil
			case "/302":
				return reply(302, "", "Location: /x"), nil
			case "/hang":
				return dSlow(h)
			}
			return reply(200, h.Header.Get("Cookie")), nil
		}}
		jar, err := cookiejar.New(nil)
		require.NoError(t, err)
		client := &http.Client{Transport: srv, Jar: jar, Timeout: time.Second, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}}
		s, err := ax.New(client, ax.Config{})
		require.NoError(t, err)
		client.Timeout = time.Nanosecond // too late: New took a copy
		_, err = s.Get(dBG, at("/login"))
		require.NoError(t, err)
		resp, err := s.Get(dBG, at("/whoami"))
		require.NoError(t, err)
		require.Equal(t, "s=1", dText(t, resp.Response))
		resp, err = s.Get(dBG, at("/302"))
		require.NoError(t, err)
		require.Equal(t, 302, resp.StatusCode)
		start := time.Now()
		_, err = s.Get(dBG, at("/hang"))
		require.Equal(t, time.Second, time.Since(start))
		require.True(t, dError(t, err).Timeout())
		require.NoError(t, s.Close())
	})
}

// A redirect that the caller's own policy refuses says nothing about the server; one
// that leads nowhere but in circles does.
func TestF1RefusedRedirectIsNeutral(t *testing.T) {
	for name, refuse := range map[string]func(*http.Request, []*http.Request) error{
		"own policy": func(*http.Request, []*http.Request) error { return errors.New("not there") },
		"loop":       nil,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := &server{start: time.Now(), Reply: fAnswer(302, "", "Location: /again")}
				s, err := ax.New(&http.Client{Transport: srv, CheckRedirect: refuse}, ax.Config{
					Retry: &ax.Retry{}, Breaker: &ax.Breaker{Window: 3, WhenOpen: ax.OpenReject},
					Fallback: &ax.Fallback{Static: fStatic("made up")},
				})
				require.NoError(t, err)
				defer func() { require.NoError(t, s.Close()) }()
				for range 3 {
					resp, err := s.Get(dBG, at("/"))
					if refuse == nil {
						require.NoError(t, err)
						require.Equal(t, ax.FromStatic, resp.Source)
						continue
					}
					e := fError(t, err)
					require.ErrorContains(t, e, "302 redirect not followed: not there")
					require.Equal(t, 1, e.Attempts)
				}
				l := s.Stats().Lanes["a.test"]
				if refuse == nil {
					require.Equal(t, ax.BreakerOpen, l.Breaker)
				} else {
					require.Equal(t, ax.BreakerClosed, l.Breaker)
					require.Zero(t, l.Failures)
				}
			})
		})
	}
}

// The Age of a stale answer counts what it had when it came.
func TestTransportStaleAgeAddsUp(t *testing.T) {
	for before, want := range map[string]string{"": "25", "100": "125", "nonsense": "25", "-3": "25", "99999999999999999999": "2147483673"} {
		bubble(t, ax.Config{Fallback: &ax.Fallback{Stale: time.Hour}}, func(t *tester) {
			t.Server.Reply = fScript(fAnswer(200, "good", "Age: "+before), fAnswer(503, "down"))
			client := &http.Client{Transport: t.S.Transport()}
			for _, want := range []string{before, want} {
				resp, err := client.Get(at("/"))
				require.NoError(t, err)
				require.Equal(t, "good", dText(t, resp))
				require.Equal(t, want, resp.Header.Get("Age"))
				time.Sleep(25 * time.Second)
			}
		})
	}
}

// TestTransportErrorsThroughAClient keep their identity inside the url.Error.
func TestTransportErrorsThroughAClient(t *testing.T) {
	boom := errors.New("reset by peer")
	bubble(t, ax.Config{MaxConcurrent: 1, MaxQueue: 1, QueueTimeout: time.Second}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.URL.Path == "/boom" {
				return nil, boom
			}
			return dSlow(h)
		}
		_, err := dClient(t).Get(at("/boom"))
		require.ErrorIs(t, err, boom)
		_, err = t.S.Get(dBG, at("/boom"))
		require.ErrorIs(t, err, boom)
		require.Equal(t, 1, strings.Count(err.Error(), at("/boom")), "the URL once")
		dHog(t)
		synctest.Wait()
		_, err = dClient(t).Get(at("/x"))
		require.ErrorIs(t, err, ax.ErrQueueTimeout)
		var timeout net.Error
		require.ErrorAs(t, err, &timeout)
		require.True(t, timeout.Timeout())
		dHog(t)
		synctest.Wait()
		body := dNewBody("x")
		_, err = dClient(t).Post(at("/x"), "", body)
		require.ErrorIs(t, err, ax.ErrQueueFull)
		require.NotZero(t, body.closed.Load())
		require.Zero(t, body.read.Load())
		ctx, cancel := context.WithTimeout(dBG, time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, "GET", at("/x"), nil)
		require.NoError(t, err)
		_, err = dClient(t).Do(req)
		require.ErrorIs(t, err, ax.ErrQueueFull)
	})
}

// TestTransportClosesTheBodyOfBadRequests: a RoundTripper closes it even on errors.
func TestTransportClosesTheBodyOfBadRequests(t *testing.T) {
	bubble(t, ax.Config{}, func(t *tester) {
		good := func() *http.Request {
			return &http.Request{Method: "POST", URL: &url.URL{Scheme: "http", Host: "a.test", Path: "/"}, Header: http.Header{}}
		}
		for name, spoil := range map[string]func(*http.Request){
			"no URL":     func(r *http.Request) { r.URL = nil },
			"no host":    func(r *http.Request) { r.URL.Host = "" },
			"bad method": func(r *http.Request) { r.Method = "B AD" },
		} {
			body, req := dNewBody("x"), good()
			req.Body = body
			spoil(req)
			_, err := t.S.Transport().RoundTrip(req)
			require.Error(t, err, name)
			require.NotZero(t, body.closed.Load(), name)
		}
		req := good()
		_, err := t.S.Transport().RoundTrip(req)
		require.NoError(t, err)
		require.Equal(t, 1, t.Server.Count())
	})
}

// TestTransportHints: a context's and a client's hints reach the scheduler.
func TestTransportHints(t *testing.T) {
	log := &dLog{}
	cfg := ax.Config{Lanes: []ax.Lane{{Name: "bulk", MaxConcurrent: 1}}, Retry: &ax.Retry{BaseDelay: dms}, Dedupe: &ax.Dedupe{}, OnEvent: log.On}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			switch h.URL.Path {
			case "/503":
				return reply(503, ""), nil
			case "/slow":
				return after(100*dms, 200, "")(h)
			}
			return dSlow(h)
		}
		hints := ax.Hints{Lane: "bulk", Owner: "o", Priority: ax.Urgent, Tags: []string{"t"}, NoRetry: true}
		for name, do := range map[string]func(path string, h ax.Hints) (*http.Response, error){
			"context": func(path string, h ax.Hints) (*http.Response, error) {
				req, err := http.NewRequestWithContext(ax.ContextWith(dBG, h), "GET", at(path), nil)
				require.NoError(t, err)
				return dClient(t).Do(req)
			},
			"client": func(path string, h ax.Hints) (*http.Response, error) {
				return (&http.Client{Transport: t.S.TransportWith(h)}).Get(at(path))
			},
		} {
			before := t.Server.Count()
			resp, err := do("/503", hints)
			require.NoError(t, err, name)
			require.Equal(t, 503, resp.StatusCode)
			require.Equal(t, before+1, t.Server.Count(), "%s: NoRetry", name)
			last := log.Last(t, "/503")
			require.Equal(t, "bulk", last.Lane, name)
			require.Equal(t, "o", last.Owner, name)

			start := t.At()
			_, err = do("/hang", ax.Hints{AttemptTimeout: time.Second, NoRetry: true})
			require.ErrorIs(t, err, context.DeadlineExceeded, name)
			require.Equal(t, time.Second, t.At()-start, name)

			t.S.Submit(dBG, ax.Must(ax.Request{URL: at("/slow?hog"), Lane: "bulk"}.Task())).Discard()
			synctest.Wait()
			_, err = do("/x", ax.Hints{Lane: "bulk", NoWait: true})
			require.ErrorIs(t, err, ax.ErrWouldWait, name)
			_, err = do("/x", ax.Hints{Lane: "bulk", QueueTimeout: 10 * dms})
			require.ErrorIs(t, err, ax.ErrQueueTimeout, name)
			t.Until(t.At() + time.Second)

			before = t.Server.Count()
			shared := t.Go(dBG, dGet("/slow"))
			synctest.Wait()
			resp, err = do("/slow", ax.Hints{NoDedupe: true})
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, 200, (<-shared).Status())
			require.Equal(t, before+2, t.Server.Count(), "%s: NoDedupe", name)

			gone := make(chan error, 1)
			go func() { _, err := do("/hang", ax.Hints{Tags: []string{"t"}}); gone <- err }()
			synctest.Wait()
			require.Equal(t, 1, t.S.CancelTag("t"), name)
			require.ErrorIs(t, <-gone, ax.ErrCanceledByTag, name)
		}
	})
}

// TestTransportHintsFillOnlyZeroFields, and an inner context replaces the outer one's.
func TestTransportHintsFillOnlyZeroFields(t *testing.T) {
	require.Equal(t, ax.Hints{}, ax.HintsFrom(dBG))
	outer := ax.ContextWith(dBG, ax.Hints{Owner: "outer", Lane: "one"})
	inner := ax.ContextWith(outer, ax.Hints{Owner: "inner"})
	require.Equal(t, ax.Hints{Owner: "inner"}, ax.HintsFrom(inner))
	require.Equal(t, ax.Hints{Owner: "outer", Lane: "one"}, ax.HintsFrom(outer))
	log := &dLog{}
	bubble(t, ax.Config{Lanes: []ax.Lane{{Name: "one"}, {Name: "two"}}, OnEvent: log.On}, func(t *tester) {
		for name, c := range map[string]struct {
			ctx         context.Context
			lane, owner string
			want        [2]string
		}{
			"all from the context": {outer, "", "", [2]string{"one", "outer"}},
			"fields win":           {outer, "two", "mine", [2]string{"two", "mine"}},
			"one of them":          {outer, "", "mine", [2]string{"one", "mine"}},
			"replaced":             {inner, "", "", [2]string{"a.test", "inner"}},
		} {
			for _, entry := range []func(r ax.Request) error{
				func(r ax.Request) error { _, err := t.S.Send(c.ctx, r); return err },
				func(r ax.Request) error { _, err := t.S.Do(c.ctx, ax.Must(r.Task())); return err },
				func(r ax.Request) error { _, err := t.S.Submit(c.ctx, ax.Must(r.Task())).Result(); return err },
			} {
				require.NoError(t, entry(ax.Request{URL: at("/x"), Lane: c.lane, Owner: c.owner}))
				last := log.Last(t, "/x")
				require.Equal(t, c.want, [2]string{last.Lane, last.Owner}, name)
			}
		}
	})
}

// TestTransportUploadOfUnknownLength passes through without being held in memory.
func TestTransportUploadOfUnknownLength(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		got := make(chan string, 3)
		s, srv := dLoop(t, ax.Recommended(), h2, func(w http.ResponseWriter, r *http.Request) {
			buf := make([]byte, 4)
			for range 2 {
				n, _ := io.ReadFull(r.Body, buf)
				got <- string(buf[:n])
			}
		})
		pr, pw := io.Pipe()
		req, err := http.NewRequest("POST", srv.URL, pr)
		require.NoError(t, err)
		done := make(chan error, 1)
		go func() {
			resp, err := (&http.Client{Transport: s.Transport()}).Do(req)
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				err = errors.Join(err, resp.Body.Close())
			}
			done <- err
		}()
		for _, part := range []string{"ping", "pong"} {
			_, err := pw.Write([]byte(part))
			require.NoError(t, err)
			require.Equal(t, part, <-got, "sent before the next part exists")
		}
		require.NoError(t, pw.Close())
		require.NoError(t, <-done)
	}
}

// TestTransportManyClients share limits and flights: it is one gate.
func TestTransportManyClients(t *testing.T) {
	bubble(t, ax.Config{MaxConcurrent: 2, Dedupe: &ax.Dedupe{}}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			h.Sleep(100 * dms)
			return reply(200, h.URL.Path), nil
		}
		texts := make(chan string, 12)
		for i := range 12 {
			go func() {
				var buf bytes.Buffer
				if resp, err := dClient(t).Get(at(fmt.Sprint("/", i%6))); err == nil {
					io.Copy(&buf, resp.Body)
					resp.Body.Close()
				}
				texts <- buf.String()
			}()
		}
		count := map[string]int{}
		for range 12 {
			count[<-texts]++
		}
		require.Equal(t, map[string]int{"/0": 2, "/1": 2, "/2": 2, "/3": 2, "/4": 2, "/5": 2}, count)
		require.Equal(t, 6, t.Server.Count())
		require.Equal(t, 2, t.Server.Peak())
		require.Equal(t, 300*dms, t.At())
	})
}
