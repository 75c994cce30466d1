package staging

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// watch samples what is touched until stop is called, which returns the most.
func watch(s *Stager) (stop func() int64) {
	var most atomic.Int64
	quit := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			most.Store(max(most.Load(), s.Stats().Touched))
			select {
			case <-quit:
				return
			case <-time.After(100 * time.Microsecond):
			}
		}
	})
	return func() int64 { close(quit); wg.Wait(); return most.Load() }
}

func TestWritersShareASmallBudget(t *testing.T) {
	const writers, each, budget = 64, 1 << 20, 8 << 20
	s := pool(t, Config{WindowSize: 256 << 10, Memory: budget, MinDirect: 64 << 10, Bypass: -1, Age: -1})
	stop := watch(s)
	var wg sync.WaitGroup
	data := text(rand.New(rand.NewPCG(1, 1)), each)
	var done [writers]time.Duration
	begin := time.Now()
	for i := range writers {
		wg.Go(func() {
			b := newFake(t)
			b.delay = func() { time.Sleep(2 * time.Millisecond) } // 4 workers: 500 MB/s
			f := s.Open(b)
			for off := 0; off < each; off += 16 << 10 {
				write(t, f, data[off:off+16<<10], int64(off))
			}
			done[i] = time.Since(begin)
			if l := f.Close(nil); l != nil || !bytes.Equal(b.content(), data) {
				t.Errorf("writer %d: lost %v", i, l)
			}
		})
	}
	wg.Wait()
	if most := stop(); most > budget+budget/10 {
		t.Errorf("%d bytes touched", most)
	}
	first, last := done[0], done[0]
	for _, d := range done {
		first, last = min(first, d), max(last, d)
	}
	st := s.Stats()
	t.Logf("writers took %v to %v; %+v", first, last, st)
	if st.Waits == 0 {
		t.Error("the budget was never spent")
	}
}

func TestManySmallFilesCostTheirPages(t *testing.T) {
	const files = 1000
	s := pool(t, Config{Memory: 64 << 20, WindowSize: 32 << 20, Age: -1})
	fs := make([]*File, files)
	before := residentBytes(t)
	for i := range fs {
		fs[i] = s.Open(newFake(t))
		write(t, fs[i], make([]byte, 4096), 0)
	}
	if st := s.Stats(); st.Touched != files*4096 || st.Flushes != 0 {
		t.Fatalf("%+v", st)
	}
	grown := residentBytes(t) - before
	t.Logf("resident set grew by %d KiB", grown>>10)
	if grown > 64<<20 {
		t.Errorf("resident set grew by %d", grown)
	}
	for _, f := range fs {
		flush(t, f)
	}
	if st := s.Stats(); st.Pooled != st.Touched {
		t.Fatalf("%+v", st)
	}
}

// TestSpareIsTakenBack has small files hold large dirty buffers from the pool.
func TestSpareIsTakenBack(t *testing.T) {
	const window = 1 << 20
	s := pool(t, Config{WindowSize: window, Memory: 4 * window, Bypass: -1, Age: -1})
	big := s.Open(newFake(t))
	write(t, big, make([]byte, 4*window), 0)
	flush(t, big)
	if st := s.Stats(); st.Pooled != 4*window {
		t.Fatalf("%+v", st)
	}
	small := make([]*File, 5)
	for i := range small {
		small[i] = s.Open(newFake(t))
		write(t, small[i], []byte("x"), 0)
	}
	if st := s.Stats(); st.Flushes != 4 || st.Waits != 1 {
		t.Fatalf("%+v", st)
	}
	for _, f := range small {
		if f.StagedBytes() != 1 {
			t.Fatal("was flushed")
		}
	}
}

func TestWaitingCanBeInterrupted(t *testing.T) {
	s := pool(t, Config{WindowSize: 64 << 10, Memory: 128 << 10, Bypass: -1, Age: -1})
	b := newFake(t)
	gate := make(chan struct{})
	b.delay = func() { <-gate }
	f := s.Open(b)
	write(t, f, make([]byte, 128<<10), 0)
	cancel := make(chan struct{})
	time.AfterFunc(10*time.Millisecond, func() { close(cancel) })
	if n, err := f.WriteAt([]byte("x"), 1<<20, cancel); n != 0 || err != unix.EINTR {
		t.Fatalf("%d, %v", n, err)
	}
	if err := f.Flush(0, ToEnd, cancel); err != unix.EINTR {
		t.Fatal(err)
	}
	close(gate)
	write(t, f, []byte("x"), 1<<20)
	flush(t, f)
}

func TestFirstComeFirstServed(t *testing.T) {
	m := &memory{limit: 10, source: source{size: 64 << 10}}
	if !m.reserve(8) || m.reserve(3) {
		t.Fatal("wrong count")
	}
	a := m.enqueue(5, false)
	b := m.enqueue(1, false)
	if m.reserve(1) {
		t.Fatal("overtook a waiter")
	}
	m.unreserve(2)
	select {
	case <-a.ready:
		t.Fatal("served too much")
	case <-b.ready:
		t.Fatal("overtook a waiter")
	default:
	}
	m.unreserve(1)
	if g, err := m.wait(a, nil); g.pages != 5 || err != nil {
		t.Fatal(g, err)
	}
	c := m.enqueue(9, false)
	cancel := make(chan struct{})
	close(cancel)
	if _, err := m.wait(c, cancel); err != unix.EINTR {
		t.Fatal(err)
	}
	m.unreserve(5)
	if g, err := m.wait(b, nil); g.pages != 1 || err != nil {
		t.Fatal(g, err)
	}
}

func residentBytes(tb testing.TB) int64 {
	tb.Helper()
	fd, err := unix.Open("/proc/self/statm", unix.O_RDONLY, 0)
	if err != nil {
		tb.Skip("no /proc: ", err)
	}
	defer unix.Close(fd)
	buf := make([]byte, 100)
	n, err := unix.Read(fd, buf)
	if err != nil {
		tb.Skip("no /proc: ", err)
	}
	pages := int64(0)
	for _, c := range bytes.Fields(buf[:n])[1] {
		pages = pages*10 + int64(c-'0')
	}
	return pages * int64(unix.Getpagesize())
}
