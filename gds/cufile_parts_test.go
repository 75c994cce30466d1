//go:build cgo

package gds

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"tunefs/staging"
)

// What they do in processes of their own.

// opened opens cuFile, and closes it at the end of the test.
func opened(t *testing.T) (*CuFile, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	c, err := OpenCuFile(CuFileOptions{
		Library: os.Getenv(envLibrary),
		Log:     slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(c.home.dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", c.home.dir, err)
		}
	})
	t.Logf("%+v", c.Info())
	return c, &log
}

// file makes a file in the part's folder, and opens it with cuFile.
func (c *CuFile) file(t *testing.T, name string) (*cufile, string) {
	t.Helper()
	path := filepath.Join(os.Getenv(envFolder), name)
	f, err := openCuFile(c, create(t, path))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(f.close(), os.Remove(path)); err != nil {
			t.Error(err)
		}
	})
	return f, path
}

// pages is memory outside the Go heap.
func pages(t *testing.T, n int) []byte {
	t.Helper()
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(mem); err != nil {
			t.Error(err)
		}
	})
	copy(mem, random(n))
	return mem
}

// partMoves writes and reads what is larger than a piece, from several goroutines.
func partMoves(t *testing.T) {
	c, log := opened(t)
	if i := c.Info(); i.Version != "1.9" || i.Module != "" || i.MaxDirect != 16<<20 || i.MaxBatch != 128 {
		t.Errorf("%+v", i)
	}
	f, path := c.file(t, "moves")
	want := random(40 << 20)
	var wg sync.WaitGroup
	const part = 20 << 20 // larger than a piece, and no multiple of one
	for at := 0; at < len(want); at += part {
		wg.Go(func() {
			if n, err := f.write(want[at:at+part], int64(at)); n != part || err != nil {
				t.Error(n, err)
			}
		})
	}
	wg.Wait()
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the file differs, %v", err)
	}
	got := aligned(len(want) + 8192)
	if n, err := f.read(got, 0); n != len(want) || err != nil || !bytes.Equal(got[:n], want) {
		t.Errorf("read %d bytes, %v", n, err)
	}
	if n, err := f.read(got, int64(len(want))); n != 0 || err != nil {
		t.Errorf("read %d bytes after the end, %v", n, err)
	}
	if c.Overruled() != 0 || log.Len() > 0 {
		t.Errorf("%d requests were the kernel's: %s", c.Overruled(), log)
	}
	if _, err := OpenCuFile(CuFileOptions{}); err == nil {
		t.Error("opened a second time")
	}
	if err := c.Close(); !errors.Is(err, unix.EBUSY) {
		t.Errorf("closed under a file: %v", err)
	}
}

