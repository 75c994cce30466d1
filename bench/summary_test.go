package bench

import "testing"

func TestMedian(t *testing.T) {
	for _, test := range []struct {
		samples []float64
		want    float64
	}{
		{[]float64{7}, 7},
		{[]float64{4, 1}, 2.5},
		{[]float64{9, 1, 5}, 5},
		{[]float64{8, 2, 4, 6}, 5},
	} {
		if got := Median(test.samples); got != test.want {
			t.Errorf("Median(%v) = %v, want %v", test.samples, got, test.want)
		}
	}
	samples := []float64{3, 1, 2}
	Median(samples)
	if samples[0] != 3 {
		t.Error("Median changed the order of its samples")
	}
}

func TestSummarize(t *testing.T) {
	got := Summarize([]float64{50, 10, 30, 20, 40})
	want := Summary{Median: 30, Low: 20, High: 40, Runs: 5}
	if got != want {
		t.Errorf("Summarize = %+v, want %+v", got, want)
	}
	if spread := got.Spread(); spread != 1.0/3 {
		t.Errorf("Spread = %v, want 1/3", spread)
	}
	if spread := Summarize([]float64{0, 0}).Spread(); spread != 0 {
		t.Errorf("Spread of zeros = %v", spread)
	}
	if one := Summarize([]float64{7}); one != (Summary{Median: 7, Low: 7, High: 7, Runs: 1}) {
		t.Errorf("Summarize of one sample = %+v", one)
	}
}

func TestOverlaps(t *testing.T) {
	a, b, c := Summary{Low: 1, High: 3}, Summary{Low: 3, High: 4}, Summary{Low: 3.5, High: 5}
	if !a.overlaps(b) || !b.overlaps(a) || a.overlaps(c) || c.overlaps(a) {
		t.Error("overlaps is wrong at an edge or not symmetric")
	}
}
