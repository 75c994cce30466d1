package observe

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

func TestRequestsCountsBySize(t *testing.T) {
	var r Requests
	for _, n := range []int{8192, 4096, 8192, 0, 1048560, 16, 8192} {
		r.Read(n)
	}
	r.Write(512)
	r.Write(-1)
	want := []Size{{0, 1}, {16, 1}, {4096, 1}, {8192, 3}, {1048560, 1}}
	if got := r.Reads(); !slices.Equal(got, want) {
		t.Errorf("Reads() = %v, want %v", got, want)
	}
	if got := r.Writes(); !slices.Equal(got, []Size{{512, 1}}) {
		t.Errorf("Writes() = %v", got)
	}
}

func TestRequestsNilAndEmpty(t *testing.T) {
	var none *Requests
	none.Read(1)
	none.Write(1)
	none.Reset()
	for _, r := range []*Requests{none, new(Requests)} {
		if len(r.Reads()) != 0 || len(r.Writes()) != 0 {
			t.Errorf("%v %v, want nothing", r.Reads(), r.Writes())
		}
	}
}

func TestRequestsReset(t *testing.T) {
	var r Requests
	for size := range 2 * exactSizes {
		r.Read(size)
	}
	r.Write(1)
	r.Reset()
	if len(r.Reads()) != 0 || len(r.Writes()) != 0 {
		t.Errorf("after Reset: %v %v", r.Reads(), r.Writes())
	}
	// The old sizes do not take the new ones' room.
	r.Read(9_000_001)
	if got := r.Reads(); !slices.Equal(got, []Size{{9_000_001, 1}}) {
		t.Errorf("after Reset: %v", got)
	}
}

// Many goroutines count overlapping sizes, each size first seen by several at
// once; the sums must be exact.
func TestRequestsExactUnderConcurrency(t *testing.T) {
	const goroutines, perSize = 8, 5
	var r Requests
	inParallel(goroutines, func(seed uint64) {
		for _, size := range shuffledSizes(seed, exactSizes, perSize) {
			r.Read(size)
			r.Write(size * 2)
		}
	})
	for i, got := range [][]Size{r.Reads(), r.Writes()} {
		if len(got) != exactSizes {
			t.Fatalf("%d distinct sizes, want %d", len(got), exactSizes)
		}
		for size, s := range got {
			if want := (Size{size * (i + 1), goroutines * perSize}); s != want {
				t.Fatalf("%+v, want %+v", s, want)
			}
		}
	}
}

// Beyond the exact sizes requests are rounded up, never lost, and the sizes
// that were there first stay exact.
func TestRequestsBeyondExactSizes(t *testing.T) {
	const goroutines, distinct, more = 8, exactSizes, 3 * exactSizes
	var r Requests
	for size := range distinct {
		r.Read(size)
	}
	inParallel(goroutines, func(seed uint64) {
		for _, size := range shuffledSizes(seed, distinct+more, 1) {
			r.Read(size)
		}
	})
	var total uint64
	for _, s := range r.Reads() {
		total += s.Count
		if s.Bytes < distinct && s.Count != goroutines+1 {
			t.Errorf("%+v, want it counted exactly %d times", s, goroutines+1)
		}
		if s.Bytes >= distinct && s.Bytes&(s.Bytes-1) != 0 {
			t.Errorf("%+v is neither an exact size nor a power of two", s)
		}
	}
	if want := uint64(distinct + goroutines*(distinct+more)); total != want {
		t.Errorf("%d requests in all, want %d", total, want)
	}
}

// Goroutines that race for the last slots, and for which sizes get them, still
// count every request once.
func TestRequestsRaceForTheLastSlots(t *testing.T) {
	const goroutines, distinct = 8, 3 * exactSizes
	var r Requests
	inParallel(goroutines, func(seed uint64) {
		for _, size := range shuffledSizes(seed, distinct, 1) {
			r.Read(size)
		}
	})
	var total uint64
	got := r.Reads()
	for _, s := range got {
		total += s.Count
	}
	if total != goroutines*distinct || len(got) < exactSizes {
		t.Errorf("%d requests of %d sizes, want %d of at least %d", total, len(got), goroutines*distinct, exactSizes)
	}
}

// Reading and resetting while others count must be safe, and no request may
// show up twice.
func TestRequestsReadWhileCounting(t *testing.T) {
	const goroutines, each = 4, 2000
	var r Requests
	var seen uint64
	inParallel(goroutines+1, func(n uint64) {
		if n == 0 {
			for range 20 {
				for _, s := range r.Reads() {
					if s.Bytes != 4096 || s.Count > goroutines*each {
						t.Errorf("%+v", s)
					}
				}
				r.Reset()
			}
			return
		}
		for range each {
			r.Read(4096)
		}
	})
	for _, s := range r.Reads() {
		seen += s.Count
	}
	if seen > goroutines*each {
		t.Errorf("%d requests seen, %d made", seen, goroutines*each)
	}
}

func TestRequestsDoNotAllocate(t *testing.T) {
	var full, r Requests
	for size := range exactSizes {
		full.Read(size)
	}
	r.Read(0)
	size := 1
	for name, op := range map[string]func(){
		"known size": func() { r.Read(0) },
		"new size":   func() { size++; r.Read(size) },
		"no slot":    func() { size++; full.Read(exactSizes + size) },
	} {
		if n := testing.AllocsPerRun(1000, op); n != 0 {
			t.Errorf("%s: %v allocations per request", name, n)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	var r Requests
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r.Read(8192)
		}
	})
}

// inParallel calls f(0) to f(n-1), each in a goroutine, and waits for them.
func inParallel(n int, f func(uint64)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(uint64(i)) })
	}
	wg.Wait()
}

// shuffledSizes returns 0 to n-1, each repeated times, in an order that
// depends on the seed.
func shuffledSizes(seed uint64, n, repeated int) []int {
	sizes := make([]int, n*repeated)
	for i := range sizes {
		sizes[i] = i % n
	}
	rand.New(rand.NewPCG(seed, 1)).Shuffle(len(sizes), func(i, j int) { sizes[i], sizes[j] = sizes[j], sizes[i] })
	return sizes
}
