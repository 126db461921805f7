package compat_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
	"github.com/tmaxmax/go-sse"
)

// withEarlyHints reports the Link header of a 103.
func withEarlyHints(ctx context.Context, links chan<- string) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
			links <- h.Get("Link")
			return nil
		},
	})
}

// ticker sends an event for each value of say, and the id it was asked to go on from.
func ticker(say <-chan string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "id: 7\ndata: after %q\n\n", r.Header.Get("Last-Event-Id"))
		w.(http.Flusher).Flush()
		for {
			select {
			case word, ok := <-say:
				if !ok {
					return
				}
				fmt.Fprintf(w, "data: %s\n\n", word)
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	}
}

// listen connects until ctx ends, and gives the events out one by one.
func listen(t *testing.T, ctx context.Context, r *rig, backoff sse.Backoff) (<-chan string, <-chan error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.Server.URL, nil)
	require.NoError(t, err)
	client := sse.Client{HTTPClient: r.Client(), Backoff: backoff}
	conn := client.NewConnection(req)
	events, ended := make(chan string), make(chan error, 1)
	conn.SubscribeMessages(func(e sse.Event) { events <- e.Data })
	go func() { ended <- conn.Connect() }() // ends with ctx; the test receives from ended
	return events, ended
}

// TestSSE: events arrive one by one, the connection keeps its slot and gives it back
// when its context ends.
func TestSSE(t *testing.T) {
	say := make(chan string)
	cfg := quick()
	cfg.AttemptTimeout = 5 * time.Second // bounds the headers of a stream only
	r := newRig(t, cfg, ticker(say))
	ctx, cancel := context.WithCancel(soon(t))
	events, ended := listen(t, ctx, r, sse.Backoff{MaxRetries: -1})
	require.Equal(t, `after ""`, <-events)
	for _, word := range []string{"one", "two", "three"} {
		say <- word
		require.Equal(t, word, <-events)
	}
	require.Equal(t, 1, r.Stats().Active)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	r.atRest(t)
	require.Equal(t, 1, r.Sent())
}

// TestSSETwoListeners: the same stream asked for twice is two streams, though equal
// requests are shared.
func TestSSETwoListeners(t *testing.T) {
	for name, serve := range map[string]func(http.Handler) *httptest.Server{
		"HTTP/1.1": httptest.NewServer, "HTTP/2": newH2Server,
	} {
		t.Run(name, func(t *testing.T) { twoListeners(t, rigOver(t, quick(), serve(ticker(nil)), nil)) })
	}
}

func twoListeners(t *testing.T, r *rig) {
	ctx, cancel := context.WithCancel(soon(t))
	one, oneEnded := listen(t, ctx, r, sse.Backoff{MaxRetries: -1})
	two, twoEnded := listen(t, ctx, r, sse.Backoff{MaxRetries: -1})
	require.Equal(t, `after ""`, <-one)
	require.Equal(t, `after ""`, <-two)
	require.Equal(t, 2, r.Stats().Active)
	cancel()
	require.ErrorIs(t, <-oneEnded, context.Canceled)
	require.ErrorIs(t, <-twoEnded, context.Canceled)
	require.Equal(t, 2, r.Sent())
}

// TestSSEUnmarked: a stream that neither its type nor its length tells from an answer
// may be asked for twice at once: then it is buffered for up to a second before the
// two part. NoDedupe spares them that.
func TestSSEUnmarked(t *testing.T) {
	for name, c := range map[string]struct {
		hints  ax.Hints
		shared uint64
	}{
		"shared":   {ax.Hints{}, 1},
		"NoDedupe": {ax.Hints{NoDedupe: true}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var arrived sync.WaitGroup
			arrived.Add(2 - int(c.shared))
			begin := make(chan struct{})
			send := inPieces("application/x-ndjson", nil)
			r := newRig(t, quick(), func(w http.ResponseWriter, r *http.Request) {
				select {
				case <-begin:
				default:
					arrived.Done()
					<-begin
				}
				send(w, r)
			})
			go func() { // ends when both have been counted
				arrived.Wait()
				for st := r.Stats(); st.Submitted < 2 || st.Coalesced < c.shared; st = r.Stats() {
					runtime.Gosched()
				}
				close(begin)
			}()
			var got [2]string
			together(len(got), func(i int) {
				req, err := http.NewRequestWithContext(soon(t), http.MethodGet, r.Server.URL, nil)
				if err != nil {
					return
				}
				resp, err := (&http.Client{Transport: r.TransportWith(c.hints)}).Do(req)
				if err != nil {
					return
				}
				defer resp.Body.Close()
				p := make([]byte, len("one "))
				io.ReadFull(resp.Body, p)
				got[i] = string(p)
			})
			require.Equal(t, [2]string{"one ", "one "}, got)
			require.Equal(t, 2, r.Sent())
			require.Equal(t, c.shared, r.Stats().Coalesced)
		})
	}
}

// TestSSEReconnect: a stream that ends is the client's to open again, where it was;
// what ax retries is the opening.
func TestSSEReconnect(t *testing.T) {
	say := make(chan string)
	r := newRig(t, quick(), flaky(2, ticker(say)))
	ctx, cancel := context.WithCancel(soon(t))
	events, ended := listen(t, ctx, r, sse.Backoff{InitialInterval: time.Millisecond, MaxRetries: 3})
	require.Equal(t, `after ""`, <-events)
	require.Equal(t, 3, r.Sent())
	close(say)
	require.Equal(t, `after "7"`, <-events)
	cancel()
	for { // what else the closed channel made of it
		select {
		case <-events:
			continue
		case err := <-ended:
			require.ErrorIs(t, err, context.Canceled)
		}
		break
	}
	require.GreaterOrEqual(t, r.Sent(), 4)
}

// TestSSEIdle: a stream that falls silent is cut by IdleTimeout.
func TestSSEIdle(t *testing.T) {
	cfg := ax.Config{IdleTimeout: 50 * time.Millisecond}
	r := newRig(t, cfg, ticker(nil))
	events, ended := listen(t, soon(t), r, sse.Backoff{MaxRetries: -1})
	require.Equal(t, `after ""`, <-events)
	err := <-ended
	timeout, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	require.True(t, ok, "%v", err)
	require.True(t, timeout.Timeout())
}

// TestSSEByHand: no library is needed.
func TestSSEByHand(t *testing.T) {
	say := make(chan string, 1)
	r := newRig(t, quick(), ticker(say))
	resp, err := r.Client().Get(r.Server.URL)
	require.NoError(t, err)
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for _, want := range []string{"id: 7", `data: after ""`, ""} {
		require.True(t, lines.Scan())
		require.Equal(t, want, lines.Text())
	}
	say <- "one"
	require.True(t, lines.Scan())
	require.Equal(t, "data: one", lines.Text())
}

// An event stream behind the gate, read by hand.
func Example_sse() {
	server := httptest.NewServer(ticker(nil))
	defer server.Close()
	sched, err := ax.New(nil, ax.Recommended())
	if err != nil {
		log.Fatal(err)
	}
	defer sched.Close()

	client := &http.Client{Transport: sched.Transport()}
	resp, err := client.Get(server.URL)
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close() // gives the slot back
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() && lines.Text() != "" {
		fmt.Println(lines.Text())
	}
	// Output:
	// id: 7
	// data: after ""
}
