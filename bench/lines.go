package bench

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
)

// The file of lines that the author of glibc's buffer patch measured with.
const (
	LinesCount = 290_955
	LinesBytes = 230_427_757
)

// WriteLines writes text of exactly this many lines and bytes, newlines counted, the same for the same seed. The lines
// are of varied length. bytes must be at least lines: each line has its newline.
func WriteLines(w io.Writer, lines int, bytes int64, seed uint64) error {
	if lines < 1 || bytes < int64(lines) {
		return fmt.Errorf("%d lines do not fit in %d bytes", lines, bytes)
	}
	random := rand.New(rand.NewPCG(seed, 0))
	text := randomText(random, bytes/int64(lines)*4)
	out := bufio.NewWriterSize(w, 1<<20)
	for ; lines > 0; lines-- {
		length := lineLength(random, lines, bytes)
		if err := writeLine(out, text, random, length); err != nil {
			return err
		}
		bytes -= length
	}
	return out.Flush()
}

// lineLength draws the length of the next line, newline counted, when this many lines and bytes are left. It is even
// odds from 1 up to twice what is left for each line, so it never leaves less than a newline for each that follows.
func lineLength(random *rand.Rand, lines int, bytes int64) int64 {
	if lines == 1 {
		return bytes
	}
	return 1 + random.Int64N(2*(bytes/int64(lines))-1)
}

// writeLine writes a line of this length: text from a random place, over and over, and a newline.
func writeLine(out *bufio.Writer, text []byte, random *rand.Rand, length int64) error {
	from := random.IntN(len(text))
	for left := length - 1; left > 0; {
		piece := text[from:min(int64(len(text)), int64(from)+left)]
		if _, err := out.Write(piece); err != nil {
			return err
		}
		left -= int64(len(piece))
		from = 0
	}
	return out.WriteByte('\n')
}

// randomText is about size bytes of words, at least one, without a newline.
func randomText(random *rand.Rand, size int64) []byte {
	var text []byte
	for int64(len(text)) <= size {
		for range 1 + random.IntN(10) {
			text = append(text, 'a'+byte(random.IntN(26)))
		}
		text = append(text, ' ')
	}
	return text
}

// CreateLines makes the file that the author of glibc's buffer patch measured with, on disk when it returns.
func CreateLines(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := WriteLines(file, LinesCount, LinesBytes, 1); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	// Written back now, it does not disturb what is measured later.
	if err := file.Sync(); err != nil {
		return err
	}
	return file.Close()
}
