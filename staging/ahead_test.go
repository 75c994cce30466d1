package staging

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A small chunk makes small files long.
const testChunk = 16 << 10

func aheadConfig() Config {
	return Config{WindowSize: 64 << 10, MinDirect: 4096, ReadAhead: 128 << 10, chunk: testChunk, Poison: poison, Age: -1, heap: true}
}

// aheadFile is a file of n bytes that can be read ahead.
func aheadFile(t *testing.T, c Config, n int) (*Stager, *fake, *File) {
	t.Helper()
	s := pool(t, c)
	b := newFake(t)
	b.check = poison
	some := text(rand.New(rand.NewPCG(7, 7)), min(n, 300007)) // chunks all differ
	for len(b.data) < n {
		b.data = append(b.data, some[:min(n-len(b.data), len(some))]...)
	}
	return s, b, s.Open(b)
}

// reads compares n bytes at off with the backing file, as far as that goes.
func reads(t *testing.T, f *File, off int64, n int) {
	t.Helper()
	b := f.Backing().(*fake)
	want := make([]byte, n)
	b.mu.Lock()
	want = want[:b.copyOut(want, off)]
	b.mu.Unlock()
	got := bytes.Repeat([]byte{poison}, n)
	m, err := f.ReadAt(got, off)
	if err != nil || !bytes.Equal(got[:m], want) {
		t.Fatalf("read %d of %d bytes at %d, %v; want %d; first difference at %d", m, n, off, err, len(want), differ(got[:m], want))
	}
}

// readOn reads from lo to hi in requests of 4 KiB.
func readOn(t *testing.T, f *File, lo, hi int64) {
	t.Helper()
	for off := lo; off < hi; off += 4096 {
		reads(t, f, off, 4096)
	}
}

// filled waits until nothing is being read ahead.
func filled(t *testing.T, f *File) {
	t.Helper()
	eventually(t, "what is read ahead has arrived", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return !slices.ContainsFunc(f.ops, func(o op) bool { return o.kind == reading })
	})
}

func TestReadersInDisorderAreServed(t *testing.T) {
	const size, request, group = 2<<20 + 777, 4096, 4
	s, b, f := aheadFile(t, aheadConfig(), size)
	for off := int64(0); off < size; off += group * request {
		var wg sync.WaitGroup
		for _, i := range rand.Perm(group) {
			wg.Go(func() { reads(t, f, off+int64(i)*request, request) })
		}
		wg.Wait()
	}
	filled(t, f)
	if st := s.Stats(); st.AheadServed < size*9/10 || st.Ahead > size || st.AheadWasted > size/10 {
		t.Errorf("%+v", st)
	}
	if plain := b.counted(); plain > size/10 {
		t.Errorf("%d bytes were read by themselves", plain)
	}
	if l := f.Close(nil); l != nil {
		t.Error(l)
	}
	if st := s.Stats(); st.Touched != st.Pooled {
		t.Errorf("%+v", st)
	}
}

func TestSeveralReadersAreToldApart(t *testing.T) {
	const size, readers = 4 << 20, 4
	s, _, f := aheadFile(t, aheadConfig(), size)
	for off := int64(0); off < size/readers; off += 4096 {
		for i := range int64(readers) {
			reads(t, f, i*size/readers+off, 4096)
		}
	}
	if st := s.Stats(); st.AheadServed < size*8/10 {
		t.Errorf("%+v", st)
	}
}

func TestOthersAreLeftAlone(t *testing.T) {
	const size = 8 << 20
	r := rand.New(rand.NewPCG(8, 8))
	for name, read := range map[string]func(t *testing.T, f *File){
		"random": func(t *testing.T, f *File) {
			for range 2000 {
				reads(t, f, r.Int64N(size/4096)*4096, 4096)
			}
		},
		"random nearby": func(t *testing.T, f *File) {
			for range 200 {
				reads(t, f, r.Int64N(40*testChunk), 512)
			}
		},
		"the same again": func(t *testing.T, f *File) {
			for range 2000 {
				reads(t, f, r.Int64N(2)*4096, 4096)
			}
		},
		"strided": func(t *testing.T, f *File) {
			for off := int64(0); off < size; off += 16 << 10 {
				reads(t, f, off, 4096)
			}
		},
		"backwards": func(t *testing.T, f *File) {
			for off := int64(size / 4); off > 0; off -= 4096 {
				reads(t, f, off-4096, 4096)
			}
		},
		"a little": func(t *testing.T, f *File) { readOn(t, f, 0, testChunk/4) },
	} {
		t.Run(name, func(t *testing.T) {
			s, _, f := aheadFile(t, aheadConfig(), size)
			read(t, f)
			filled(t, f)
			if st := s.Stats(); st.Ahead > 0 {
				t.Errorf("%+v", st)
			}
		})
	}
}

