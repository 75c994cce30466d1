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
	ways
)

var wayNames = [ways]string{wayDirect: "direct", wayBuffered: "buffered"}

// Size classes of extents: the first holds those below 4 KiB, each further one
// those below four times as much, the last all that are larger.
const (
	classes    = 8
	firstClass = 4 << 10 // bytes
)

func classOf(n int) int {
	return min((bits.Len(uint(n)/firstClass)+1)/2, classes-1)
}

// Counters count extents written. The zero value is ready; safe for concurrent
// use.
type Counters struct {
	rows [ways][classes]struct{ extents, bytes atomic.Int64 }
	// fallbacks are files that left their backend since it refused a write.
	fallbacks atomic.Int64
}

func (c *Counters) wrote(w way, n int) {
	if n <= 0 {
		return
	}
	row := &c.rows[w][classOf(n)]
	row.extents.Add(1)
	row.bytes.Add(int64(n))
}

// Row is what went one way in extents of one size class.
type Row struct {
	Backend string // direct, buffered
	Below   int64  // bytes; the class's upper end, 0 for the last class, which has none
	Extents int64
	Bytes   int64
}

// Rows lists what is not zero, by backend and size.
func (c *Counters) Rows() (rows []Row) {
	for w := range c.rows {
		for class := range c.rows[w] {
			r := Row{
				Backend: wayNames[w],
				Below:   firstClass << (2 * class),
				Extents: c.rows[w][class].extents.Load(),
				Bytes:   c.rows[w][class].bytes.Load(),
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
