package staging

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestWritesAreStagedAndFlushed(t *testing.T) {
	s := pool(t, Config{WindowSize: 64 << 10, MinDirect: 4096, Age: -1})
	b := newFake(t)
	f := s.Open(b)
	p := text(rand.New(rand.NewPCG(1, 1)), 20000)
	write(t, f, p, 100)
	if len(b.content()) != 0 || f.StagedBytes() != 20000 || f.End() != 20100 || !f.Affects(20099) || f.Affects(20100) {
		t.Fatalf("staged %d bytes up to %d; the backing file has %d", f.StagedBytes(), f.End(), len(b.content()))
	}
	want := append(make([]byte, 100), p...)
	wants(t, f, want)
	flush(t, f)
	if f.StagedBytes() != 0 || f.End() != 0 || !bytes.Equal(b.content(), want) {
		t.Fatal("not flushed")
	}
	if len(b.direct) != 1 || b.direct[0] != (span{4096, 16384}) || len(b.buffers) != 2 {
		t.Fatalf("written as %v direct and %v buffered", b.direct, b.buffers)
	}
	wants(t, f, want)
}

func TestNewestWins(t *testing.T) {
	s := pool(t, Config{WindowSize: 64 << 10, Workers: 1, Age: -1})
	b := newFake(t)
	gate := make(chan struct{})
	b.delay = func() { <-gate }
	f := s.Open(b)
	write(t, f, bytes.Repeat([]byte("a"), 100), 0)
	f.FlushAsync()
	eventually(t, "flush begins", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.slots[0].sealed != nil && f.slots[0].sealed.state == flushing
	})
	write(t, f, bytes.Repeat([]byte("b"), 50), 25)
	want := []byte(string(bytes.Repeat([]byte("a"), 25)) + string(bytes.Repeat([]byte("b"), 50)) + string(bytes.Repeat([]byte("a"), 25)))
	wants(t, f, want)
	f.FlushAsync() // has to come second
	close(gate)
	flush(t, f)
	if !bytes.Equal(b.content(), want) {
		t.Fatalf("the backing file has %q", b.content())
	}
}

func TestHolesReadAsZeros(t *testing.T) {
	s := pool(t, Config{WindowSize: 64 << 10, Poison: 0xA5})
	b := newFake(t)
	b.data = []byte("disk")
	f := s.Open(b)
	write(t, f, []byte("x"), 10)
	write(t, f, []byte("y"), 200000)
	want := make([]byte, 200001)
	copy(want, "disk")
	want[10], want[200000] = 'x', 'y'
	wants(t, f, want)
}

func TestFullWindowsLeaveByThemselves(t *testing.T) {
	s := pool(t, Config{WindowSize: 64 << 10, MinDirect: 4096, Age: -1})
	b := newFake(t)
	f := s.Open(b)
	for i := range 16 {
		write(t, f, make([]byte, 4096), int64(15-i)*4096)
	}
	eventually(t, "the window is written", func() bool { return len(b.content()) == 64<<10 && f.StagedBytes() == 0 })
	if len(b.direct) != 1 {
		t.Fatalf("in %d extents", len(b.direct))
	}
}

func TestOldWindowsLeave(t *testing.T) {
	s := pool(t, Config{WindowSize: 64 << 10, Age: 20 * time.Millisecond})
	b := newFake(t)
	f := s.Open(b)
	for range 3 {
		write(t, f, []byte("x"), 0)
		if f.StagedBytes() != 1 {
			t.Fatal("not staged")
		}
		eventually(t, "flush by age", func() bool { return f.StagedBytes() == 0 })
	}
}

func TestBypass(t *testing.T) {
	s := pool(t, Config{WindowSize: 64 << 10, Bypass: 32 << 10, Age: -1})
	b := newFake(t)
	f := s.Open(b)
	r := rand.New(rand.NewPCG(5, 5))
	p := alignedHeap(40 << 10)
	copy(p, text(r, len(p)))
	for range 3 {
		p = append(p, text(r, 1)...)
	}
	write(t, f, p, 64<<10)
	if st := s.Stats(); st.Bypassed != 40<<10 || f.StagedBytes() != 3 {
		t.Fatalf("%+v, staged %d", st, f.StagedBytes())
	}
	q := alignedHeap(32 << 10)
	copy(q, text(r, len(q)))
	write(t, f, q, 72<<10) // now overlaps what is staged
	want := append(make([]byte, 64<<10), p...)
	copy(want[72<<10:], q)
	wants(t, f, want)
	if st := s.Stats(); st.Bypassed != 40<<10 {
		t.Fatalf("%+v", st)
	}
	flush(t, f)
	if !bytes.Equal(b.content(), want) {
		t.Fatal("wrong content")
	}
}