func TestSmallFilesAreNotReadAhead(t *testing.T) {
	s, _, f := aheadFile(t, aheadConfig(), fewestChunks*testChunk-1)
	readOn(t, f, 0, fewestChunks*testChunk)
	if st := s.Stats(); st.Ahead > 0 || st.Pooled != st.Touched {
		t.Errorf("%+v", st)
	}
}

func TestWhatIsCachedIsNotReadAhead(t *testing.T) {
	s, b, f := aheadFile(t, aheadConfig(), 1<<20)
	const border = 512 << 10 // cached before
	b.cached = func(off, _ int64) bool { return off < border+farther*testChunk }
	readOn(t, f, 0, border)
	if st := s.Stats(); st.Ahead > (f.ahead.most+1)*testChunk {
		t.Errorf("%+v", st)
	}
	readOn(t, f, border, 1<<20)
	if st := s.Stats(); st.AheadServed < (1<<20-border)*8/10 {
		t.Errorf("%+v", st)
	}
}

// TestChangesOutdate changes a place that is read ahead, or is being, in each
// way that there is.
func TestChangesOutdate(t *testing.T) {
	const at = 10 * testChunk // read ahead once the reader has come near
	p := alignedHeap(8192)
	copy(p, text(rand.New(rand.NewPCG(9, 9)), len(p)))
	changes := map[string]func(t *testing.T, b *fake, f *File){
		"staged and flushed": func(t *testing.T, _ *fake, f *File) {
			write(t, f, p[:5000], at)
			flush(t, f)
		},
		"bypass": func(t *testing.T, _ *fake, f *File) { write(t, f, p, at) },
		"asked for": func(t *testing.T, _ *fake, f *File) {
			if n, err := f.WriteThrough(p[:99], at, nil); n != 99 || err != nil {
				t.Fatal(n, err)
			}
		},
		"pattern": func(t *testing.T, _ *fake, f *File) {
			f.mu.Lock()
			f.leave()
			f.mu.Unlock()
			write(t, f, p[:99], at)
		},
		"barrier": func(t *testing.T, b *fake, f *File) {
			if err := f.Barrier(at, 10, nil, func() error { return punch(b, at, 10) }); err != nil {
				t.Fatal(err)
			}
		},
		"truncate": func(t *testing.T, b *fake, f *File) {
			for _, size := range []int64{at + 5, 40 * testChunk} {
				if err := f.Truncate(size, nil, func() error { b.truncate(size); return nil }); err != nil {
					t.Fatal(err)
				}
			}
		},
	}
	for name, change := range changes {
		for _, underWay := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, under way %v", name, underWay), func(t *testing.T) {
				c := aheadConfig()
				c.Bypass = 8192
				s, b, f := aheadFile(t, c, 40*testChunk)
				gate := make(chan struct{})
				if underWay {
					b.setLate(func(off int64, n int) (int, error) {
						if off == at {
							<-gate
						}
						return n, nil
					})
					time.AfterFunc(20*time.Millisecond, func() { close(gate) }) // barriers wait for it
				} else {
					close(gate)
				}
				readOn(t, f, 0, at-testChunk/2)
				eventually(t, "the place is read ahead", func() bool { return s.Stats().Ahead >= at-2*testChunk })
				if !underWay {
					filled(t, f)
				}
				change(t, b, f)
				reads(t, f, at, 8192)
				<-gate
				filled(t, f)
				reads(t, f, at, 8192)
				readOn(t, f, 0, 40*testChunk)
			})
		}
	}
}

func punch(b *fake, off, n int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.data[off : off+n])
	return nil
}

