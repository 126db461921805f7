package axredis

import "time"

// SkewClock sets the clock that the governor reads ranks and pauses on.
func (g *Governor) SkewClock(d time.Duration) {
	g.now = func() time.Time { return time.Now().Add(d).Round(0) }
}

// Lines is how many lanes the governor keeps state for.
func (g *Governor) Lines() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.lines)
}
