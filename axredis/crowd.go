package axredis

import "sync"

// crowd bounds the calls at once: each finds a connection, and a burst over many
// lanes, whose connections are yet to be made, is no outage. It begins with a few
// and lets in more with every answer.
type crowd struct {
	most int // 0 = any number

	mu   sync.Mutex
	turn sync.Cond
	in   int
	out  int // waiting
	peak int // of both
	room int // at most most
}

// fewCalls is how many calls at once there are at first.
const fewCalls = 2

func newCrowd(most int) *crowd {
	c := &crowd{most: most, room: min(fewCalls, most)}
	c.turn.L = &c.mu
	return c
}

// enter waits until there is room for one more call.
func (c *crowd) enter() {
	if c.most == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out++
	c.peak = max(c.peak, c.in+c.out)
	for c.in >= c.room {
		c.turn.Wait()
	}
	c.out--
	c.in++
}

// leave ends what has entered. A call that was answered makes room for one more,
// one that has failed for fewer.
func (c *crowd) leave(called bool, err error) {
	if c.most == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.in--
	switch {
	case called && err == nil && c.room < c.most:
		c.room++
		c.turn.Signal()
	case err != nil:
		c.room = max(c.room/2, min(fewCalls, c.most))
	}
	if c.in < c.room {
		c.turn.Signal()
	}
}

// wanted is how many calls at once there would have been, at most so many as may be.
func (c *crowd) wanted() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return min(c.peak, c.most)
}

// warm lets in n calls at once, for which there are connections.
func (c *crowd) warm(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.room = min(max(c.room, n), c.most)
	c.turn.Broadcast()
}
