package bench

import (
	"bytes"
	"io"
	"testing"

	"pgregory.net/rapid"
)

// lineCounter counts what is written to it.
type lineCounter struct{ bytes, lines int64 }

func (c *lineCounter) Write(p []byte) (int, error) {
	c.bytes += int64(len(p))
	c.lines += int64(bytes.Count(p, []byte("\n")))
	return len(p), nil
}

func TestWriteLinesSize(t *testing.T) {
	var counter lineCounter
	if err := WriteLines(&counter, LinesCount, LinesBytes, 1); err != nil {
		t.Fatal(err)
	}
	if counter.lines != LinesCount || counter.bytes != LinesBytes {
		t.Errorf("%d lines of %d bytes", counter.lines, counter.bytes)
	}
}

func TestWriteLinesAnySize(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.IntRange(1, 200).Draw(t, "lines")
		size := rapid.Int64Range(int64(lines), 20_000).Draw(t, "size")
		seed := rapid.Uint64().Draw(t, "seed")
		var first, second bytes.Buffer
		for _, out := range []*bytes.Buffer{&first, &second} {
			if err := WriteLines(out, lines, size, seed); err != nil {
				t.Fatal(err)
			}
		}
		text := first.Bytes()
		if int64(len(text)) != size || bytes.Count(text, []byte("\n")) != lines || text[size-1] != '\n' {
			t.Fatalf("%d lines in %d bytes became %d in %d", lines, size, bytes.Count(text, []byte("\n")), len(text))
		}
		if !bytes.Equal(text, second.Bytes()) {
			t.Fatal("the same seed gave other lines")
		}
	})
}

func TestWriteLinesVaries(t *testing.T) {
	var out bytes.Buffer
	if err := WriteLines(&out, 1000, 100_000, 1); err != nil {
		t.Fatal(err)
	}
	lengths := make(map[int]bool)
	for line := range bytes.Lines(out.Bytes()) {
		lengths[len(line)] = true
	}
	if len(lengths) < 100 {
		t.Errorf("only %d different lengths in 1000 lines", len(lengths))
	}
}

func TestWriteLinesImpossible(t *testing.T) {
	if WriteLines(io.Discard, 10, 9, 1) == nil || WriteLines(io.Discard, 0, 0, 1) == nil {
		t.Error("lines that cannot be were written")
	}
}
