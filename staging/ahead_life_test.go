package staging

import (
	"sync"
	"testing"
	"time"
)

// What is read ahead when memory is short, when time passes, and at the end.

// TestWritersDoNotWaitForReaders spends all memory that there is to spare on
// reading ahead, and lets nothing be flushed.
func TestWritersDoNotWaitForReaders(t *testing.T) {
	c := aheadConfig()
	c.Memory, c.ReadAhead, c.Bypass = 512<<10, 512<<10, -1
	s, _, f := aheadFile(t, c, 4<<20)
	for off := int64(0); off < 1<<20 && s.Stats().Touched < c.Memory*2/3; off += 4096 {
		reads(t, f, off, 4096)
		f.mu.Lock()
		f.ahead.streams[0].depth = f.ahead.most
		f.mu.Unlock()
	}
	filled(t, f)
	if used := s.Stats().Touched; used < c.Memory*2/3 || used > c.Memory*3/4 {
		t.Fatalf("%d bytes of memory are used", used)
	}
	other := newFake(t)
	gate := make(chan struct{})
	other.delay = func() { <-gate }
	defer close(gate)
	w := s.Open(other)
	cancel := make(chan struct{})
	end := time.AfterFunc(10*time.Second, func() { close(cancel) })
	defer end.Stop()
	p := make([]byte, 32<<10)
	begin := time.Now()
	for off := int64(0); off < c.Memory; off += int64(len(p)) {
		if n, err := w.WriteAt(p, off, cancel); n != len(p) || err != nil {
			t.Fatalf("WriteAt(%d) = %d, %v: %+v", off, n, err, s.Stats())
		}
	}
	if d := time.Since(begin); d > mostIdle/2 {
		t.Errorf("it took %v", d)
	}
	reads(t, f, 0, 4096)
}

// TestMemoryOfReadersServesWritersOfAFullDisk has memory that failed flushes
// keep, and memory that was read into.
func TestMemoryOfReadersServesWritersOfAFullDisk(t *testing.T) {
	c := aheadConfig()
	c.Memory, c.Bypass, c.RetryMin, c.RetryMax = 256<<10, -1, time.Hour, time.Hour
	s, b, f := aheadFile(t, c, 1<<20)
	readOn(t, f, 0, testChunk)
	filled(t, f)
	b.setFail(noSpace)
	w := s.Open(b)
	write(t, w, make([]byte, c.Memory-s.Stats().Touched), 2<<20)
	if err := w.Flush(0, ToEnd, nil); err == nil {
		t.Fatal("not full")
	}
	write(t, w, make([]byte, testChunk), 3<<20)
	b.setFail(nil)
}

func TestNothingIsKeptForLong(t *testing.T) {
	t.Parallel()
	s, b, f := aheadFile(t, aheadConfig(), 20*testChunk)
	readOn(t, f, 0, 4*testChunk)
	filled(t, f)
	if st := s.Stats(); st.Touched == st.Pooled {
		t.Fatalf("nothing was read ahead: %+v", st)
	}
	clear(b.data) // behind its back
	time.Sleep(mostIdle + mostIdle/2)
	if st := s.Stats(); st.Touched != st.Pooled || st.AheadWasted == 0 {
		t.Errorf("%+v", st)
	}
	readOn(t, f, 0, 20*testChunk)
}

// TestSlowReadersSeeChanges has the reader use a chunk again and again.
func TestSlowReadersSeeChanges(t *testing.T) {
	t.Parallel()
	_, b, f := aheadFile(t, aheadConfig(), 20*testChunk)
	readOn(t, f, 0, 4*testChunk)
	filled(t, f)
	b.mu.Lock()
	clear(b.data)
	b.mu.Unlock()
	one := make([]byte, 1)
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		if n, err := f.ReadAt(one, 4*testChunk); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if one[0] == 0 {
			return
		}
		if time.Since(begin) > mostOld+mostIdle {
			t.Fatal("still the old byte")
		}
	}
}

var endings = map[string]func(f *File, ended func()){
	"close": func(f *File, ended func()) { f.Close(nil); ended() },
	"drop":  func(f *File, ended func()) { f.Drop(); ended() },
	"later": func(f *File, ended func()) { f.CloseLater(func([]Lost) { ended() }) },
}

// endsOnce ends a file, which must take until free is called.
func endsOnce(t *testing.T, f *File, end func(*File, func()), free func()) {
	t.Helper()
	done := make(chan struct{})
	go end(f, func() { close(done) })
	select {
	case <-done:
		t.Error("the backing file is still being read")
	case <-time.After(20 * time.Millisecond):
	}
	free()
	<-done
}

// TestTheEndWaitsForWhatIsUnderWay ends a file while it is read ahead.
func TestTheEndWaitsForWhatIsUnderWay(t *testing.T) {
	for name, end := range endings {
		t.Run(name, func(t *testing.T) {
			s, b, f := aheadFile(t, aheadConfig(), 20*testChunk)
			gate := make(chan struct{})
			b.setLate(func(_ int64, n int) (int, error) { <-gate; return n, nil })
			readOn(t, f, 0, testChunk)
			endsOnce(t, f, end, func() { close(gate) })
			if st := s.Stats(); st.Touched != st.Pooled || st.Files != 0 {
				t.Errorf("%+v", st)
			}
			reads(t, f, 0, 4096) // a late one goes past
		})
	}
}

// TestTheEndWaitsForReaders ends a file while a request holds a chunk of it and
// waits for the backing file with the rest.
func TestTheEndWaitsForReaders(t *testing.T) {
	for name, end := range endings {
		t.Run(name, func(t *testing.T) {
			s, b, f := aheadFile(t, aheadConfig(), 20*testChunk)
			readOn(t, f, 0, 19*testChunk)
			filled(t, f)
			gate, stuck := make(chan struct{}), make(chan struct{})
			b.stop = func() { close(stuck); <-gate }
			var wg sync.WaitGroup
			wg.Go(func() {
				p := make([]byte, 4096)
				if n, err := f.ReadAt(p, 20*testChunk-100); n != 100 || err != nil {
					t.Error(n, err)
				}
			})
			<-stuck
			endsOnce(t, f, end, func() { close(gate) })
			wg.Wait()
			if st := s.Stats(); st.Touched != st.Pooled {
				t.Errorf("%+v", st)
			}
		})
	}
}

func TestWastedReadsMakeItHarder(t *testing.T) {
	c := aheadConfig()
	c.Memory = 64 << 20
	s, _, f := aheadFile(t, c, 64<<20)
	for i := range int64(60) { // reads on for a while, then goes elsewhere
		at := i * 60 * testChunk
		readOn(t, f, at, at+testChunk)
		filled(t, f)
		f.mu.Lock()
		for _, c := range f.ahead.chunks {
			f.unused(c)
		}
		f.mu.Unlock()
	}
	if st := s.Stats(); st.Ahead == 0 || st.Ahead > 20*testChunk {
		t.Errorf("%+v", st)
	}
	readOn(t, f, 0, 4<<20)
	if st := s.Stats(); st.AheadServed < 3<<20 {
		t.Errorf("%+v", st)
	}
}
