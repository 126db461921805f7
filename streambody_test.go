package ax

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// endings keeps what onEnd was called with.
type endings struct {
	mu   sync.Mutex
	errs []error
}

func (e *endings) add(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.errs = append(e.errs, err)
}

func (e *endings) all() []error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]error(nil), e.errs...)
}

var errTorn = errors.New("torn")

func TestStreamEnds(t *testing.T) {
	for name, c := range map[string]struct {
		body io.Reader
		use  func(*testing.T, *stream, io.ReadCloser)
		want error // for onEnd
		then error // of a Read afterwards
	}{
		"read to the end": {strings.NewReader("hello"), func(t *testing.T, _ *stream, b io.ReadCloser) {
			got, err := io.ReadAll(b)
			require.NoError(t, err)
			require.Equal(t, "hello", string(got))
		}, nil, io.EOF},
		"end with the data": {iotest.DataErrReader(strings.NewReader("hello")), func(t *testing.T, _ *stream, b io.ReadCloser) {
			n, err := b.Read(make([]byte, 10))
			require.Equal(t, 5, n)
			require.Equal(t, io.EOF, err)
		}, nil, io.EOF},
		"closed early": {strings.NewReader("hello"), func(t *testing.T, _ *stream, b io.ReadCloser) {
			require.NoError(t, b.Close())
		}, nil, http.ErrBodyReadAfterClose},
		"read error": {iotest.ErrReader(errTorn), func(t *testing.T, _ *stream, b io.ReadCloser) {
			_, err := b.Read(make([]byte, 1))
			require.Equal(t, errTorn, err)
		}, errTorn, errTorn},
		"aborted": {strings.NewReader("hello"), func(t *testing.T, s *stream, b io.ReadCloser) {
			s.abort(errTorn)
			s.abort(errors.New("again"))
		}, errTorn, errTorn},
	} {
		t.Run(name, func(t *testing.T) {
			under, ended := &knownBody{Reader: c.body}, endings{}
			s, b := newStreamBody(under, streamOptions{onEnd: ended.add})
			c.use(t, s, b)
			_, err := b.Read(make([]byte, 1))
			require.Equal(t, c.then, err)
			require.NoError(t, b.Close())
			require.NoError(t, b.Close())
			s.abort(errTorn)
			require.Equal(t, []error{c.want}, ended.all(), "once")
			require.EqualValues(t, 1, under.closed.Load())
			_, writes := b.(io.Writer)
			require.False(t, writes)
		})
	}
}

func TestStreamEndsOnceUnderContention(t *testing.T) {
	for range 200 {
		pr, pw := io.Pipe()
		ended := endings{}
		var s *stream
		s, b := newStreamBody(pr, streamOptions{onEnd: func(err error) {
			s.abort(errTorn) // no lock is held
			ended.add(err)
		}})
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = io.Copy(io.Discard, b) })
		wg.Go(func() { b.Close() })
		wg.Go(func() { s.abort(errTorn) })
		wg.Go(func() { pw.Close() })
		wg.Wait()
		require.Len(t, ended.all(), 1)
	}
}

// A stream's IdleTimeout is about the server: the time a caller takes between
// two Reads is its own.
func TestStreamIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		pr, pw := io.Pipe()
		ended := endings{}
		_, b := newStreamBody(pr, streamOptions{idle: time.Second, cancel: cancel, onEnd: ended.add})
		go func() {
			for range 3 {
				time.Sleep(900 * time.Millisecond)
				_, _ = pw.Write([]byte("x"))
			}
		}()
		p := make([]byte, 10)
		for range 3 {
			n, err := b.Read(p)
			require.NoError(t, err)
			require.Equal(t, 1, n)
			time.Sleep(time.Minute)
		}
		require.NoError(t, ctx.Err())
		start := time.Now()
		_, err := b.Read(p)
		require.Equal(t, time.Second, time.Since(start))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, context.Canceled)
		require.True(t, err.(interface{ Timeout() bool }).Timeout())
		var timeout net.Error
		require.ErrorAs(t, err, &timeout)
		require.EqualError(t, err, "body was silent for 1s")
		require.ErrorIs(t, ctx.Err(), context.Canceled)
		require.Equal(t, []error{err}, ended.all())
		_, again := b.Read(p)
		require.Equal(t, err, again)
	})
}

