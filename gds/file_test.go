package gds

import (
	"bytes"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"tunefs/staging"
)

// places are folders on the filesystems to test.
func places(t *testing.T) map[string]string {
	t.Helper()
	p := make(map[string]string)
	for _, parent := range []string{"/var/tmp", "/dev/shm"} {
		dir, err := os.MkdirTemp(parent, "gds")
		if err != nil {
			t.Logf("no %s: %v", parent, err)
			continue
		}
		t.Cleanup(func() {
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
		})
		p[strings.Trim(strings.ReplaceAll(parent, "/", "-"), "-")] = dir
	}
	if len(p) == 0 {
		t.Skip("no folder to write to")
	}
	return p
}

// finish syncs and closes the only file of s, and s.
func finish(t *testing.T, s *staging.Stager, f *staging.File) {
	t.Helper()
	if err := f.Sync(true, nil); err != nil {
		t.Fatal(err)
	}
	if l := f.Close(nil); l != nil {
		t.Fatal(l)
	}
	if lost, err := s.Close(); lost != nil || err != nil {
		t.Fatal(lost, err)
	}
}

func create(t *testing.T, path string) int {
	t.Helper()
	return reopen(t, path, unix.O_RDWR|unix.O_CREAT|unix.O_TRUNC)
}

// reopen opens a file until the test ends.
func reopen(t *testing.T, path string, flags int) int {
	t.Helper()
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Close(fd); err != nil {
			t.Error(err)
		}
	})
	return fd
}

func engine(choice Choice) (*Engine, *bytes.Buffer) {
	var log bytes.Buffer
	return New(choice, slog.New(slog.NewTextHandler(&log, nil))), &log
}

func open(t *testing.T, e *Engine, fd int) *File {
	t.Helper()
	f, err := e.Open(fd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// aligned is n bytes at a multiple of 4096.
func aligned(n int) []byte {
	mem := make([]byte, n+4096)
	// Safe because the address is only looked at, and heap objects don't move.
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(mem))) & 4095
	return mem[skip:][:n:n]
}

func random(n int) []byte {
	r := rand.NewChaCha8([32]byte{1})
	p := aligned(n)
	_, _ = r.Read(p) // never fails
	return p
}

// TestStagedFilesAreEqual writes files through staging, in pieces that come out
// of order, over every choice on every filesystem.
func TestStagedFilesAreEqual(t *testing.T) {
	want := random(9<<20 + 777)
	for name, dir := range places(t) {
		for _, choice := range []Choice{Auto, Direct, Buffered} {
			t.Run(name+"/"+choice.String(), func(t *testing.T) {
				s, err := staging.New(staging.Config{WindowSize: 4 << 20, MaxPiece: 1 << 20, MinDirect: 256 << 10})
				if err != nil {
					t.Fatal(err)
				}
				path := filepath.Join(dir, choice.String())
				e, log := engine(choice)
				b, err := e.Open(create(t, path))
				if err != nil {
					if choice != Direct {
						t.Fatal(err)
					}
					t.Skip("this filesystem has no direct writes: ", err)
				}
				f := s.Open(b)
				shuffled(t, f, want)
				finish(t, s, f)
				way, reason := b.Backend()
				t.Logf("%s %q %+v %v; %s", way, reason, b.Align(), e.Counters().Rows(), log)
				if err := b.Close(); err != nil {
					t.Fatal(err)
				}
				got, err := os.ReadFile(path)
				if err != nil || !bytes.Equal(got, want) {
					t.Fatalf("the file differs, %v", err)
				}
				wentThatWay(t, e, way, int64(len(want)))
			})
		}
	}
}

