package observe

import (
	"math"
	"slices"
	"testing"
)

// fullTable has no slot left for a new size; sizes 0 to exactSizes-1 have one.
func fullTable() *table {
	t := new(table)
	for size := range exactSizes {
		t.add(size)
	}
	return t
}

func TestTableRoundsUp(t *testing.T) {
	for _, tt := range []struct{ size, want int }{
		{4097, 8192}, {8191, 8192}, {8192, 8192}, {8193, 16384}, {1 << 20, 1 << 20}, {1<<20 + 1, 1 << 21},
		{math.MaxInt/2 + 1, math.MaxInt/2 + 1}, {math.MaxInt, math.MaxInt},
	} {
		table := fullTable()
		table.add(tt.size)
		got := table.sizes()
		if last := got[len(got)-1]; last != (Size{tt.want, 1}) {
			t.Errorf("size %d is counted as %+v, want it under %d", tt.size, last, tt.want)
		}
	}
}

// A size with a slot of its own and a bucket of the same size are one entry.
func TestTableMergesSlotAndBucket(t *testing.T) {
	table := new(table)
	table.add(1 << 20)
	for size := range exactSizes - 1 {
		table.add(size)
	}
	table.add(1<<20 - 1)
	got := table.sizes()
	if len(got) != exactSizes || got[len(got)-1] != (Size{1 << 20, 2}) {
		t.Errorf("%d sizes, the last %+v; want %d, the last counted twice", len(got), got[len(got)-1], exactSizes)
	}
}

// Sizes that share a home slot find their own by probing, also around the end.
func TestTableProbes(t *testing.T) {
	table := new(table)
	var want []Size
	for size := 0; len(want) < 50; size++ {
		if home(uint64(size)+1) == slotCount-1 {
			table.add(size)
			table.add(size)
			want = append(want, Size{size, 2})
		}
	}
	if got := table.sizes(); !slices.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

func TestCeilLog2(t *testing.T) {
	for size := range 1 << 12 {
		want := 0
		for 1<<want < size {
			want++
		}
		if got := ceilLog2(size); got != want {
			t.Fatalf("ceilLog2(%d) = %d, want %d", size, got, want)
		}
	}
}