func TestStreamWithoutIdleTimeout(t *testing.T) {
	for _, idle := range []time.Duration{0, NoTimeout} {
		synctest.Test(t, func(t *testing.T) {
			pr, pw := io.Pipe()
			_, b := newStreamBody(pr, streamOptions{idle: idle})
			time.AfterFunc(1000*time.Hour, func() { pw.Close() })
			_, err := b.Read(make([]byte, 1))
			require.Equal(t, io.EOF, err)
		})
	}
}

func TestStreamIdleOnRealSockets(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		gone := make(chan struct{}, 1)
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: 1\n\n")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			gone <- struct{}{}
		}))
		srv.EnableHTTP2 = h2
		srv.StartTLS()
		defer srv.Close()
		ctx, cancel := context.WithCancel(t.Context())
		resp := getVia(t, ctx, srv.Client(), srv.URL)
		require.Equal(t, map[bool]int{false: 1, true: 2}[h2], resp.ProtoMajor)
		require.True(t, isStream(resp))
		_, b := newStreamBody(resp.Body, streamOptions{idle: 50 * time.Millisecond, cancel: cancel})
		line, err := bufio.NewReader(b).ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "data: 1\n", line)
		_, err = io.Copy(io.Discard, b)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		<-gone // the connection, or its stream, is torn down
		require.NoError(t, b.Close())
	}
}

func TestStreamTrailersAndTruncation(t *testing.T) {
	c, url, _ := oneConnServer(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write(pattern(100_000))
		w.(http.Flusher).Flush()
		if r.URL.Path == "/torn" {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set(http.TrailerPrefix+"X-Sum", "42")
	})
	resp := getVia(t, t.Context(), c, url)
	_, resp.Body = newStreamBody(resp.Body, streamOptions{})
	got, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.True(t, bytes.Equal(pattern(100_000), got))
	require.Equal(t, http.Header{"X-Sum": {"42"}}, resp.Trailer)

	ended := endings{}
	resp = getVia(t, t.Context(), c, url+"/torn")
	_, b := newStreamBody(resp.Body, streamOptions{onEnd: ended.add})
	_, err = io.Copy(io.Discard, b)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Equal(t, []error{err}, ended.all())
}

func TestCaseH08AttemptLastsAsLongAsItsBody(t *testing.T) {
	c, url, _ := oneConnServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		time.Sleep(50 * time.Millisecond)
		_, _ = w.Write(pattern(4 << 20))
	})
	ctx, cancel := context.WithCancel(t.Context())
	resp := getVia(t, ctx, c, url)
	_, b := newStreamBody(resp.Body, streamOptions{cancel: cancel, onEnd: func(error) { cancel() }})
	require.NoError(t, ctx.Err())
	got, err := io.ReadAll(b)
	require.NoError(t, err)
	require.True(t, bytes.Equal(pattern(4<<20), got))
	require.ErrorIs(t, ctx.Err(), context.Canceled)
}

// echo upgrades to a protocol that sends everything back until it reads "bye".
func echo(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Connection", "Upgrade")
	w.Header().Set("Upgrade", "echo")
	w.WriteHeader(http.StatusSwitchingProtocols)
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	for {
		line, err := rw.ReadString('\n')
		if err != nil || line == "bye\n" {
			return
		}
		fmt.Fprint(rw, line)
		rw.Flush()
	}
}

func upgrade(t *testing.T, o streamOptions) (*stream, io.ReadWriteCloser) {
	c, url, _ := oneConnServer(t, echo)
	req, err := http.NewRequest("GET", url, nil)
	require.NoError(t, err)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "echo")
	resp, err := c.Do(req)
	require.NoError(t, err)
	require.True(t, isStream(resp))
	s, b := newStreamBody(resp.Body, o)
	return s, b.(io.ReadWriteCloser)
}

func TestStreamUpgraded(t *testing.T) {
	ended := endings{}
	_, b := upgrade(t, streamOptions{onEnd: ended.add})
	fmt.Fprint(b, "hello\n")
	r := bufio.NewReader(b)
	line, err := r.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "hello\n", line)
	require.Empty(t, ended.all())
	fmt.Fprint(b, "bye\n")
	_, err = r.ReadString('\n')
	require.Equal(t, io.EOF, err)
	require.Empty(t, ended.all(), "the other direction goes on")
	require.NoError(t, b.Close())
	require.Equal(t, []error{nil}, ended.all())
}

