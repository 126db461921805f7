package ax

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// knownBody counts what is read of it and how often it is closed.
type knownBody struct {
	io.Reader
	read, closed atomic.Int64
}

func (b *knownBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.read.Add(int64(n))
	return n, err
}

func (b *knownBody) Close() error {
	b.closed.Add(1)
	return nil
}

// pattern is a body in which every misplaced byte shows.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i>>16) ^ byte(i>>8) ^ byte(i)
	}
	return b
}

func bodyAnswer(status int, length int64, r io.Reader) (*http.Response, *knownBody) {
	b := &knownBody{Reader: r}
	return &http.Response{StatusCode: status, Header: http.Header{}, ContentLength: length, Body: b}, b
}

// oneConnServer serves h on real sockets and counts connections; the client has at most one.
func oneConnServer(t *testing.T, h http.HandlerFunc) (c *http.Client, url string, conns *atomic.Int64) {
	t.Helper()
	conns = &atomic.Int64{}
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			conns.Add(1)
		}
	}
	srv.Start()
	transport := &http.Transport{MaxConnsPerHost: 1}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		srv.CloseClientConnections()
		srv.Close()
	})
	return &http.Client{Transport: transport}, srv.URL, conns
}

func getVia(t *testing.T, ctx context.Context, c *http.Client, url string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	require.NoError(t, err)
	resp, err := c.Do(req)
	require.NoError(t, err)
	return resp
}

func TestIsStream(t *testing.T) {
	for _, c := range []struct {
		status int
		media  string
		body   io.ReadCloser
		want   bool
	}{
		{200, "text/event-stream", &knownBody{}, true},
		{200, "Text/Event-Stream ; charset=utf-8", &knownBody{}, true},
		{200, "text/event-streams", &knownBody{}, false},
		{200, "application/json; x=text/event-stream", &knownBody{}, false},
		{200, "", &knownBody{}, false},
		{200, "text/event-stream", http.NoBody, false},
		{200, "text/event-stream", nil, false},
		{101, "", &knownBody{}, true},
	} {
		r := &http.Response{StatusCode: c.status, Header: http.Header{"Content-Type": {c.media}}, Body: c.body}
		require.Equal(t, c.want, isStream(r), "%d %q", c.status, c.media)
	}
}

func TestBufferWhole(t *testing.T) {
	const limit = 100_000
	for _, size := range []int{0, 1, 511, chunkBytes - 1, chunkBytes, chunkBytes + 1, 3 * chunkBytes, limit} {
		for name, slowly := range map[string]func(io.Reader) io.Reader{
			"at once":       func(r io.Reader) io.Reader { return r },
			"by halves":     iotest.HalfReader,
			"end with data": iotest.DataErrReader,
		} {
			for _, announced := range []int64{-1, int64(size), 0} {
				body := pattern(size)
				resp, b := bodyAnswer(200, announced, slowly(bytes.NewReader(body)))
				got, whole, err := buffer(resp, limit, 0)
				require.NoError(t, err, "%s, %d of %d", name, size, announced)
				require.True(t, whole)
				require.True(t, bytes.Equal(body, got))
				require.NotNil(t, got)
				require.Len(t, got, cap(got), "no room to append into")
				require.EqualValues(t, 1, b.closed.Load())
				want := announced
				if announced == 0 {
					want = int64(size)
				}
				require.Equal(t, want, resp.ContentLength)
			}
		}
	}
}

func TestBufferNoBody(t *testing.T) {
	for _, c := range []struct {
		method    string
		status    int
		announced int64
		body      io.ReadCloser
	}{
		{"GET", 200, 0, nil},
		{"GET", 200, 0, http.NoBody},
		{"GET", 200, -1, http.NoBody},
		{"GET", 204, -1, http.NoBody},
		{"GET", 304, 1000, http.NoBody},
		{"HEAD", 200, 1 << 40, http.NoBody},
		{"HEAD", 200, 1 << 40, &knownBody{Reader: strings.NewReader("")}},
	} {
		resp := &http.Response{StatusCode: c.status, ContentLength: c.announced, Body: c.body, Request: &http.Request{Method: c.method}}
		got, whole, err := buffer(resp, 10, 0)
		require.NoError(t, err)
		require.True(t, whole)
		require.Equal(t, []byte{}, got)
		require.Equal(t, c.announced, resp.ContentLength)
		require.Equal(t, http.NoBody, resp.Body)
	}
	_, whole, err := buffer(&http.Response{StatusCode: 200, ContentLength: 1000}, 10, 0)
	require.NoError(t, err, "an Executor without Request may have sent a HEAD")
	require.True(t, whole)
}

