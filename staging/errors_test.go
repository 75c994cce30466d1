package staging

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestNoSpaceThenSpace(t *testing.T) {
	s := pool(t, Config{WindowSize: 64 << 10, MinDirect: 4096, RetryMin: time.Hour, RetryMax: time.Hour, Age: -1})
	b := newFake(t)
	b.setFail(noSpace)
	f := s.Open(b)
	p := text(rand.New(rand.NewPCG(1, 1)), 100000)
	write(t, f, p, 5)
	for range 2 {
		if err := f.Sync(false, nil); !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
		if err := f.Err(); !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
	}
	lost := s.FlushAll(nil)
	if len(lost) != 2 || lost[0].Off != 5 || lost[0].Len != 64<<10-5 || lost[1].Off != 64<<10 || !errors.Is(lost[1].Err, unix.ENOSPC) {
		t.Fatalf("%v", lost)
	}
	want := append(make([]byte, 5), p...)
	wants(t, f, want)
	b.setFail(nil)
	if err := f.Sync(false, nil); err != nil || f.Err() != nil {
		t.Fatal(err, f.Err())
	}
	if !bytes.Equal(b.synced, want) {
		t.Fatal("wrong content")
	}
}

func TestFailedFlushIsTriedAgainAlone(t *testing.T) {
	s := pool(t, Config{WindowSize: 64 << 10, RetryMin: time.Millisecond, Age: -1})
	b := newFake(t)
	b.setFail(noSpace)
	f := s.Open(b)
	write(t, f, []byte("data"), 0)
	f.FlushAsync()
	eventually(t, "three failures", func() bool { return s.Stats().Failures >= 3 })
	if f.Err() == nil {
		t.Fatal("no error")
	}
	b.setFail(nil)
	eventually(t, "data arrives", func() bool { return string(b.content()) == "data" && f.Err() == nil })
}

func TestPartOfAFlushFails(t *testing.T) {
	s := pool(t, Config{WindowSize: 64 << 10, RetryMin: time.Hour, RetryMax: time.Hour, Age: -1})
	b := newFake(t)
	f := s.Open(b)
	b.setFail(func(_ bool, off int64, n int) (int, error) {
		if room := 1234 - off; int64(n) > room { // the disk ends there
			return int(max(room, 0)), unix.ENOSPC
		}
		return n, nil
	})
	p := text(rand.New(rand.NewPCG(2, 2)), 3000)
	write(t, f, p[:1000], 0)
	write(t, f, p[2000:], 2000)
	write(t, f, p[1000:2000], 1000)
	if err := f.Flush(0, ToEnd, nil); !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	wants(t, f, p)
	if l := f.Close(nil); len(l) != 1 || l[0].Off != 1234 || l[0].Len != 3000-1234 || !errors.Is(l[0].Err, unix.ENOSPC) {
		t.Fatalf("%v", l)
	}
	if st := s.Stats(); st.Lost != 3000-1234 || st.Failing != 0 {
		t.Fatalf("%+v", st)
	}
}

func TestShortWritesAreContinued(t *testing.T) {
	s := pool(t, Config{WindowSize: 64 << 10, MinDirect: 4096, Age: -1})
	b := newFake(t)
	r := rand.New(rand.NewPCG(3, 3))
	b.setFail(func(direct bool, _ int64, n int) (int, error) { return 1 + r.IntN(n), nil })
	f := s.Open(b)
	p := text(r, 150000)
	write(t, f, p, 77)
	flush(t, f)
	if want := append(make([]byte, 77), p...); !bytes.Equal(b.content(), want) {
		t.Fatal("wrong content")
	}
	b.setFail(func(bool, int64, int) (int, error) { return 0, nil })
	write(t, f, p, 0)
	if err := f.Flush(0, ToEnd, nil); !errors.Is(err, unix.EIO) {
		t.Fatal(err)
	}
	b.setFail(nil)
}

func TestFailedSyncIsNotForgiven(t *testing.T) {
	s := pool(t, Config{WindowSize: 64 << 10})
	b := newFake(t)
	f := s.Open(b)
	b.syncErr = unix.EIO
	if err := f.Sync(true, nil); err != unix.EIO {
		t.Fatal(err)
	}
	b.syncErr = nil
	if err := f.Sync(true, nil); err != unix.EIO || f.Err() != unix.EIO {
		t.Fatal(err)
	}
}

func TestSpentBudgetAndFullDisk(t *testing.T) {
	s := pool(t, Config{WindowSize: 64 << 10, Memory: 128 << 10, Bypass: -1, RetryMin: time.Hour, RetryMax: time.Hour, Age: -1})
	b, other := newFake(t), newFake(t)
	b.setFail(noSpace)
	f, g := s.Open(b), s.Open(other)
	write(t, f, make([]byte, 128<<10), 0)
	// It would wait for ever: it is told instead, by the disk.
	if n, err := f.WriteAt([]byte("x"), 1<<20, nil); n != 0 || !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("%d, %v", n, err)
	}
	if n, err := f.WriteAt([]byte("y"), 0, nil); n != 0 || !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("%d, %v", n, err)
	}
	// Another file is not stopped.
	write(t, g, []byte("other"), 0)
	if string(other.content()) != "other" {
		t.Fatal("not written through")
	}
	if n, err := f.WriteThrough([]byte("x"), 5, nil); n != 0 || !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("%d, %v", n, err)
	}
	// A truncation makes room.
	if err := f.Truncate(0, nil, func() error { b.truncate(0); return nil }); err != nil {
		t.Fatal(err)
	}
	write(t, f, []byte("x"), 1<<20)
	if f.Err() != nil || f.StagedBytes() != 1 {
		t.Fatal(f.Err(), f.StagedBytes())
	}
	b.setFail(nil)
}

func TestGivingUp(t *testing.T) {
	s := pool(t, Config{WindowSize: 64 << 10, RetryMin: time.Millisecond, GiveUp: 30 * time.Millisecond, Age: time.Millisecond})
	b := newFake(t)
	b.setFail(noSpace)
	f := s.Open(b)
	write(t, f, []byte("data"), 3)
	ended := make(chan []Lost, 1)
	f.CloseLater(func(l []Lost) { ended <- l })
	l := <-ended
	if len(l) != 1 || l[0].Off != 3 || l[0].Len != 4 || l[0].File != f || !errors.Is(l[0].Err, unix.ENOSPC) {
		t.Fatalf("%v", l)
	}
	if st := s.Stats(); st.Lost != 4 || st.Files != 0 || st.Failing != 0 {
		t.Fatalf("%+v", st)
	}
}

func TestStagerCloseReportsWhatIsLost(t *testing.T) {
	s, err := New(Config{WindowSize: 64 << 10, Age: -1})
	if err != nil {
		t.Fatal(err)
	}
	good, bad := newFake(t), newFake(t)
	bad.setFail(noSpace)
	f, g := s.Open(good), s.Open(bad)
	write(t, f, []byte("good"), 0)
	write(t, g, []byte("bad"), 100000)
	lost, err := s.Close()
	if err != nil || len(lost) != 1 || lost[0].File.Backing() != Backing(bad) || lost[0].Off != 100000 || lost[0].Len != 3 {
		t.Fatalf("%v, %v", lost, err)
	}
	if string(good.content()) != "good" || s.Stats().Touched != 0 {
		t.Fatal("not all is written and freed")
	}
}