func TestStreamUpgradedHalfClose(t *testing.T) {
	_, b := upgrade(t, streamOptions{})
	fmt.Fprint(b, "hello\n")
	require.NoError(t, b.(interface{ CloseWrite() error }).CloseWrite())
	got, err := io.ReadAll(b)
	require.NoError(t, err)
	require.Equal(t, "hello\n", string(got))
	require.NoError(t, b.Close())

	pr, pw := io.Pipe()
	_, c := newStreamBody(struct {
		io.Reader
		io.WriteCloser
	}{pr, pw}, streamOptions{})
	require.ErrorIs(t, c.(interface{ CloseWrite() error }).CloseWrite(), errors.ErrUnsupported)
}

// Package http forgets the ctx of an upgraded connection; a stream does not.
func TestStreamUpgradedIsTornDown(t *testing.T) {
	s, b := upgrade(t, streamOptions{})
	time.AfterFunc(10*time.Millisecond, func() { s.abort(errTorn) })
	_, err := b.Read(make([]byte, 1))
	require.Equal(t, errTorn, err)
	_, err = b.Write([]byte("x"))
	require.ErrorIs(t, err, net.ErrClosed)

	_, b = upgrade(t, streamOptions{idle: 10 * time.Millisecond})
	_, err = b.Read(make([]byte, 1))
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestD4ForgottenStreamIsClosed(t *testing.T) {
	var text bytes.Buffer
	ended := make(chan error, 2)
	under := &knownBody{Reader: zeros{}}
	func() {
		_, b := newStreamBody(under, streamOptions{
			onEnd: func(err error) { ended <- err }, log: slog.New(slog.NewTextHandler(&text, nil)),
			method: "GET", url: "http://a.test/x",
		})
		_, err := b.Read(make([]byte, 1))
		require.NoError(t, err)
	}()
	require.Equal(t, errForgotten, collected(t, ended))
	require.EqualValues(t, 1, under.closed.Load())
	require.Equal(t, 1, strings.Count(text.String(), "level=WARN"))
	require.Contains(t, text.String(), `msg="ax: streamed body was neither read to its end nor closed" method=GET url=http://a.test/x`)
}

func TestD4ForgottenUpgradedConnectionIsClosed(t *testing.T) {
	pr, pw := io.Pipe()
	ended := make(chan error, 2)
	_, _ = newStreamBody(struct {
		io.Reader
		io.WriteCloser
	}{pr, pw}, streamOptions{onEnd: func(err error) { ended <- err }})
	require.Equal(t, errForgotten, collected(t, ended))
	_, err := pw.Write([]byte("x"))
	require.Equal(t, io.ErrClosedPipe, err)
}

// collected waits for the collector to find what was forgotten.
func collected(t *testing.T, ended <-chan error) error {
	t.Helper()
	for range 200 {
		runtime.GC()
		select {
		case err := <-ended:
			return err
		case <-time.After(10 * time.Millisecond):
		}
	}
	t.Fatal("not collected")
	return nil
}

func TestD4ClosedStreamIsForgottenSilently(t *testing.T) {
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, nil))
	for range 20 {
		_, b := newStreamBody(io.NopCloser(strings.NewReader("x")), streamOptions{log: log})
		b.Close()
		_, b = newStreamBody(io.NopCloser(strings.NewReader("x")), streamOptions{log: log})
		_, _ = io.Copy(io.Discard, b)
		s, _ := newStreamBody(io.NopCloser(strings.NewReader("x")), streamOptions{log: log})
		s.abort(errTorn)
	}
	ended := make(chan error, 1)
	_, _ = newStreamBody(&knownBody{Reader: zeros{}}, streamOptions{onEnd: func(err error) { ended <- err }})
	require.Equal(t, errForgotten, collected(t, ended))
	runtime.GC()
	require.Empty(t, text.String())
}

// A Body that nobody was given, for its caller had left, is reachable from its
// own stream: once that was aborted nothing of both stays.
func TestStreamAbortedBeforeItsBodyWasGiven(t *testing.T) {
	var gone atomic.Bool
	func() {
		rc := &struct{ io.ReadCloser }{io.NopCloser(strings.NewReader("body"))}
		runtime.AddCleanup(rc, func(gone *atomic.Bool) { gone.Store(true) }, &gone)
		var kept struct{ body io.ReadCloser }
		s, body := newStreamBody(rc, streamOptions{onEnd: func(error) { _ = kept.body.(*streamBody).s }})
		kept.body = body
		s.abort(io.ErrClosedPipe)
	}()
	require.Eventually(t, func() bool { runtime.GC(); return gone.Load() }, 5*time.Second, time.Millisecond)
}
