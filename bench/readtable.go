package bench

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"tunefs/policy"
)

// PrintReadings writes readings, as Readers.Measure returns them, as a table. The ratios are to the first block size of
// the same program: 2.00 is twice as fast.
func PrintReadings(w io.Writer, readings []Reading) {
	if len(readings) == 0 {
		return
	}
	against := "vs " + readings[0].Blksize.String()
	t := newTable(w)
	t.AppendHeader(table.Row{"program", "st_blksize", "request", "direct", against, "cached", against})
	for _, group := range byProgram(readings) {
		t.AppendSeparator()
		for i, r := range group {
			name := r.Program
			if i > 0 {
				name = ""
			}
			t.AppendRow(table.Row{
				name, r.Blksize, sizeName(r.Request),
				secondsCell(r.Direct), ratioCell(group[0].Direct.Median / r.Direct.Median),
				secondsCell(r.Cached), ratioCell(group[0].Cached.Median / r.Cached.Median),
			})
		}
	}
	t.Render()
}

// newTable is an empty table that renders to w, with its figures to the right.
func newTable(w io.Writer) table.Writer {
	const widest = 16
	t := table.NewWriter()
	t.SetOutputMirror(w)
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	columns := []table.ColumnConfig{{Number: 1, Align: text.AlignLeft}}
	for n := 2; n <= widest; n++ {
		columns = append(columns, table.ColumnConfig{Number: n, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(columns)
	return t
}

// byProgram cuts readings where the program changes.
func byProgram(readings []Reading) [][]Reading {
	var groups [][]Reading
	for i, r := range readings {
		if i == 0 || r.Program != readings[i-1].Program {
			groups = append(groups, nil)
		}
		last := &groups[len(groups)-1]
		*last = append(*last, r)
	}
	return groups
}

func secondsCell(s Summary) string {
	return fmt.Sprintf("%.3f s ±%.0f%%", s.Median, s.Spread()*100)
}

func ratioCell(ratio float64) string { return fmt.Sprintf("%.2f", ratio) }

// sizeName writes a number of bytes as block sizes are written where it is one, and in full where it isn't.
func sizeName(bytes int) string {
	if bytes > 0 && bytes&(bytes-1) == 0 {
		return policy.Blksize(bytes).String()
	}
	return fmt.Sprint(bytes)
}

// Explain says in words what readings show, one sentence or two for each program.
func Explain(readings []Reading) string {
	var sentences []string
	for _, group := range byProgram(readings) {
		sentences = append(sentences, explainProgram(group))
	}
	if slices.ContainsFunc(readings, splitInTwo) {
		sentences = append(sentences, "A read of 1 MiB whose memory does not begin at a page takes 257 pages, "+
			"one more than a request may have; the kernel splits it into 1048560 bytes and 16.")
	}
	return strings.Join(sentences, "\n")
}

// splitRequest is what fits into 256 pages when a 1 MiB read begins 16 bytes into one, where malloc puts large memory.
const splitRequest = 1<<20 - 16

func splitInTwo(r Reading) bool { return r.Request == splitRequest }

// explainProgram says what became of the requests and the time of one program.
func explainProgram(group []Reading) string {
	first, largest := group[0], slices.MaxFunc(group, func(a, b Reading) int { return cmp.Compare(a.Request, b.Request) })
	if largest.Request == first.Request {
		largest = group[len(group)-1]
		return fmt.Sprintf("%s: asks for %s whatever st_blksize says; at %s against %s: %s.",
			first.Program, sizeName(first.Request), largest.Blksize, first.Blksize, speeds(first, largest))
	}
	var sizes []string
	for _, r := range group {
		sizes = append(sizes, fmt.Sprintf("%s at %s", sizeName(r.Request), r.Blksize))
	}
	return fmt.Sprintf("%s: asks for %s; at %s against %s: %s.",
		first.Program, strings.Join(sizes, ", "), largest.Blksize, first.Blksize, speeds(first, largest))
}

// speeds compares two readings of one program.
func speeds(first, other Reading) string {
	return speed(first.Direct, other.Direct) + " in direct mode, " + speed(first.Cached, other.Cached) + " in cached mode"
}

// speed says how much faster other is than first, both in seconds, if that is more than chance.
func speed(first, other Summary) string {
	ratio := first.Median / other.Median
	if first.overlaps(other) {
		return fmt.Sprintf("no clear difference (%.2f)", ratio)
	}
	return fmt.Sprintf("%.2f times as fast", ratio)
}
