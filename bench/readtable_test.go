package bench

import (
	"bytes"
	"strings"
	"testing"

	"tunefs/observe"
	"tunefs/policy"
)

// steady is a summary of runs that all took as long.
func steady(seconds float64) Summary { return Summarize([]float64{seconds, seconds, seconds}) }

// sampleReadings are of one program that follows st_blksize and of one that doesn't.
func sampleReadings() []Reading {
	return []Reading{
		{"deaf 1.0", 8 << 10, 8 << 10, steady(2), steady(0.5)},
		{"deaf 1.0", 1 << 20, 8 << 10, steady(2), steady(0.5)},
		{"keen 2.0", 8 << 10, 8 << 10, steady(3), steady(0.6)},
		{"keen 2.0", 1 << 20, splitRequest, steady(0.5), steady(0.4)},
	}
}

func TestPrintReadings(t *testing.T) {
	var out bytes.Buffer
	PrintReadings(&out, sampleReadings())
	for _, want := range []string{"vs 8k", "deaf 1.0", "1M", "1048560", "0.500 s ±0%", "6.00", "1.50"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, out.String())
		}
	}
	if n := strings.Count(out.String(), "keen 2.0"); n != 1 {
		t.Errorf("a program is named %d times", n)
	}
	out.Reset()
	if PrintReadings(&out, nil); out.Len() != 0 {
		t.Error("a table of nothing")
	}
}

func TestExplain(t *testing.T) {
	words := Explain(sampleReadings())
	for _, want := range []string{
		"deaf 1.0: asks for 8k whatever st_blksize says; at 1M against 8k: no clear difference (1.00) in direct mode",
		"keen 2.0: asks for 8k at 8k, 1048560 at 1M; at 1M against 8k: 6.00 times as fast in direct mode, 1.50 times as fast in cached mode",
		"257 pages",
	} {
		if !strings.Contains(words, want) {
			t.Errorf("the explanation lacks %q:\n%s", want, words)
		}
	}
	if strings.Contains(Explain(sampleReadings()[:2]), "257 pages") {
		t.Error("a split is explained that did not happen")
	}
}

func TestDominantSize(t *testing.T) {
	// Most requests are small, most bytes are not.
	if got := dominantSize([]observe.Size{{Bytes: 16, Count: 500}, {Bytes: splitRequest, Count: 220}}); got != splitRequest {
		t.Errorf("dominantSize = %d", got)
	}
	if got := dominantSize(nil); got != 0 {
		t.Errorf("dominantSize of nothing = %d", got)
	}
}

func TestReadersMeasure(t *testing.T) {
	dir := t.TempDir()
	views := []View{{Blksize: 8 << 10, Dir: dir}, {Blksize: policy.Blksize(1 << 20), Dir: dir}}
	readers := Readers{
		Programs:   []Program{{Name: "true", Command: func(string) Command { return Command{Argv: []string{"true"}} }}},
		Direct:     views,
		Cached:     views,
		DirectPlan: Plan{Rounds: 1},
		CachedPlan: Plan{Rounds: 3, WarmUp: true},
	}
	readings, err := readers.Measure(t.Context(), new(silent))
	if err != nil {
		t.Fatal(err)
	}
	if len(readings) != 2 || readings[1].Blksize != 1<<20 || readings[1].Direct.Runs != 1 || readings[1].Cached.Runs != 3 {
		t.Errorf("readings %+v", readings)
	}
}
