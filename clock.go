package ax

import (
	"math"
	"time"
)

// instant is a moment on the scheduler's own clock: nanoseconds since it was
// made, monotonic. Eight bytes instead of time.Time's 24, and ordered by <.
type instant int64

// never is later than every moment: only an event can bring it about.
const never instant = math.MaxInt64

// add is t+d, saturating at never.
func (t instant) add(d time.Duration) instant {
	if sum := t + instant(d); d < 0 || sum >= t {
		return sum
	}
	return never
}

// sub is the time from o to t.
func (t instant) sub(o instant) time.Duration { return time.Duration(t - o) }