func shuffled(t *testing.T, f *staging.File, data []byte) {
	t.Helper()
	var cuts []int
	for at := 0; at < len(data); at += 1 + rand.IntN(100000) {
		cuts = append(cuts, at)
	}
	cuts = append(cuts, len(data))
	const group = 8 // the kernel has so many requests under way
	for first := 0; first < len(cuts)-1; first += group {
		for _, i := range rand.Perm(min(group, len(cuts)-1-first)) {
			i += first
			if _, err := f.WriteAt(data[cuts[i]:cuts[i+1]], int64(cuts[i]), nil); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// wentThatWay wants nearly all of the size bytes to have gone way.
func wentThatWay(t *testing.T, e *Engine, way string, size int64) {
	t.Helper()
	var that, all int64
	for _, r := range e.Counters().Rows() {
		all += r.Bytes
		if r.Backend == way {
			that += r.Bytes
		}
	}
	if all < size || that < size*9/10 {
		t.Errorf("%d of %d bytes went %s", that, all, way)
	}
}

// TestEndsAndInside mixes both ways in one file, page beside page, as staging
// does, and reads through both.
func TestEndsAndInside(t *testing.T) {
	for name, dir := range places(t) {
		t.Run(name, func(t *testing.T) {
			fd := create(t, filepath.Join(dir, "mixed"))
			e, _ := engine(Auto)
			f := open(t, e, fd)
			want := random(1 << 20)
			for round := range 8 {
				for at := 0; at < len(want); at += 64 << 10 {
					part := want[at : at+64<<10]
					if _, err := f.WriteBuffered(part[:4096-round], int64(at)); err != nil {
						t.Fatal(err)
					}
					if _, err := f.WriteBuffered(part[4096-round:4096], int64(at+4096-round)); err != nil {
						t.Fatal(err)
					}
					if n, err := f.WriteDirect(part[4096:], int64(at+4096)); n != 60<<10 || err != nil {
						t.Fatal(n, err)
					}
				}
				got := make([]byte, len(want)+5)
				if n, err := f.ReadAt(got, 0); n != len(want) || err != nil || !bytes.Equal(got[:n], want) {
					t.Fatalf("round %d: read %d, %v", round, n, err)
				}
				slices.Reverse(want)
			}
			if err := f.Sync(false); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestRefusedExtentsGoBuffered(t *testing.T) {
	path := filepath.Join(places(t)["var-tmp"], "odd")
	fd := create(t, path)
	e, log := engine(Auto)
	f := open(t, e, fd)
	if f.Align().Offset == 0 {
		t.Skip("no direct writes")
	}
	p := random(10001) // not what the disk takes
	for i := range 2 {
		if n, err := f.WriteDirect(p[1:], int64(1+10000*i)); n != 10000 || err != nil {
			t.Fatal(n, err)
		}
	}
	name, reason := f.Backend()
	if name != "buffered" || reason == "" || e.Counters().Fallbacks() != 1 || strings.Count(log.String(), "\n") != 1 {
		t.Fatalf("%s %q, %d fallbacks, log %q", name, reason, e.Counters().Fallbacks(), log)
	}
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got[1:10001], p[1:]) || !bytes.Equal(got[10001:], p[1:]) {
		t.Fatal("wrong content", err)
	}
}

// TestWhereDirectIsNotPossible opens a file that direct I/O knows nothing of.
func TestWhereDirectIsNotPossible(t *testing.T) {
	e, _ := engine(Direct)
	fd, err := unix.Open("/proc/self/comm", unix.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, err := e.Open(fd); err == nil {
		t.Fatal("direct writes to procfs")
	}
	e, log := engine(Auto)
	for range 2 {
		f := open(t, e, fd)
		if f.Align() != (staging.Alignment{}) {
			t.Fatal(f.Align())
		}
		if name, reason := f.Backend(); name != "buffered" || reason == "" {
			t.Fatal(name, reason)
		}
	}
	if strings.Count(log.String(), "\n") != 1 {
		t.Fatalf("log: %s", log)
	}
}

func TestErrorsAreErrnos(t *testing.T) {
	fd, err := unix.Open("/dev/full", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skip(err)
	}
	defer unix.Close(fd)
	e, _ := engine(Buffered)
	f := open(t, e, fd)
	if n, err := f.WriteBuffered([]byte("x"), 0); n != 0 || !errors.Is(err, unix.ENOSPC) {
		t.Fatal(n, err)
	}
	if n, err := f.WriteDirect(aligned(4096), 0); n != 0 || !errors.Is(err, unix.ENOSPC) {
		t.Fatal(n, err)
	}
	if rows := e.Counters().Rows(); rows != nil {
		t.Fatal(rows)
	}
}

func TestProbe(t *testing.T) {
	for name, dir := range places(t) {
		fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %v", name, Probe(fd))
		if err := unix.Close(fd); err != nil {
			t.Fatal(err)
		}
	}
}

func TestChoices(t *testing.T) {
	for _, c := range []Choice{Auto, Direct, Buffered} {
		if got, err := ParseChoice(c.String()); got != c || err != nil {
			t.Errorf("%v: %v, %v", c, got, err)
		}
	}
	if _, err := ParseChoice("fast"); err == nil {
		t.Error("took a word that is none")
	}
}

func TestClassesSweep(t *testing.T) {
	for n := 1; n < 300<<20; n += 1 + n/50 {
		class := 0
		for limit := firstClass; n >= limit && class < classes-1; limit *= 4 {
			class++
		}
		if got := classOf(n); got != class {
			t.Fatalf("%d bytes in class %d, want %d", n, got, class)
		}
	}
}
