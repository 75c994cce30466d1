package observe

import (
	"cmp"
	"math/bits"
	"slices"
	"sync/atomic"
)

const (
	exactSizes = 4096 // how many distinct sizes get a slot
	slotBits   = 13   // twice as many slots, so that probing stays short
	slotCount  = 1 << slotBits
)

// table counts by size without locks: a fixed hash table with linear probing,
// in which slots are taken and never given back.
type table struct {
	taken  atomic.Int64 // slots in use; above exactSizes by at most the number of racing adders
	slots  [slotCount]slot
	larger [bits.UintSize]atomic.Uint64 // by base-2 logarithm, rounded up: sizes that found no slot
}

// slot belongs to one size for good, once its key is set.
type slot struct {
	key   atomic.Uint64 // size + 1; 0: free
	count atomic.Uint64
}

// add counts one request of size bytes, size >= 0.
func (t *table) add(size int) {
	if s := t.find(size); s != nil {
		s.count.Add(1)
		return
	}
	t.larger[ceilLog2(size)].Add(1)
}

// find returns the slot of size, taking a free one at first sight, or nil if
// no more may be taken.
func (t *table) find(size int) *slot {
	key := uint64(size) + 1
	at := home(key)
	for range slotCount {
		s := &t.slots[at]
		held := s.key.Load()
		if held == 0 {
			if t.taken.Load() >= exactSizes {
				return nil
			}
			if s.key.CompareAndSwap(0, key) {
				t.taken.Add(1)
				return s
			}
			held = s.key.Load() // somebody else's, or ours by another goroutine
		}
		if held == key {
			return s
		}
		at = (at + 1) % slotCount
	}
	return nil
}

// home is where the search for a key starts. Sizes are mostly multiples of
// large powers of two; multiplying by 2^64 over the golden ratio spreads them.
func home(key uint64) uint64 { return key * 0x9e3779b97f4a7c15 >> (64 - slotBits) }

// ceilLog2 returns the least n with 1<<n >= size; 0 for size 0.
func ceilLog2(size int) int {
	if size <= 1 {
		return 0
	}
	return bits.Len(uint(size - 1))
}

// sizes returns what was counted, sorted, each size once. A nil table has
// counted nothing.
func (t *table) sizes() []Size {
	if t == nil {
		return nil
	}
	var all []Size
	collect := func(bytes int, count uint64) {
		if count > 0 {
			all = append(all, Size{bytes, count})
		}
	}
	for i := range t.slots {
		// The key is set before the first count, so a count without one is
		// never seen in this order.
		if n := t.slots[i].count.Load(); n > 0 {
			collect(int(t.slots[i].key.Load()-1), n)
		}
	}
	for log2 := range t.larger {
		collect(bucketBytes(log2), t.larger[log2].Load())
	}
	slices.SortFunc(all, func(a, b Size) int { return cmp.Compare(a.Bytes, b.Bytes) })
	return merged(all)
}

// bucketBytes is the size that a bucket's requests are counted under. The top
// one, of sizes above the largest power of two in an int, has none and gives
// the largest int.
func bucketBytes(log2 int) int {
	if log2 >= bits.UintSize-1 {
		return int(^uint(0) >> 1)
	}
	return 1 << log2
}

// merged adds up neighbours of equal size: a bucket and a slot of the same
// size.
func merged(sorted []Size) []Size {
	out := sorted[:0]
	for _, s := range sorted {
		if n := len(out); n > 0 && out[n-1].Bytes == s.Bytes {
			out[n-1].Count += s.Count
			continue
		}
		out = append(out, s)
	}
	return out
}
