package staging

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// null is a backing that takes everything.
type null struct{}

func (null) WriteDirect(p []byte, _ int64) (int, error)   { return len(p), nil }
func (null) WriteBuffered(p []byte, _ int64) (int, error) { return len(p), nil }
func (null) ReadAt([]byte, int64) (int, error)            { return 0, nil }
func (null) Align() Alignment                             { return Alignment{512, 512} }
func (null) Sync(bool) error                              { return nil }

// minorFaults are those of the goroutine's thread, which it has to keep.
func minorFaults(tb testing.TB) int64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		tb.Fatal(err)
	}
	return u.Minflt
}

func BenchmarkSequentialWrite8k(b *testing.B) {
	s := pool(b, Config{})
	f := s.Open(null{})
	p := make([]byte, 8192)
	b.SetBytes(8192)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		write(b, f, p, int64(i)*8192)
	}
	f.Drop()
}

func BenchmarkRewrite8k(b *testing.B) {
	s := pool(b, Config{})
	f := s.Open(null{})
	p := make([]byte, 8192)
	b.ReportAllocs()
	for b.Loop() {
		write(b, f, p, 0)
	}
	f.Drop()
}

func BenchmarkSequentialWrite1(b *testing.B) {
	s := pool(b, Config{})
	f := s.Open(null{})
	p := make([]byte, 1)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		write(b, f, p, int64(i))
	}
	f.Drop()
}

// BenchmarkSmallFile opens, writes 4 KiB, flushes and closes.
func BenchmarkSmallFile(b *testing.B) {
	s := pool(b, Config{})
	p := make([]byte, 4096)
	b.ReportAllocs()
	for b.Loop() {
		f := s.Open(null{})
		write(b, f, p, 0)
		if l := f.Close(nil); l != nil {
			b.Fatal(l)
		}
	}
}

// BenchmarkOpenWindow opens a 32 MiB window and writes 4 KiB; its counterpart
// does the same with a buffer that is filled with zeros.
func BenchmarkOpenWindow(b *testing.B) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	p := make([]byte, 4096)
	faults := int64(0)
	for b.Loop() {
		b.StopTimer()
		s := pool(b, Config{WindowSize: 32 << 20})
		f := s.Open(null{})
		before := minorFaults(b)
		b.StartTimer()
		write(b, f, p, 0)
		b.StopTimer()
		faults += minorFaults(b) - before
		f.Drop()
		if _, err := s.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(faults)/float64(b.N), "faults/op")
}

func BenchmarkZeroFilled(b *testing.B) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	p := make([]byte, 4096)
	faults := int64(0)
	for b.Loop() {
		before := minorFaults(b)
		mem, err := unix.Mmap(-1, 0, 32<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			b.Fatal(err)
		}
		_ = unix.Madvise(mem, unix.MADV_NOHUGEPAGE)
		clear(mem)
		copy(mem, p)
		faults += minorFaults(b) - before
		b.StopTimer()
		if err := unix.Munmap(mem); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(faults)/float64(b.N), "faults/op")
}

// TestOpeningAWindowCostsItsPages is the promise that the benchmark measures.
func TestOpeningAWindowCostsItsPages(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s := pool(t, Config{WindowSize: 32 << 20})
	least := int64(1 << 30)
	p := make([]byte, 4096)
	for range 5 { // the runtime has faults of its own now and then
		f := s.Open(null{})
		before := minorFaults(t)
		write(t, f, p, 0)
		least = min(least, minorFaults(t)-before)
		defer f.Drop()
	}
	if least > 3 {
		t.Errorf("%d minor faults for 4 KiB in a window", least)
	}
}

func TestStagingAllocatesNothing(t *testing.T) {
	s := pool(t, Config{})
	f := s.Open(null{})
	p := make([]byte, 8192)
	off := int64(0)
	write(t, f, p, off)
	if n := testing.AllocsPerRun(1000, func() { off += 8192; write(t, f, p, off) }); n != 0 {
		t.Errorf("%v allocations per write", n)
	}
}
