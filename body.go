package ax

import (
	"io"
	"math"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	drainBytes = 256 << 10              // read of a body that nobody wants, so that its connection can be used again
	drainTime  = 100 * time.Millisecond // spent on that at most
	chunkBytes = 32 << 10
	trustBytes = 8 << 20 // set aside at once for a body because it was announced
)

// isStream tells answers that have no end to wait for: server-sent events and
// upgraded connections.
func isStream(resp *http.Response) bool {
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return true
	}
	if resp.Body == nil || resp.Body == http.NoBody {
		return false
	}
	media, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	return strings.EqualFold(strings.TrimSpace(media), "text/event-stream")
}

// buffer reads the body of resp into memory. If it is whole, resp.Body is closed
// and its connection free; a body shorter than announced is io.ErrUnexpectedEOF.
// If it has more than limit bytes, or takes longer than patience (0: it may take
// any time), resp.Body still delivers all of it and is the caller's to close.
// After an error it is closed.
func buffer(resp *http.Response, limit int64, patience time.Duration) (body []byte, whole bool, err error) {
	announced := announces(resp)
	if resp.Body == nil || resp.Body == http.NoBody {
		resp.Body = http.NoBody
		if announced > 0 {
			return nil, false, io.ErrUnexpectedEOF
		}
		return []byte{}, true, nil
	}
	if announced > limit {
		return nil, false, nil
	}
	var until <-chan time.Time
	if patience > 0 {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		until = timer.C
	}
	g := newGathering(announced)
	late, err := g.readFrom(resp.Body, min(limit, math.MaxInt64-1)+1, until)
	if late != nil || int64(g.n) > limit {
		resp.Body = &prefixedBody{prefix: g.join(late == nil), late: late, err: err, rest: resp.Body}
		return nil, false, nil
	}
	resp.Body.Close()
	resp.Body = http.NoBody
	body = g.join(true)
	if err == io.EOF {
		err = nil
		if int64(len(body)) < announced {
			err = io.ErrUnexpectedEOF
		}
	}
	if err != nil {
		return nil, false, err
	}
	if announced == 0 {
		resp.ContentLength = int64(len(body)) // an Executor that left it zero
	}
	return body, true, nil
}

// announces is how long resp says that its body is; -1 = it does not say.
func announces(resp *http.Response) int64 {
	if bodiless(resp) || resp.Request == nil && (resp.Body == nil || resp.Body == http.NoBody) { // perhaps HEAD
		return -1 // what it says is about a body that is not sent
	}
	return resp.ContentLength
}

// bodiless tells answers that never have a body, whatever their Content-Length says
// (RFC 9110, section 6.4.1).
func bodiless(resp *http.Response) bool {
	return resp.StatusCode == http.StatusNoContent || resp.StatusCode == http.StatusNotModified ||
		resp.Request != nil && resp.Request.Method == http.MethodHead
}

// drainBody reads what is left of a body that nobody wants and closes it: at most
// 256 KiB and 100 ms, which is cheaper than a new connection. A body that is
// known to be larger is closed unread, a stalled one torn down with cancel. It
// returns the first keep bytes, and whether they are all.
func drainBody(resp *http.Response, keep int, cancel func()) (head []byte, whole bool) {
	rc := resp.Body
	if rc == nil || rc == http.NoBody {
		return nil, true
	}
	tooLong := time.AfterFunc(drainTime, func() { tearDown(rc, cancel) })
	defer tooLong.Stop()
	defer rc.Close()
	if keep > 0 {
		g := newGathering(-1)
		_, err := g.readFrom(rc, int64(min(keep, drainBytes)), nil)
		head = g.join(true)
		if err != nil {
			return head, err == io.EOF && int64(len(head)) >= announces(resp)
		}
	}
	if resp.ContentLength <= drainBytes {
		// Whatever ends it early also ends the connection.
		_, _ = io.CopyN(io.Discard, rc, int64(drainBytes-len(head)))
	}
	return head, int64(len(head)) == resp.ContentLength
}

