package axdebug_test

import (
	"bytes"
	"context"
	"encoding/json"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/axsched/ax"
	"github.com/axsched/ax/axdebug"
	"github.com/stretchr/testify/require"
)

// tester is a scheduler over a made-up server, and its page, in one bubble.
type tester struct {
	*testing.T
	S *ax.Scheduler
	H http.Handler
}

// bubble runs f in a synctest bubble. It fails if a goroutine is left over.
func bubble(t *testing.T, cfg ax.Config, o axdebug.Options, f func(*tester)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		if cfg.Executor == nil {
			cfg.Executor = after(100*time.Millisecond, http.StatusOK)
		}
		s, err := ax.New(nil, cfg)
		require.NoError(t, err)
		defer s.Close()
		f(&tester{T: t, S: s, H: axdebug.HandlerWith(s, o)})
	})
}

// after answers everything with status, after d.
func after(d time.Duration, status int) ax.Executor {
	return ax.ExecutorFunc(func(ctx context.Context, t *ax.Task) (*http.Response, error) {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(d):
		}
		return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader("ok"))}, nil
	})
}

// Submit submits tasks and lets everything happen that needs no time.
func (t *tester) Submit(rs ...ax.Request) {
	for _, r := range rs {
		t.S.Submit(context.Background(), ax.Must(r.Task())).Discard()
	}
	synctest.Wait()
}

// Ask makes one request of the handler.
func (t *tester) Ask(method, target string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	t.H.ServeHTTP(w, r)
	return w
}

// Page is the text that the page shows for target, without its markup.
func (t *tester) Page(target string) string {
	w := t.Ask("GET", target)
	require.Equal(t, http.StatusOK, w.Code)
	return plain(w.Body.String())
}

var markup = regexp.MustCompile(`(?s)<[^>]*>`)

func plain(page string) string {
	return strings.Join(strings.Fields(html.UnescapeString(markup.ReplaceAllString(page, " "))), " ")
}

// Stats is /stats.json.
func (t *tester) Stats() map[string]any {
	w := t.Ask("GET", "/stats.json")
	require.Equal(t, http.StatusOK, w.Code)
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))
	var v map[string]any
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &v))
	return v
}

// post sends a form, as a browser or a program would.
func (t *tester) post(target, lane string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", target, strings.NewReader(url.Values{"lane": {lane}}.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	t.H.ServeHTTP(w, r)
	return w
}

// reader is a client of a stream: an http.ResponseWriter that keeps what it is
// given, or blocks while it is held.
type reader struct {
	leave context.CancelFunc
	gone  chan struct{} // closed when the handler has returned
	head  http.Header

	hold chan struct{} // what is sent here holds the reader until it is received back

	mu   sync.Mutex
	text bytes.Buffer
	code int
}

// Read opens a stream.
func (t *tester) Read(target string) *reader {
	ctx, cancel := context.WithCancel(context.Background())
	rd := &reader{leave: cancel, gone: make(chan struct{}), hold: make(chan struct{}, 1), head: make(http.Header)}
	req := httptest.NewRequest("GET", target, nil).WithContext(ctx)
	go func() { // until Leave
		defer close(rd.gone)
		t.H.ServeHTTP(rd, req)
	}()
	synctest.Wait()
	return rd
}

// Leave ends the stream.
func (r *reader) Leave() { r.leave(); <-r.gone }

func (r *reader) Header() http.Header { return r.head }

func (r *reader) WriteHeader(code int) { r.code = code }

func (r *reader) Flush() {}

func (r *reader) Write(b []byte) (int, error) {
	r.hold <- struct{}{}
	defer func() { <-r.hold }()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(b)
}

// Take is what came since the last Take.
func (r *reader) Take() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.text.String()
	r.text.Reset()
	return s
}

// eventsIn are the JSON objects of a stream's text, the named events apart.
func eventsIn(t *testing.T, text string) (events []map[string]any, named []string) {
	for block := range strings.SplitSeq(text, "\n\n") {
		var name, data string
		for l := range strings.Lines(block) {
			l = strings.TrimRight(l, "\n")
			if v, ok := strings.CutPrefix(l, "event: "); ok {
				name = v
			}
			if v, ok := strings.CutPrefix(l, "data: "); ok {
				data = v
			}
		}
		switch {
		case name != "":
			named = append(named, name+" "+data)
		case data != "":
			var v map[string]any
			require.NoError(t, json.Unmarshal([]byte(data), &v))
			events = append(events, v)
		}
	}
	return events, named
}

// kinds lists the kinds of events, in order.
func kinds(events []map[string]any) []string {
	var all []string
	for _, e := range events {
		all = append(all, e["kind"].(string))
	}
	return all
}
