package lab

import (
	"slices"
	"time"
)

// Quantile is the value below which the share q of ds lies, rounded for people;
// 0 without any.
func Quantile(ds []time.Duration, q float64) time.Duration {
	if len(ds) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(ds))
	d := sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
	if d < time.Millisecond {
		return d.Round(time.Microsecond)
	}
	return d.Round(time.Millisecond)
}