// tearDown ends a Read that waits, from another goroutine. cancel alone ends one
// of package http, except on an upgraded connection; Close alone most others.
func tearDown(rc io.Closer, cancel func()) {
	if cancel != nil {
		cancel()
	}
	rc.Close()
}

// chunk is scratch space for bodies of unknown length.
type chunk [chunkBytes]byte

var chunkPool = sync.Pool{New: func() any { return new(chunk) }}

// gathering collects a body: first in one slice of the announced length and a
// byte more, where its end shows, then in chunks.
type gathering struct {
	sized  []byte
	chunks []*chunk
	n      int // bytes so far
}

func newGathering(announced int64) *gathering {
	g := &gathering{}
	if announced > 0 {
		g.sized = make([]byte, min(announced, trustBytes)+1)
	}
	return g
}

// room is where the next bytes go; it is not empty.
func (g *gathering) room() []byte {
	if g.n < len(g.sized) {
		return g.sized[g.n:]
	}
	i := g.n - len(g.sized)
	if i == len(g.chunks)*chunkBytes {
		g.chunks = append(g.chunks, chunkPool.Get().(*chunk))
	}
	return g.chunks[len(g.chunks)-1][i%chunkBytes:]
}

// readFrom reads on until there are limit bytes (err is nil), an error or the
// end (io.EOF). If until fires first, the last Read goes on in late.
func (g *gathering) readFrom(r io.Reader, limit int64, until <-chan time.Time) (late <-chan lateRead, err error) {
	for err == nil && int64(g.n) < limit {
		room := g.room()
		room = room[:min(int64(len(room)), limit-int64(g.n))]
		var n int
		if until == nil {
			n, err = r.Read(room)
		} else if n, late, err = readUntil(r, room, until); late != nil {
			return late, nil
		}
		g.n += n
	}
	return nil, err
}

// join is all that was gathered, in a slice of exactly that length. The chunks
// go back to the pool if nobody writes to the last one any more.
func (g *gathering) join(idle bool) []byte {
	if len(g.chunks) == 0 && g.sized != nil {
		return g.sized[:g.n:g.n]
	}
	b := make([]byte, 0, g.n)
	b = append(b, g.sized[:min(g.n, len(g.sized))]...)
	for _, c := range g.chunks {
		b = append(b, c[:min(g.n-len(b), chunkBytes)]...)
		if idle {
			chunkPool.Put(c)
		}
	}
	g.chunks = nil
	return b
}

// lateRead is the result of a Read that was not waited for.
type lateRead struct {
	got []byte
	err error
}

// readUntil is r.Read(p), or late if until fires before it returns.
func readUntil(r io.Reader, p []byte, until <-chan time.Time) (n int, late <-chan lateRead, err error) {
	c := make(chan lateRead, 1)
	go func() { // ends with the Read, at the latest when r is closed
		n, err := r.Read(p)
		c <- lateRead{p[:n], err}
	}()
	select {
	case got := <-c:
		return len(got.got), nil, got.err
	case <-until:
		return 0, c, nil
	}
}

// prefixedBody is a body of which the beginning has already been read.
type prefixedBody struct {
	prefix []byte
	late   <-chan lateRead // a Read under way, or nil
	err    error           // came with the end of prefix
	rest   io.ReadCloser
}

func (b *prefixedBody) Read(p []byte) (int, error) {
	if len(b.prefix) == 0 && b.late != nil && len(p) > 0 {
		got := <-b.late
		b.prefix, b.err, b.late = got.got, got.err, nil
	}
	if len(b.prefix) > 0 {
		n := copy(p, b.prefix)
		if b.prefix = b.prefix[n:]; len(b.prefix) == 0 {
			b.prefix = nil // let the memory go
		}
		return n, nil
	}
	if b.err != nil {
		return 0, b.err
	}
	return b.rest.Read(p)
}

func (b *prefixedBody) Close() error { return b.rest.Close() }
