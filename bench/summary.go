package bench

import "slices"

// Summary is what is told of several measurements of one thing, in the unit they were taken in.
type Summary struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`  // a quarter of the measurements is below
	High   float64 `json:"high"` // a quarter is above
	Runs   int     `json:"runs"`
}

// Summarize sums up samples; there must be at least one.
func Summarize(samples []float64) Summary {
	sorted := slices.Sorted(slices.Values(samples))
	return Summary{
		Median: quantile(sorted, 0.5),
		Low:    quantile(sorted, 0.25),
		High:   quantile(sorted, 0.75),
		Runs:   len(samples),
	}
}

// Spread is half the distance from Low to High as a share of the median: with 0.05 half of the measurements are within
// about 5 % of it. One that was disturbed does not show in it.
func (s Summary) Spread() float64 {
	if s.Median == 0 {
		return 0
	}
	return (s.High - s.Low) / 2 / s.Median
}

// overlaps reports whether the middle halves of two sets of measurements do; if so, their difference may be chance.
func (s Summary) overlaps(other Summary) bool { return s.Low <= other.High && other.Low <= s.High }

// Median returns the middle of samples, the mean of the two middle ones if their number is even. There must be at
// least one. The order of samples is left alone.
func Median(samples []float64) float64 {
	return quantile(slices.Sorted(slices.Values(samples)), 0.5)
}

// quantile returns the value below which this share of sorted lies, between two of them if need be.
func quantile(sorted []float64, share float64) float64 {
	position := share * float64(len(sorted)-1)
	below := int(position)
	above := min(below+1, len(sorted)-1)
	return sorted[below] + (sorted[above]-sorted[below])*(position-float64(below))
}
