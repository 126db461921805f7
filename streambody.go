package ax

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// streamOptions say what goes with a streamed body.
type streamOptions struct {
	idle        time.Duration // longest wait of one Read; 0 or NoTimeout = any
	cancel      func()        // ends the attempt's ctx; nil = there is nothing to cancel
	onEnd       func(error)   // called once, outside of every lock: nil after EOF or Close, else why; must not refer to the Body
	log         *slog.Logger  // told of a body that was forgotten; nil = nobody is
	method, url string        // for that; redacted
}

// stream is a body on its way to a caller. The caller holds a streamBody, the
// scheduler this: so a body that the caller forgets can be told by the collector.
type stream struct {
	streamOptions
	rc       io.ReadCloser
	upgraded bool            // both directions are the caller's; EOF ends only one of them
	closed   atomic.Bool     // rc is
	ended    atomic.Bool     // onEnd was or is being called
	timer    *time.Timer     // belongs to the goroutine that reads
	leak     runtime.Cleanup // of the Body; keeps the stream, so it must be stopped

	mu  sync.Mutex
	err error // what every further Read returns
}

// streamBody is the Body of a streamed answer. Like those of package http it
// allows Close, not another Read, beside a Read.
type streamBody struct {
	s *stream
}

// upgradedBody is the Body of a 101: the connection itself.
type upgradedBody struct{ streamBody }

// newStreamBody makes a stream of rc and the Body for its caller, an
// io.ReadWriteCloser if rc is one.
func newStreamBody(rc io.ReadCloser, o streamOptions) (*stream, io.ReadCloser) {
	s := &stream{streamOptions: o, rc: rc}
	if _, s.upgraded = rc.(io.Writer); s.upgraded {
		b := &upgradedBody{streamBody{s: s}}
		s.leak = runtime.AddCleanup(b, (*stream).forgotten, s)
		return s, b
	}
	b := &streamBody{s: s}
	s.leak = runtime.AddCleanup(b, (*stream).forgotten, s)
	return s, b
}

// Read reads on. The end of the body, or an error, ends the stream.
func (b *streamBody) Read(p []byte) (int, error) {
	n, err := b.s.read(p)
	b.watchOver()
	return n, err
}

// Close ends the stream.
func (b *streamBody) Close() error {
	err := b.s.close()
	b.watchOver()
	return err
}

// watchOver ends the watch for a forgotten body once it is closed. Until
// then it keeps b from being collected in the middle of its own method.
func (b *streamBody) watchOver() {
	if b.s.closed.Load() {
		b.s.leak.Stop()
	}
	runtime.KeepAlive(b)
}

// Write writes to the upgraded connection.
func (b *upgradedBody) Write(p []byte) (int, error) {
	n, err := b.s.rc.(io.Writer).Write(p)
	runtime.KeepAlive(b)
	return n, err
}

// CloseWrite closes the sending direction, if the connection can do that.
func (b *upgradedBody) CloseWrite() error {
	defer runtime.KeepAlive(b)
	if w, ok := b.s.rc.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return errors.ErrUnsupported
}

// read is one Read. Only while it waits can the server be called silent.
func (s *stream) read(p []byte) (int, error) {
	if err := s.verdict(nil); err != nil {
		s.end(err)
		return 0, err
	}
	s.listen()
	n, err := s.rc.Read(p)
	if s.timer != nil {
		s.timer.Stop()
	}
	if err == io.EOF && s.upgraded { // of this direction: the other goes on until Close
		if why := s.verdict(nil); why != nil {
			err = why
		}
		return n, err
	}
	if err != nil {
		err = s.verdict(unquoted(err))
		s.end(err)
	}
	return n, err
}

// listen starts the clock for a Read that is about to wait.
func (s *stream) listen() {
	switch {
	case s.idle <= 0 || s.idle == NoTimeout:
	case s.timer == nil:
		s.timer = time.AfterFunc(s.idle, s.silent)
	default:
		s.timer.Reset(s.idle)
	}
}

// silent ends a Read that has waited too long; that Read then ends the stream.
func (s *stream) silent() {
	s.verdict(&idleTimeoutError{s.idle})
	s.tearDown()
}

func (s *stream) close() error {
	s.verdict(http.ErrBodyReadAfterClose)
	err := s.closeBody()
	s.end(http.ErrBodyReadAfterClose)
	return err
}

// abort ends the stream from outside, without waiting for a Read: further ones
// return err, which is not nil. It may be called at any time and often.
func (s *stream) abort(err error) {
	s.verdict(err)
	defer func() { // also if Close panics
		s.end(err)
		s.leak.Stop() // nobody may ever have had the Body: what leads to it is let go
	}()
	s.tearDown()
}

// forgotten ends a stream that nobody can read or close any more.
func (s *stream) forgotten() {
	if s.closed.Load() {
		return
	}
	go func() { // ends with onEnd, which may take its time; nobody waits for it
		if s.log != nil {
			s.log.Warn("ax: streamed body was neither read to its end nor closed", "method", s.method, "url", s.url)
		}
		s.abort(errForgotten)
	}()
}

var errForgotten = errors.New("ax: streamed body was forgotten")

// verdict is why the stream ends, nil if it does not: the first reason there was, else err.
func (s *stream) verdict(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
	return s.err
}

func (s *stream) tearDown() {
	if !s.closed.Swap(true) {
		tearDown(s.rc, s.cancel)
	}
}

func (s *stream) closeBody() error {
	if s.closed.Swap(true) {
		return nil
	}
	return s.rc.Close()
}

// end tells the scheduler, once.
func (s *stream) end(err error) {
	if s.ended.Swap(true) {
		return
	}
	if !s.upgraded {
		s.closeBody()
	}
	if err == io.EOF || err == http.ErrBodyReadAfterClose {
		err = nil
	}
	if s.onEnd != nil {
		s.onEnd(err)
	}
}
