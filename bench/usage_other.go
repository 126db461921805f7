//go:build !unix

package bench

import "time"

// cpuTime is not known here: what depends on it shows as NaN.
func cpuTime() time.Duration { return 0 }