func TestBufferTooLarge(t *testing.T) {
	const size = 3*chunkBytes + 5
	for _, limit := range []int64{0, 1, chunkBytes - 1, chunkBytes, 2 * chunkBytes, size - 1} {
		body := pattern(size)
		resp, b := bodyAnswer(200, -1, iotest.DataErrReader(bytes.NewReader(body)))
		got, whole, err := buffer(resp, limit, 0)
		require.NoError(t, err)
		require.False(t, whole)
		require.Nil(t, got)
		require.EqualValues(t, limit+1, b.read.Load())
		require.Zero(t, b.closed.Load())
		rest, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.True(t, bytes.Equal(body, rest))
		require.NoError(t, resp.Body.Close())
		require.EqualValues(t, 1, b.closed.Load())
	}
}

func TestBufferAnnouncedTooLargeIsNotRead(t *testing.T) {
	resp, b := bodyAnswer(200, 11, strings.NewReader("hello world"))
	_, whole, err := buffer(resp, 10, 0)
	require.NoError(t, err)
	require.False(t, whole)
	require.Zero(t, b.read.Load())
	require.Same(t, b, resp.Body)
}

func TestBufferBelievesNoAnnouncementOfGigabytes(t *testing.T) {
	resp, _ := bodyAnswer(200, 1<<60, strings.NewReader("hello"))
	_, whole, err := buffer(resp, 1<<62, 0)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.False(t, whole)
}

func TestBufferAllocates(t *testing.T) {
	body := pattern(1 << 20)
	for _, announced := range []int64{1 << 20, -1} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range 20 {
			resp, _ := bodyAnswer(200, announced, bytes.NewReader(body))
			_, _, err := buffer(resp, 4<<20, 0)
			require.NoError(t, err)
		}
		runtime.ReadMemStats(&after)
		// The body once, and scratch; growth by doubling would be twice that.
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(20*(3<<19)), "announced %d", announced)
	}
}

func TestCaseH56TruncatedIsAnError(t *testing.T) {
	half := strings.Repeat("x", 500)
	for name, read := range map[string]io.Reader{
		"a fake that just ends":    strings.NewReader(half),
		"a transport that notices": io.MultiReader(strings.NewReader(half), iotest.ErrReader(io.ErrUnexpectedEOF)),
	} {
		resp, b := bodyAnswer(200, 1000, read)
		got, whole, err := buffer(resp, 4<<20, 0)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, name)
		require.False(t, whole)
		require.Nil(t, got)
		require.EqualValues(t, 1, b.closed.Load())
		require.Equal(t, http.NoBody, resp.Body)
	}
	resp := &http.Response{StatusCode: 200, ContentLength: 1000, Request: &http.Request{Method: "GET"}}
	_, _, err := buffer(resp, 4<<20, 0)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF, "announced, and no body at all")

	for _, header := range []string{"Content-Length: 1000\r\n\r\n" + half, "Transfer-Encoding: chunked\r\n\r\n1f4\r\n" + half + "\r\n"} {
		c, url, _ := oneConnServer(t, func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n"+header)
				conn.Close()
			}
		})
		_, _, err := buffer(getVia(t, t.Context(), c, url), 4<<20, 0)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	}
}

func TestBufferUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pr, pw := io.Pipe()
		body := pattern(chunkBytes + 100)
		go func() {
			_, _ = pw.Write(body[:chunkBytes+10])
			time.Sleep(3 * time.Second)
			_, _ = pw.Write(body[chunkBytes+10:])
			pw.Close()
		}()
		start := time.Now()
		resp := &http.Response{StatusCode: 200, ContentLength: -1, Body: pr}
		_, whole, err := buffer(resp, 4<<20, time.Second)
		require.NoError(t, err)
		require.False(t, whole)
		require.Equal(t, time.Second, time.Since(start))
		got, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.True(t, bytes.Equal(body, got))
		require.Equal(t, 3*time.Second, time.Since(start))
	})
}

func TestBufferUntilInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pr, pw := io.Pipe()
		go func() {
			_, _ = pw.Write([]byte("hello "))
			time.Sleep(900 * time.Millisecond)
			_, _ = pw.Write([]byte("world"))
			pw.Close()
		}()
		resp := &http.Response{StatusCode: 200, ContentLength: -1, Body: pr}
		got, whole, err := buffer(resp, 4<<20, time.Second)
		require.NoError(t, err)
		require.True(t, whole)
		require.Equal(t, "hello world", string(got))
	})
}

func TestBufferUntilThenClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pr, _ := io.Pipe()
		resp := &http.Response{StatusCode: 200, ContentLength: 100, Body: pr}
		_, whole, err := buffer(resp, 4<<20, time.Second)
		require.NoError(t, err)
		require.False(t, whole)
		require.NoError(t, resp.Body.Close()) // ends the Read under way, or the bubble never ends
	})
}

func TestCaseH07DrainFreesTheConnection(t *testing.T) {
	for name, length := range map[string]string{"known": "100000", "chunked": ""} {
		c, url, conns := oneConnServer(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/ok" {
				return
			}
			if length != "" {
				w.Header().Set("Content-Length", length)
			}
			w.WriteHeader(503)
			_, _ = w.Write(pattern(100_000))
		})
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			resp := getVia(t, ctx, c, url)
			require.True(t, bytes.Equal(pattern(64<<10), drained(resp, 64<<10, cancel)))
			cancel()
			resp = getVia(t, t.Context(), c, url+"/ok")
			require.Equal(t, 200, resp.StatusCode)
			resp.Body.Close()
		}
		require.EqualValues(t, 1, conns.Load(), name)
	}
}

func TestCaseH07BufferFreesTheConnection(t *testing.T) {
	c, url, conns := oneConnServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush() // chunked
		_, _ = w.Write(pattern(100_000))
	})
	for range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		body, whole, err := buffer(getVia(t, ctx, c, url), 4<<20, 0)
		cancel()
		require.NoError(t, err)
		require.True(t, whole)
		require.True(t, bytes.Equal(pattern(100_000), body))
	}
	require.EqualValues(t, 1, conns.Load())
}

func TestCaseH59EndlessBodyIsNotRead(t *testing.T) {
	resp, b := bodyAnswer(503, -1, zeros{})
	require.Len(t, drained(resp, 100, func() {}), 100)
	require.EqualValues(t, drainBytes, b.read.Load())
	require.NotZero(t, b.closed.Load())

	resp, b = bodyAnswer(503, 500<<20, zeros{})
	require.Empty(t, drained(resp, 0, func() {}))
	require.Zero(t, b.read.Load(), "known to be hopeless")
	require.NotZero(t, b.closed.Load())

	require.Nil(t, drained(&http.Response{}, 10, nil))
	require.Nil(t, drained(&http.Response{Body: http.NoBody}, 10, nil))
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestCaseH59StalledBodyIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, keep := range []int{0, 100} {
			ctx, cancel := context.WithCancel(t.Context())
			pr, pw := io.Pipe()
			go func() { _, _ = pw.Write([]byte("db down")) }()
			start := time.Now()
			head := drained(&http.Response{ContentLength: -1, Body: pr}, keep, cancel)
			require.Equal(t, drainTime, time.Since(start))
			require.Equal(t, "db down"[:min(keep, 7)], string(head))
			require.ErrorIs(t, ctx.Err(), context.Canceled)
		}
	})
}

func TestCaseH59OnRealSockets(t *testing.T) {
	gone := make(chan struct{}, 2)
	c, url, conns := oneConnServer(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/endless":
			w.WriteHeader(503)
			for {
				if _, err := w.Write(make([]byte, 64<<10)); err != nil {
					break
				}
			}
			gone <- struct{}{}
		case "/stalled":
			w.WriteHeader(503)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			gone <- struct{}{}
		}
	})
	for _, path := range []string{"/endless", "/stalled"} {
		ctx, cancel := context.WithCancel(t.Context())
		resp := getVia(t, ctx, c, url+path)
		start := time.Now()
		drained(resp, 0, cancel)
		require.Less(t, time.Since(start), 2*time.Second, path)
		<-gone
		resp = getVia(t, t.Context(), c, url) // the only slot for a connection is free again
		resp.Body.Close()
		cancel()
	}
	require.EqualValues(t, 3, conns.Load())
}

func BenchmarkBuffer(b *testing.B) {
	body := pattern(1 << 20)
	for name, announced := range map[string]int64{"known": 1 << 20, "unknown": -1} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				resp, _ := bodyAnswer(200, announced, bytes.NewReader(body))
				if _, whole, err := buffer(resp, 4<<20, 0); err != nil || !whole {
					b.Fatal(whole, err)
				}
			}
		})
	}
}

// drained is what drainBody keeps.
func drained(resp *http.Response, keep int, cancel func()) []byte {
	head, _ := drainBody(resp, keep, cancel)
	return head
}
