package gds

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tunefs/staging"
)

func TestReadOnlyFiles(t *testing.T) {
	for name, dir := range places(t) {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, "read-only")
			want := random(1<<20 + 777)
			if n, err := unix.Pwrite(create(t, path), want, 0); n != len(want) || err != nil {
				t.Fatal(n, err)
			}
			e, _ := engine(Auto)
			f := open(t, e, reopen(t, path, unix.O_RDONLY))
			if _, err := f.WriteBuffered(want, 0); err != unix.EBADF {
				t.Errorf("wrote, %v", err)
			}
			if f.Align().Offset == 0 {
				if _, err := f.ReadDirect(aligned(4096), 0); err != unix.ENOTSUP {
					t.Error(err)
				}
				t.Skip("no direct I/O")
			}
			if _, err := f.WriteDirect(want[:4096], 0); err != unix.EBADF {
				t.Errorf("wrote, %v", err)
			}
			got := aligned(2 << 20)
			if n, err := f.ReadDirect(got, 0); n != len(want) || err != nil || !bytes.Equal(got[:n], want) {
				t.Errorf("read %d bytes, %v", n, err)
			}
			if n, err := f.ReadDirect(got, 2<<20); n != 0 || err != nil {
				t.Errorf("read %d bytes after the end, %v", n, err)
			}
			rows := e.Counters().ReadRows()
			if len(rows) != 1 || rows[0].Backend != "direct" || rows[0].Bytes != int64(len(want)) || e.Counters().Rows() != nil {
				t.Errorf("%+v, %+v", rows, e.Counters().Rows())
			}
		})
	}
}

// TestWriteOnlyMode writes directly to a file that may not be opened for
// reading again.
func TestWriteOnlyMode(t *testing.T) {
	if unix.Geteuid() == 0 {
		t.Skip("root may open everything")
	}
	path := filepath.Join(places(t)["var-tmp"], "write-only")
	fd := create(t, path)
	if err := unix.Fchmod(fd, 0o200); err != nil {
		t.Fatal(err)
	}
	e, _ := engine(Auto)
	f := open(t, e, fd)
	if f.Align().Offset == 0 {
		t.Skip("no direct I/O")
	}
	if n, err := f.WriteDirect(random(4096), 0); n != 4096 || err != nil {
		t.Error(n, err)
	}
	if name, reason := f.Backend(); name != "direct" {
		t.Error(name, reason)
	}
	if _, err := f.ReadDirect(aligned(4096), 0); err != unix.EBADF {
		t.Error(err)
	}
}

func TestCached(t *testing.T) {
	path := filepath.Join(places(t)["var-tmp"], "cached")
	fd := create(t, path)
	e, _ := engine(Auto)
	f := open(t, e, fd)
	if f.Cached(0, 1<<20) {
		t.Error("an empty file")
	}
	if _, err := f.WriteBuffered(random(1<<20), 0); err != nil {
		t.Fatal(err)
	}
	var st unix.Cachestat_t
	if err := unix.Cachestat(uint(fd), &unix.CachestatRange{}, &st, 0); err != nil {
		t.Skip("cachestat: ", err)
	}
	for _, r := range [][2]int64{{0, 1 << 20}, {4096, 4096}, {512 << 10, 900 << 10}} {
		if !f.Cached(r[0], r[1]) {
			t.Errorf("%d bytes at %d are not", r[1], r[0])
		}
	}
	if err := f.Sync(false); err != nil {
		t.Fatal(err)
	}
	if err := unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
	if f.Cached(0, 1<<20) {
		t.Error("still there")
	}
	if f.Size() != 1<<20 {
		t.Error(f.Size())
	}
}

// TestReadAheadOfARealFile has goroutines write their own parts of a file and
// scan all of it, with the page cache and direct I/O mixed below.
func TestReadAheadOfARealFile(t *testing.T) {
	const parts, part = 3, 128 << 10
	const size = 16 * parts * part
	for name, dir := range places(t) {
		t.Run(name, func(t *testing.T) {
			s, err := staging.New(staging.Config{
				WindowSize: 128 << 10, MinDirect: 16 << 10, Bypass: 32 << 10,
				ReadAhead: 512 << 10, Poison: 0xA5, Age: time.Millisecond,
			})
			if err != nil {
				t.Fatal(err)
			}
			fd := create(t, filepath.Join(dir, "scanned"))
			e, _ := engine(Auto)
			b := open(t, e, fd)
			f := s.Open(b)
			want := random(size) // each part of it is its owner's
			if _, err := f.WriteAt(want, 0, nil); err != nil {
				t.Fatal(err)
			}
			if err := f.Sync(true, nil); err != nil {
				t.Fatal(err)
			}
			_ = unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED)
			worth := b.Align().Offset > 0 && !b.Cached(0, size) // memory is no disk
			var wg sync.WaitGroup
			for g := range parts {
				r := rand.New(rand.NewPCG(1, uint64(g)))
				wg.Go(func() {
					for round := range 4 {
						if err := scan(f, want, g*part, parts*part, part); err != nil {
							t.Errorf("goroutine %d, round %d: %v", g, round, err)
							return
						}
						for range 30 {
							overwrite(t, f, want, r, g*part+r.IntN(16)*parts*part, part)
						}
						_ = unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED)
					}
				})
			}
			wg.Wait()
			if err := scan(f, want, 0, size, size); err != nil {
				t.Error(err)
			}
			t.Logf("%+v; read %v", s.Stats(), e.Counters().ReadRows())
			if l := f.Close(nil); l != nil {
				t.Error(l)
			}
			if st := s.Stats(); worth && st.AheadServed == 0 {
				t.Errorf("nothing was read ahead: %+v", st)
			}
			if _, err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// scan reads the whole file on and checks the size bytes from first on, and
// from every step on after that.
func scan(f *staging.File, want []byte, first, step, size int) error {
	got := make([]byte, 32<<10)
	for off := 0; off < len(want); off += len(got) {
		n, err := f.ReadAt(got, int64(off))
		if err != nil || n != len(got) {
			return fmt.Errorf("read %d bytes at %d, %v", n, off, err)
		}
		if (off+step-first)%step < size && !bytes.Equal(got, want[off:off+n]) {
			return fmt.Errorf("wrong bytes at %d", off)
		}
	}
	return nil
}

// overwrite changes some of the size bytes at off, in one of the ways.
func overwrite(t *testing.T, f *staging.File, want []byte, r *rand.Rand, off, size int) {
	t.Helper()
	n := 1 + r.IntN(size)
	if r.IntN(2) == 0 {
		n = (n + 4095) &^ 4095 // may bypass
	} else {
		off += r.IntN(size - n + 1)
	}
	p := want[off : off+n]
	for i := range p {
		p[i] ^= byte(1 + r.IntN(3))
	}
	write := f.WriteAt
	if r.IntN(8) == 0 {
		write = f.WriteThrough
	}
	if m, err := write(p, int64(off), nil); m != n || err != nil {
		t.Errorf("wrote %d of %d bytes at %d, %v", m, n, off, err)
	}
}