// partOpens opens files one after the other, and pins and unpins memory for each. The library itself refuses what
// is registered still, and both descriptors and addresses come back.
func partOpens(t *testing.T) {
	c, _ := opened(t)
	mem := pages(t, 64<<10)
	before, residentBefore := descriptors(t), int64(0)
	rounds, err := strconv.Atoi(os.Getenv(envRounds))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(os.Getenv(envFolder), "again")
	for i := range rounds {
		if i == 100 { // whatever is made once is there now
			residentBefore = resident(t)
		}
		fd, err := unix.Open(path, unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		f, err := openCuFile(c, fd)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Pin(mem); err != nil {
			t.Fatal(err)
		}
		if n, err := f.write(mem, 0); n != len(mem) || err != nil {
			t.Fatal(n, err)
		}
		if err := errors.Join(c.Unpin(mem), f.close(), unix.Close(fd)); err != nil {
			t.Fatal(err)
		}
	}
	if files, memory := c.Registered(); files != 0 || memory != 0 || c.Overruled() != 0 {
		t.Errorf("%d files and %d pieces of memory are registered, %d requests were the kernel's", files, memory, c.Overruled())
	}
	// Some are the library's own, from its first file on.
	if after := descriptors(t); after > before+16 {
		t.Errorf("%d descriptors, %d before", after, before)
	}
	grown := resident(t) - residentBefore
	t.Logf("%d files, %d KiB more", rounds, grown>>10)
	if grown > 8<<20 {
		t.Error("it leaks memory")
	}
}

// resident is how much memory the process has, in bytes.
func resident(t *testing.T) int64 {
	t.Helper()
	var all, pages int64
	text, err := os.ReadFile("/proc/self/statm")
	if err == nil {
		_, err = fmt.Sscan(string(text), &all, &pages)
	}
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// partFull wants the errno of the kernel, and as much written as fits.
func partFull(t *testing.T) {
	if err := os.Setenv(envFolder, os.Getenv(envFolder)+"/mnt"); err != nil {
		t.Fatal(err)
	}
	c, log := opened(t)
	f, path := c.file(t, "full")
	p := random(32 << 20)
	n := 0
	var err error
	for err == nil {
		var m int
		m, err = f.write(p[n:], int64(n))
		n += m
	}
	if !errors.Is(err, unix.ENOSPC) || n == 0 {
		t.Errorf("wrote %d bytes, then %v", n, err)
	}
	if got, err := os.ReadFile(path); err != nil || len(got) < n || !bytes.Equal(got[:n], p[:n]) {
		t.Errorf("%d bytes in the file, %v", len(got), err)
	}
	t.Logf("%d bytes fit; log: %s", n, log)
}

// partPins wants pinned memory to be found by every address in it.
func partPins(t *testing.T) {
	c, log := opened(t)
	f, path := c.file(t, "pins")
	mem := pages(t, 8<<20)
	low, high := mem[:4<<20], mem[4<<20:]
	for _, m := range [][]byte{high, low} {
		if err := c.Pin(m); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Pin(low); !errors.Is(err, unix.EEXIST) {
		t.Errorf("pinned twice: %v", err)
	}
	const step = 1 << 20
	for at := 0; at < len(mem); at += step {
		if n, err := f.write(mem[at:at+step], int64(at)); n != step || err != nil {
			t.Error(n, err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, mem) {
		t.Errorf("the file differs, %v", err)
	}
	if _, memory := c.Registered(); memory != 2 {
		t.Errorf("%d pieces are pinned", memory)
	}
	if err := c.Unpin(low); err != nil {
		t.Error(err)
	}
	if err := c.Unpin(low); err == nil {
		t.Error("unpinned twice")
	}
	if c.Overruled() != 0 {
		t.Errorf("%d requests were the kernel's: %s", c.Overruled(), log)
	}
	// The other one is for Close.
}

// partStaging has staging flush through cuFile.
func partStaging(t *testing.T) {
	c, _ := opened(t)
	s, err := staging.New(staging.Config{WindowSize: 4 << 20, MaxPiece: 1 << 20, MinDirect: 256 << 10})
	if err != nil {
		t.Fatal(err)
	}
	want := random(9<<20 + 777)
	path := filepath.Join(os.Getenv(envFolder), "staged")
	e, _ := engine(Auto)
	b, err := e.Open(create(t, path))
	if err != nil {
		t.Fatal(err)
	}
	b.backend = sync.OnceValues(func() (backend, error) {
		b.opened.Store(true)
		f, err := openCuFile(c, b.fd)
		if err != nil {
			t.Error(err)
			return nil, err
		}
		return f, nil
	})
	f := s.Open(b)
	shuffled(t, f, want)
	finish(t, s, f)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the file differs, %v", err)
	}
	wentThatWay(t, e, "cufile", int64(len(want)))
}

// partUnopened wants cuFile not to open, for the right reason.
func partUnopened(t *testing.T) {
	before := os.Getenv(envConfig)
	c, err := OpenCuFile(CuFileOptions{Library: os.Getenv(envLibrary)})
	if err == nil {
		t.Fatalf("opened: %+v", c.Info())
	}
	wantSaid(t, err)
	if after := os.Getenv(envConfig); after != before {
		t.Errorf("%s is %q now", envConfig, after)
	}
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "tunefs-cufile-*")); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}

// partRefused wants a file not to be taken, for the right reason, and nothing to be left of it.
func partRefused(t *testing.T) {
	c, _ := opened(t)
	fd := create(t, filepath.Join(os.Getenv(envFolder), "tunefs-cufile-refused"))
	defer os.Remove(filepath.Join(os.Getenv(envFolder), "tunefs-cufile-refused"))
	before := descriptors(t)
	f, err := openCuFile(c, fd)
	if err == nil {
		t.Error("it was taken", f.close())
	}
	wantSaid(t, err)
	if files, _ := c.Registered(); files != 0 || descriptors(t) != before {
		t.Errorf("%d files, %d descriptors, %d before", files, descriptors(t), before)
	}
}

// partNameless wants a file that was unlinked to be refused, as it is now, and one that is unlinked later to go on.
func partNameless(t *testing.T) {
	c, _ := opened(t)
	path := filepath.Join(os.Getenv(envFolder), "nameless")
	fd := create(t, path)
	f, err := openCuFile(c, fd)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if n, err := f.write(random(1<<20), 0); n != 1<<20 || err != nil {
		t.Error(n, err)
	}
	if err := f.close(); err != nil {
		t.Error(err)
	}
	if _, err = openCuFile(c, fd); !errors.Is(err, unix.EMFILE) || !strings.Contains(err.Error(), "by its name") {
		t.Error(err)
	}
	if c.Overruled() != 0 {
		t.Error("the kernel had to write")
	}
}

// partElsewhere mounts another file over a file that is open, so that cuFile opens that one too, and wants only the
// right one to be written.
func partElsewhere(t *testing.T) {
	c, _ := opened(t)
	path := filepath.Join(os.Getenv(envFolder), "hidden")
	fd := create(t, path)
	other := filepath.Join(os.Getenv(envFolder), "other")
	kept := bytes.Repeat([]byte("other"), 1<<18)
	if err := errors.Join(os.WriteFile(other, kept, 0o600), unix.Mount(other, path, "", unix.MS_BIND, "")); err != nil {
		t.Fatal(err)
	}
	f, err := openCuFile(c, fd)
	if err != nil {
		t.Fatal(err)
	}
	want := random(1 << 20)
	for at := int64(0); at < int64(len(want)); at += f.align().Offset {
		part := want[at : at+f.align().Offset]
		if n, err := f.write(part, at); n != len(part) || err != nil {
			t.Fatal(n, err)
		}
	}
	got := make([]byte, len(want))
	if n, err := unix.Pread(fd, got, 0); n != len(want) || err != nil || !bytes.Equal(got, want) {
		t.Errorf("read %d bytes, %v", n, err)
	}
	if got, err := os.ReadFile(other); err != nil || !bytes.Equal(got, kept) {
		t.Errorf("the other file was written, %v", err)
	}
	if err := f.close(); err != nil {
		t.Error(err)
	}
}

// partEnvironment provokes a line in the log.
func partEnvironment(t *testing.T) {
	c, _ := opened(t)
	if _, err := c.calls.register(-1); codeOf(err) != 5022 {
		t.Error(err)
	}
	if os.Getenv(envLog) != "" {
		t.Error("the environment has stayed changed")
	}
}

func wantSaid(t *testing.T, err error) {
	t.Helper()
	t.Log(err)
	for part := range strings.SplitSeq(os.Getenv(envWant), "|") {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("it does not say %q", part)
		}
	}
}
