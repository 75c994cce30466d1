package staging

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

func TestSequentialWritersGetLargeExtents(t *testing.T) {
	const size = 10 << 20
	for _, n := range []int{1, 100, 4096, 8192, 10000, 128 << 10, 1 << 20, 4 << 20} {
		for _, header := range []int{0, 1, 100} {
			t.Run(fmt.Sprintf("%d+%d", header, n), func(t *testing.T) {
				s := pool(t, Config{WindowSize: 8 << 20, Age: -1})
				b := newFake(t)
				f := s.Open(b)
				total := size
				if n == 1 {
					total = 5 << 18
				}
				p := alignedHeap(int64(max(n, 4096)))[:n]
				write(t, f, p[:min(header, n)], 0)
				for off := min(header, n); off < total; off += n {
					write(t, f, p, int64(off))
				}
				flush(t, f)
				large, all := int64(0), int64(0)
				for _, e := range b.direct {
					all += e.len()
					if e.len() >= 1<<20 {
						large += e.len()
					}
				}
				for _, e := range b.buffers {
					all += e.len()
				}
				if all < int64(total) || large < all*95/100 {
					t.Errorf("%d of %d bytes left in large extents", large, all)
				}
			})
		}
	}
}

func TestRandomWritersAreNotStaged(t *testing.T) {
	s := pool(t, Config{Age: -1})
	f := s.Open(newFake(t))
	r := rand.New(rand.NewPCG(1, 1))
	p := make([]byte, 4096)
	for range 1000 {
		write(t, f, p, r.Int64N(16<<10)*4096)
	}
	st := s.Stats()
	if !f.Through() || st.Staged > 100*4096 || st.Left != 1 {
		t.Fatalf("%+v", st)
	}
	// Now it runs.
	for i := range 600 {
		write(t, f, p, int64(i)*4096)
	}
	if st = s.Stats(); f.Through() || st.Returned != 1 {
		t.Fatalf("%+v", st)
	}
}

// TestOutOfOrderIsNotRandom writes as the kernel writes its cache back.
func TestOutOfOrderIsNotRandom(t *testing.T) {
	s := pool(t, Config{Bypass: -1, Age: -1})
	f := s.Open(newFake(t))
	p := make([]byte, 300<<10)
	for _, i := range rand.Perm(200) {
		write(t, f, p, int64(i)*int64(len(p)))
	}
	if f.Through() || s.Stats().Left > 0 {
		t.Fatalf("%+v", s.Stats())
	}
}

// TestManyStreamsAreNotRandom has a program write many sections of a file at
// once, in small pieces.
func TestManyStreamsAreNotRandom(t *testing.T) {
	s := pool(t, Config{Age: -1})
	f := s.Open(newFake(t))
	p := make([]byte, 4096)
	for i := range 64 {
		for stream := range 32 {
			write(t, f, p, int64(stream)<<22+int64(i)*4096)
		}
	}
	if f.Through() {
		t.Fatalf("%+v", s.Stats())
	}
}

func TestSyncedSmallWritesAreNotStaged(t *testing.T) {
	s := pool(t, Config{Age: -1})
	f := s.Open(newFake(t))
	line := []byte("a line of a log\n")
	off := int64(0)
	for range 200 {
		write(t, f, line, off)
		off += int64(len(line))
		if err := f.Sync(true, nil); err != nil {
			t.Fatal(err)
		}
	}
	if st := s.Stats(); !f.Through() || st.Staged > 10*int64(len(line)) {
		t.Fatalf("%+v", st)
	}
	if err := f.Truncate(0, nil, func() error { return nil }); err != nil || f.Through() {
		t.Fatal("a new start")
	}
}

func TestSyncedLargeWritesAreStaged(t *testing.T) {
	s := pool(t, Config{Age: -1})
	f := s.Open(newFake(t))
	p := make([]byte, 8192)
	for i := range 2000 {
		write(t, f, p, int64(i)*8192)
		if i%128 == 127 {
			if err := f.Sync(true, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	if f.Through() {
		t.Fatalf("%+v", s.Stats())
	}
}
