package bench

import (
	"math"
	"math/rand/v2"
	"slices"
)

// estimate is a median with the interval that holds the true one with 95 %
// confidence.
type estimate struct{ mid, low, high float64 }

// resamples is how often the rounds are drawn anew.
const resamples = 4000

// estimateOf is the median of values and its percentile bootstrap interval. The
// draws are seeded, so that equal values give equal intervals. Without values
// all is NaN.
func estimateOf(values []float64) estimate {
	if len(values) == 0 {
		return estimate{math.NaN(), math.NaN(), math.NaN()}
	}
	r := rand.New(rand.NewPCG(1, uint64(len(values))))
	drawn := make([]float64, len(values))
	medians := make([]float64, resamples)
	for i := range medians {
		for j := range drawn {
			drawn[j] = values[r.IntN(len(values))]
		}
		medians[i] = median(drawn)
	}
	slices.Sort(medians)
	return estimate{median(values), quantile(medians, 0.025), quantile(medians, 0.975)}
}

// ratioOf is the estimate of a ÷ b, round by round.
func ratioOf(a, b []float64) estimate {
	return paired(a, b, func(x, y float64) float64 { return x / y })
}

// differenceOf is the estimate of a − b, round by round.
func differenceOf(a, b []float64) estimate {
	return paired(a, b, func(x, y float64) float64 { return x - y })
}

func paired(a, b []float64, f func(x, y float64) float64) estimate {
	values := make([]float64, min(len(a), len(b)))
	for i := range values {
		values[i] = f(a[i], b[i])
	}
	return estimateOf(values)
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return quantile(sorted, 0.5)
}

// quantile interpolates between the values next to q of what is sorted.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	at := q * float64(len(sorted)-1)
	below := int(at)
	above := min(below+1, len(sorted)-1)
	return sorted[below] + (at-float64(below))*(sorted[above]-sorted[below])
}