// TestNothingIsReadAheadOfAChange has a reader come near a place while that is
// being changed.
func TestNothingIsReadAheadOfAChange(t *testing.T) {
	const at = 10 * testChunk
	_, b, f := aheadFile(t, aheadConfig(), 40*testChunk)
	err := f.Barrier(at, 10, nil, func() error {
		readOn(t, f, 0, at)
		filled(t, f)
		return punch(b, at, 10)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range b.ahead {
		if r.overlaps(span{at, at + 10}) {
			t.Errorf("%v was read", r)
		}
	}
	readOn(t, f, at, 40*testChunk)
}

func TestStagedBytesWinOverWhatIsReadAhead(t *testing.T) {
	s, b, f := aheadFile(t, aheadConfig(), 20*testChunk)
	readOn(t, f, 0, 4*testChunk)
	filled(t, f)
	const at = 4*testChunk + 100
	write(t, f, []byte("newer"), at)
	got := make([]byte, 4096)
	want := bytes.Clone(b.data[at-100:][:4096])
	copy(want[100:], "newer")
	if n, err := f.ReadAt(got, at-100); n != len(got) || err != nil || !bytes.Equal(got, want) {
		t.Fatal(n, err, differ(got, want))
	}
	if st := s.Stats(); f.StagedBytes() != 5 || st.AheadServed == 0 {
		t.Errorf("%+v", st)
	}
	flush(t, f)
	readOn(t, f, 4*testChunk, 20*testChunk)
}

// TestTheEndIsTheFiles reads files of many sizes to their ends, and then has
// them grow.
func TestTheEndIsTheFiles(t *testing.T) {
	const most = 21 * testChunk
	for _, size := range []int64{most - testChunk, most - testChunk + 1, most - testChunk + 511, most - testChunk + 512, most - 1, most} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			s, b, f := aheadFile(t, aheadConfig(), int(size))
			readOn(t, f, 0, most+testChunk)
			b.truncate(size + 3*testChunk) // behind its back, with nothing read ahead being wrong
			readOn(t, f, 0, most+4*testChunk)
			write(t, f, []byte("end"), size+4*testChunk)
			flush(t, f)
			readOn(t, f, size-4096, most+6*testChunk)
			if st := s.Stats(); st.AheadServed < size {
				t.Errorf("%+v", st)
			}
		})
	}
}

func TestErrorsAreLeftToReaders(t *testing.T) {
	for name, late := range map[string]func(int64, int) (int, error){
		"error":           func(int64, int) (int, error) { return 0, unix.EIO },
		"part, then fail": func(_ int64, n int) (int, error) { return n / 2, unix.EIO },
		"nothing":         func(int64, int) (int, error) { return 0, nil },
		"odd part":        func(_ int64, n int) (int, error) { return n/2 + 1, nil },
		"part":            func(_ int64, n int) (int, error) { return min(n, 4096), nil },
	} {
		t.Run(name, func(t *testing.T) {
			s, b, f := aheadFile(t, aheadConfig(), 20*testChunk+9)
			b.setLate(late)
			readOn(t, f, 0, 21*testChunk)
			t.Logf("%+v", s.Stats())
		})
	}
	t.Run("no direct path", func(t *testing.T) {
		s, b, f := aheadFile(t, aheadConfig(), 20*testChunk)
		b.align = Alignment{}
		readOn(t, f, 0, 20*testChunk)
		if st := s.Stats(); st.Ahead > 0 || !f.ahead.off {
			t.Errorf("%+v", st)
		}
	})
}

func TestReadingAllocatesNothing(t *testing.T) {
	for _, c := range []Config{{}, {ReadAhead: 16 << 20}} {
		s := pool(t, c)
		b := newFake(t)
		b.data = make([]byte, 1<<20)
		f := s.Open(b)
		p := make([]byte, 4096)
		off := int64(0)
		if n := testing.AllocsPerRun(1000, func() {
			off = (off + 77<<12) % (1 << 20)
			if n, err := f.ReadAt(p, off); n != 4096 || err != nil {
				t.Fatal(n, err)
			}
		}); n != 0 {
			t.Errorf("%v allocations per read, %d read ahead", n, c.ReadAhead)
		}
	}
}
