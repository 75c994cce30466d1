package gds

import (
	"math/bits"
	"sync/atomic"
)

// way is how bytes reach a file.
type way uint8

const (
	wayDirect   way = iota
	wayBuffered     // through the page cache
	wayCuFile
	ways
)

var wayNames = [ways]string{wayDirect: "direct", wayBuffered: "buffered", wayCuFile: "cufile"}

// Size classes of extents: the first holds those below 4 KiB, each further one
// those below four times as much, the last all that are larger.
const (
	classes    = 8
	firstClass = 4 << 10 // bytes
)

func classOf(n int) int {
	return min((bits.Len(uint(n)/firstClass)+1)/2, classes-1)
}

// Counters count extents written, and read directly. The zero value is ready;
// safe for concurrent use.
type Counters struct {
	written [ways][classes]tally
	read    [ways][classes]tally
	// fallbacks are files that left their backend since it refused a write.
	fallbacks atomic.Int64
}

// tally is how many extents, and how many bytes.
type tally struct{ extents, bytes atomic.Int64 }

// count adds an extent of n bytes, if it has any, to its class.
func count(t *[classes]tally, n int) {
	if n <= 0 {
		return
	}
	class := &t[classOf(n)]
	class.extents.Add(1)
	class.bytes.Add(int64(n))
}

// Row is what went one way in extents of one size class.
type Row struct {
	Backend string // direct, buffered
	Below   int64  // bytes; the class's upper end, 0 for the last class, which has none
	Extents int64
	Bytes   int64
}

// Rows lists what was written and is not zero, by backend and size.
func (c *Counters) Rows() []Row { return rows(&c.written) }

// ReadRows lists likewise what was read past the page cache. Other reads are
// not counted.
func (c *Counters) ReadRows() []Row { return rows(&c.read) }

func rows(t *[ways][classes]tally) (rows []Row) {
	for w := range t {
		for class := range t[w] {
			r := Row{
				Backend: wayNames[w],
				Below:   firstClass << (2 * class),
				Extents: t[w][class].extents.Load(),
				Bytes:   t[w][class].bytes.Load(),
			}
			if class == classes-1 {
				r.Below = 0
			}
			if r.Extents > 0 {
				rows = append(rows, r)
			}
		}
	}
	return rows
}

// Fallbacks is how many files left their backend since it refused a write.
func (c *Counters) Fallbacks() int64 { return c.fallbacks.Load() }