func TestTruncateDropsWhatIsBeyond(t *testing.T) {
	s := pool(t, Config{WindowSize: 64 << 10, Age: -1})
	b := newFake(t)
	f := s.Open(b)
	p := text(rand.New(rand.NewPCG(6, 6)), 200000)
	write(t, f, p, 0)
	if err := f.Truncate(100, nil, func() error { return unix.EPERM }); err != unix.EPERM {
		t.Fatal(err)
	}
	wants(t, f, p)
	if err := f.Truncate(70000, nil, func() error { b.truncate(70000); return nil }); err != nil {
		t.Fatal(err)
	}
	wants(t, f, p[:70000])
	write(t, f, []byte("end"), 150000)
	want := append(bytes.Clone(p[:70000]), make([]byte, 80000)...)
	want = append(want, "end"...)
	wants(t, f, want)
	flush(t, f)
	if !bytes.Equal(b.content(), want) {
		t.Fatal("wrong content")
	}
	if err := f.Truncate(0, nil, func() error { b.truncate(0); return nil }); err != nil {
		t.Fatal(err)
	}
	wants(t, f, nil)
}

func TestBarrierHoldsFlushesOff(t *testing.T) {
	s := pool(t, Config{WindowSize: 64 << 10, Age: -1})
	b := newFake(t)
	f := s.Open(b)
	write(t, f, []byte("before"), 0)
	done := make(chan error, 1)
	err := f.Barrier(0, 10, nil, func() error {
		if string(b.content()) != "before" {
			t.Errorf("the backing file has %q", b.content())
		}
		write(t, f, []byte("after!"), 0)
		go func() { done <- f.Flush(0, ToEnd, nil) }()
		time.Sleep(20 * time.Millisecond)
		if string(b.content()) != "before" {
			t.Error("flushed through a barrier")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil || string(b.content()) != "after!" {
		t.Fatalf("%v, %q", err, b.content())
	}
}

func TestBarrierCanBeInterrupted(t *testing.T) {
	s := pool(t, Config{WindowSize: 64 << 10, Age: -1})
	f := s.Open(newFake(t))
	cancel := make(chan struct{})
	close(cancel)
	err := f.Barrier(0, ToEnd, nil, func() error {
		return f.Barrier(5, 1, cancel, func() error { t.Error("two barriers at once"); return nil })
	})
	if err != unix.EINTR {
		t.Fatal(err)
	}
	if err := f.Barrier(0, ToEnd, nil, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
}

func TestDropWritesNothing(t *testing.T) {
	s := pool(t, Config{WindowSize: 64 << 10, Age: -1})
	b := newFake(t)
	f := s.Open(b)
	write(t, f, []byte("gone"), 0)
	f.Drop()
	if len(b.content()) != 0 || s.Stats().Files != 0 || s.Stats().Lost != 0 {
		t.Fatalf("wrote %q; %+v", b.content(), s.Stats())
	}
	if _, err := f.WriteAt([]byte("x"), 0, nil); err != unix.EBADF {
		t.Fatal(err)
	}
	if _, err := f.WriteThrough([]byte("x"), 0, nil); err != unix.EBADF {
		t.Fatal(err)
	}
}

func TestCloseLater(t *testing.T) {
	s := pool(t, Config{WindowSize: 64 << 10, Age: 30 * time.Millisecond})
	b := newFake(t)
	f := s.Open(b)
	write(t, f, []byte("data"), 0)
	ended := make(chan []Lost, 1)
	f.CloseLater(func(l []Lost) { ended <- l })
	if !f.Reopen() {
		t.Fatal("cannot take it back")
	}
	f.CloseLater(func(l []Lost) { ended <- l })
	if l := <-ended; l != nil || string(b.content()) != "data" || s.Stats().Files != 0 {
		t.Fatalf("%v, %q, %+v", l, b.content(), s.Stats())
	}
	if f.Reopen() {
		t.Fatal("reopened after the end")
	}
	clean := s.Open(b)
	clean.CloseLater(func(l []Lost) { ended <- l })
	<-ended
}

func TestBadArguments(t *testing.T) {
	s := pool(t, Config{WindowSize: 64 << 10})
	f := s.Open(newFake(t))
	if _, err := f.WriteAt([]byte("x"), -1, nil); err != unix.EINVAL {
		t.Error(err)
	}
	if _, err := f.WriteAt([]byte("x"), ToEnd, nil); err != unix.EFBIG {
		t.Error(err)
	}
	if n, err := f.WriteAt(nil, 5, nil); n != 0 || err != nil || f.End() != 0 {
		t.Error(n, err)
	}
	if err := f.Flush(-1, 5, nil); err != unix.EINVAL {
		t.Error(err)
	}
	for _, c := range []Config{
		{WindowSize: 100000}, {WindowSize: 4096}, {WindowSize: 1 << 40}, {Memory: 1 << 20}, {Workers: -1},
		{MaxPiece: 3 << 20}, {RetryMin: 2, RetryMax: 1},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%+v was taken", c)
		}
	}
}
