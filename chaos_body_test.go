package ax

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// chaosBody ends its attempt's stay when it is read or closed.
type chaosBody struct {
	wire   *chaosWire
	rest   string
	end    error // in place of io.EOF
	gap    time.Duration
	status int
	wait   string
	over   atomic.Bool // Close may come while a Read waits
}

func (b *chaosBody) Read(p []byte) (int, error) {
	if b.rest != "" {
		if b.gap > 0 {
			if err := chaosSleep(b.wire.ctx, b.gap); err != nil {
				b.finish()
				return 0, err
			}
		}
		n := copy(p, b.rest[:min(len(b.rest), 4096)])
		b.rest = b.rest[n:]
		return n, nil
	}
	if !b.over.Load() {
		cut := b.end != nil && b.wire.at.stream() == nil // the outcome of a stream is its headers
		b.wire.w.note(b.wire, cut || b.status >= 500, fmt.Sprint(b.status, b.end))
		b.pause()
	}
	b.finish()
	if b.end != nil {
		return 0, b.end
	}
	return 0, io.EOF
}

// pause remembers an honest Retry-After, which the lane must heed.
func (b *chaosBody) pause() {
	w := b.wire.w
	if b.wire.ctx.Err() != nil || w.hedged || b.wait != "1" && b.wait != "2" || b.status != 429 && b.status != 503 {
		return
	}
	now := w.s.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.scope("lane " + b.wire.lane)
	if until := now.add(time.Duration(b.wait[0]-'0') * time.Second); until > t.pauseUntil {
		if now >= t.pauseUntil {
			t.pauseFrom = now
		}
		t.pauseUntil = until
	}
}

func (b *chaosBody) Close() error {
	b.finish()
	return nil
}

func (b *chaosBody) finish() {
	b.over.Store(true)
	if !b.wire.keep {
		b.wire.w.leave(b.wire.at)
	}
}
