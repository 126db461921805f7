package axdebug

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"
)

const (
	streamBuffer = 256                    // events that a slow reader may be behind; older ones are dropped
	streamPause  = 100 * time.Millisecond // between two writes: events of one pause share a packet
	livePause    = time.Second            // between two pages
	keepAlive    = 15 * time.Second       // after which a silent stream says that it lives
	writeTimeout = 10 * time.Second       // after which a reader who takes nothing is given up
)

// stream is one reader of /events: a bounded buffer between the scheduler's
// goroutines, which never wait, and the reader's.
type stream struct {
	filter filter
	wake   chan struct{} // holds one token while there is something to take

	mu      sync.Mutex
	buf     ring[record]
	dropped uint64
}

func newStream(f filter) *stream {
	return &stream{filter: f, wake: make(chan struct{}, 1), buf: ring[record]{size: streamBuffer}}
}

// offer leaves r for the reader; the oldest that waits makes room.
func (s *stream) offer(r *record) {
	if !s.filter.match(r) {
		return
	}
	s.mu.Lock()
	if s.buf.put(*r) {
		s.dropped++
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// take empties the buffer.
func (s *stream) take() (records []record, dropped uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for r := range s.buf.each {
		records = append(records, r)
	}
	dropped = s.dropped
	s.buf, s.dropped = ring[record]{size: streamBuffer}, 0
	return records, dropped
}

// serveEvents streams events as they happen, those that the query's kind, lane
// and q choose. What a slow reader missed is told as an event named "dropped".
func (h *handler) serveEvents(w http.ResponseWriter, r *http.Request) {
	out, end := h.openStream(w, r)
	if out == nil {
		return
	}
	defer end()
	st := newStream(filterOf(r.URL.Query()))
	h.rec.attach(st)
	defer h.rec.detach(st)
	for {
		select {
		case <-r.Context().Done():
			return
		case <-st.wake:
			records, dropped := st.take()
			if out.send(eventsText(records, dropped)) != nil {
				return
			}
			if !pause(r, streamPause) {
				return
			}
		case <-time.After(keepAlive):
			if out.send([]byte(": alive\n\n")) != nil {
				return
			}
		}
	}
}

// eventsText spells events as server-sent events.
func eventsText(records []record, dropped uint64) []byte {
	var b bytes.Buffer
	if dropped > 0 {
		fmt.Fprintf(&b, "event: dropped\ndata: {\"dropped\":%d}\n\n", dropped)
	}
	for i := range records {
		data, err := json.Marshal(&records[i])
		if err != nil {
			panic("axdebug: " + err.Error()) // strings and numbers alone
		}
		fmt.Fprintf(&b, "id: %d\ndata: %s\n\n", records[i].N, data)
	}
	return b.Bytes()
}

// serveLive streams the page's content once a second.
func (h *handler) serveLive(w http.ResponseWriter, r *http.Request) {
	out, end := h.openStream(w, r)
	if out == nil {
		return
	}
	defer end()
	page, leave := h.live.join(filterOf(r.URL.Query()))
	defer leave()
	oldest := time.Now() // who has just changed something is not shown what was before
	for {
		if out.send(page.since(oldest, h.livePage)) != nil || !pause(r, livePause) {
			return
		}
		oldest = time.Now().Add(-livePause + 1) // what has been rendered since the last one
	}
}

// livePage is one event of /live.
func (h *handler) livePage(f filter) []byte {
	var page bytes.Buffer
	if err := h.pages.content(&page, h.view(f)); err != nil {
		panic("axdebug: " + err.Error()) // the template is embedded and its data is ours
	}
	return pageText(page.Bytes())
}

// pageText spells a page as one server-sent event, line by line. A carriage
// return, which an owner or an error may hold, ends a line too.
func pageText(page []byte) []byte {
	page = bytes.ReplaceAll(page, []byte("\r\n"), []byte("\n"))
	page = bytes.ReplaceAll(page, []byte("\r"), []byte("\n"))
	var b bytes.Buffer
	b.WriteString("event: page\n")
	for line := range bytes.Lines(page) {
		b.WriteString("data: ")
		b.Write(bytes.TrimSuffix(line, []byte("\n")))
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	return b.Bytes()
}

// pause waits; false = the reader has gone.
func pause(r *http.Request, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-r.Context().Done():
		return false
	case <-t.C:
		return true
	}
}

// sink writes to one reader, each time within writeTimeout, whatever the
// server's own WriteTimeout is.
type sink struct {
	w    http.ResponseWriter
	ctrl *http.ResponseController
}

// openStream begins a stream and a look that lasts as long. A nil sink means
// that the request has been answered.
func (h *handler) openStream(w http.ResponseWriter, r *http.Request) (out *sink, end func()) {
	leave, ok := h.rec.admit()
	if !ok {
		w.Header().Set("Retry-After", "5")
		h.fail(w, r, http.StatusServiceUnavailable, "Too many streams are open.")
		return nil, nil
	}
	done := h.rec.look()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // a proxy that gathers would hold back the first events
	w.WriteHeader(http.StatusOK)
	out = &sink{w: w, ctrl: http.NewResponseController(w)}
	end = func() { done(); leave() }
	if r.Method == http.MethodHead || out.send([]byte("retry: 2000\n\n")) != nil {
		end()
		return nil, nil
	}
	return out, end
}

func (s *sink) send(b []byte) error {
	_ = s.ctrl.SetWriteDeadline(time.Now().Add(writeTimeout)) // not every writer has one
	if _, err := s.w.Write(b); err != nil {
		return err
	}
	return s.ctrl.Flush()
}

func (r *recorder) attach(s *stream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.streams[s] = struct{}{}
}

func (r *recorder) detach(s *stream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.streams, s)
}
