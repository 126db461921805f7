package bench

import "time"

// effort is how much a run may take.
type effort struct {
	quick    bool
	profiles string // directory for CPU profiles; "" = none are kept
}

// rounds is n, or just enough to see that all runs.
func (e effort) rounds(n int) int {
	if e.quick {
		return 1
	}
	return n
}

// slice is d, or a fraction of it.
func (e effort) slice(d time.Duration) time.Duration {
	if e.quick {
		return d / 20
	}
	return d
}

// size is n, or a tenth of it.
func (e effort) size(n int) int {
	if e.quick {
		return n / 10
	}
	return n
}
