package gds

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// fakeCuFile answers what the real library cannot be made to answer.
type fakeCuFile struct {
	cufileCalls // the functions that no test calls
	moves       func(n int, off, skip int64) (int, error)
	failUnpin   error
}

func (f *fakeCuFile) write(_ uintptr, _ unsafe.Pointer, n int, off, skip int64) (int, error) {
	return f.moves(n, off, skip)
}
func (f *fakeCuFile) pin(unsafe.Pointer, int) error { return nil }
func (f *fakeCuFile) unpin(unsafe.Pointer) error    { return f.failUnpin }

func fakeFile(t *testing.T, moves func(n int, off, skip int64) (int, error)) (*cufile, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	fd := create(t, filepath.Join(t.TempDir(), "file"))
	c := &CuFile{calls: &fakeCuFile{moves: moves}, maxPiece: 64 << 10, log: onceLog{log: slog.New(slog.NewTextHandler(&log, nil))}}
	return &cufile{lib: c, direct: &direct{fd: fd}}, &log
}

func TestCuFileGoesOnAfterShortCounts(t *testing.T) {
	var offsets []int64
	f, _ := fakeFile(t, func(n int, off, _ int64) (int, error) {
		offsets = append(offsets, off)
		return min(n, 12<<10), nil
	})
	if n, err := f.write(aligned(100<<10), 4096); n != 100<<10 || err != nil {
		t.Error(n, err)
	}
	for i, off := range offsets {
		if off != 4096+int64(i)*12<<10 {
			t.Errorf("the offsets were %d", offsets)
			break
		}
	}
}

// TestCuFileStopsBesideTheGrid leaves to others what would not be aligned, and does not try for ever.
func TestCuFileStopsBesideTheGrid(t *testing.T) {
	for _, short := range []int{0, 1, 512, 8191} {
		calls := 0
		f, _ := fakeFile(t, func(int, int64, int64) (int, error) { calls++; return short, nil })
		if n, err := f.write(aligned(100<<10), 0); n != short || err != nil || calls != 1 {
			t.Errorf("%d: wrote %d in %d calls, %v", short, n, calls, err)
		}
	}
}

// TestCuFileFailures has the kernel do what cuFile fails at.
func TestCuFileFailures(t *testing.T) {
	want := random(100 << 10)
	f, log := fakeFile(t, func(n int, off, _ int64) (int, error) {
		if off == 0 {
			return n, nil
		}
		return 0, &CuFileError{Op: "cuFileWrite", Code: codeInternal}
	})
	for range 3 {
		if n, err := f.write(want, 0); n != len(want) || err != nil {
			t.Error(n, err)
		}
	}
	if f.lib.Overruled() != 3 || strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), "5030") {
		t.Errorf("%d requests; log %q", f.lib.Overruled(), log)
	}
	got := make([]byte, 36<<10)
	if n, err := unix.Pread(f.direct.fd, got, 64<<10); n != len(got) || err != nil || !bytes.Equal(got, want[64<<10:]) {
		t.Errorf("the kernel wrote something else, %d %v", n, err)
	}
}

// TestCuFileKernelHasTheLastWord wants the kernel's errno, and neither log nor count.
func TestCuFileKernelHasTheLastWord(t *testing.T) {
	f, log := fakeFile(t, func(int, int64, int64) (int, error) { return ioResult("cuFileWrite", -1, int(unix.EIO)) })
	f.direct.fd = reopen(t, "/dev/full", unix.O_WRONLY)
	if n, err := f.write(aligned(4096), 0); n != 0 || err != unix.ENOSPC {
		t.Error(n, err)
	}
	if f.lib.Overruled() != 0 || log.Len() > 0 {
		t.Errorf("%d; %s", f.lib.Overruled(), log)
	}
	f.lib.calls.(*fakeCuFile).moves = func(int, int64, int64) (int, error) { return ioResult("", -1, int(unix.EINTR)) }
	if _, err := f.write(aligned(4096), 0); err != unix.EINTR {
		t.Error("an interruption is to be retried: ", err)
	}
}

func TestCuFileResults(t *testing.T) {
	for _, r := range []struct {
		n, errno int
		want     error
		text     string
	}{
		{-1, int(unix.ENOSPC), unix.ENOSPC, "no space"},
		{-1, 5022, unix.EINVAL, "5022 (CU_FILE_INVALID_VALUE)"},
		{-1, 5039, unix.EIO, "5039"},
		{-1, 5999, unix.EIO, "5999"},
		{-1, 0, unix.EIO, "without a reason"},
		{-int(unix.EDQUOT), 0, unix.EDQUOT, "quota"},
		{-5027, 3, unix.EBADF, "5027 (CU_FILE_HANDLE_NOT_REGISTERED)"},
	} {
		n, err := ioResult("cuFileRead", r.n, r.errno)
		if n != 0 || !errors.Is(err, r.want) || !strings.Contains(err.Error(), r.text) || !strings.HasPrefix(err.Error(), "cuFileRead: ") {
			t.Errorf("%d, errno %d: %d, %v", r.n, r.errno, n, err)
		}
	}
	if n, err := ioResult("", 17, 5); n != 17 || err != nil {
		t.Error(n, err)
	}
	if err := statusError("cuFileDriverOpen", 0, 0); err != nil {
		t.Error(err)
	}
}

func TestCuFileVersions(t *testing.T) {
	for v, want := range map[int]string{0: "before 1.8", 1080: "1.8", 1090: "1.9", 1091: "1.9.1", 1151: "1.15.1", 2000: "2.0"} {
		if got := versionText(v); got != want {
			t.Errorf("%d is %q, want %q", v, got, want)
		}
	}
}

// TestPinnedPlaces sweeps every range near the ends of pinned pieces.
func TestPinnedPlaces(t *testing.T) {
	const piece, gap = 16, 8
	c := &CuFile{calls: &fakeCuFile{}}
	mem := pinnable(t, 3*(piece+gap))
	for _, at := range []int{piece + gap, 2 * (piece + gap), 0} {
		if err := c.Pin(mem[at : at+piece]); err != nil {
			t.Fatal(err)
		}
	}
	for lo := range mem {
		for hi := lo + 1; hi <= len(mem); hi++ {
			base, skip := c.pinned.place(mem[lo:hi])
			want, wantSkip := lo, 0
			if first := lo / (piece + gap) * (piece + gap); hi <= first+piece {
				want, wantSkip = first, lo-first
			}
			if base != unsafe.Pointer(&mem[want]) || skip != int64(wantSkip) {
				t.Fatalf("[%d, %d) is %d after %p, want %d after %p", lo, hi, skip, base, wantSkip, &mem[want])
			}
		}
	}
	if _, n := c.Registered(); n != 3 {
		t.Error(n)
	}
	c.calls.(*fakeCuFile).failUnpin = unix.EIO
	if err := c.Unpin(mem[:piece]); err != unix.EIO {
		t.Error(err)
	}
	if _, n := c.Registered(); n != 3 {
		t.Error("forgot what is still pinned")
	}
}

func pinnable(t *testing.T, n int) []byte {
	t.Helper()
	mem, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(mem); err != nil {
			t.Error(err)
		}
	})
	return mem[:n]
}

func TestCuFileLogFolderInConfiguration(t *testing.T) {
	for text, want := range map[string]bool{
		`{"logging": {"dir": "/var/log"}}`:               true,
		"{\"logging\": {\n  \"dir\" : \"/var/log\"}}":    true,
		"{\"logging\": {\n  // \"dir\": \"/home/x\"\n}}": false,
		`{"logging": {"level": "ERROR"}}`:                false,
		`{"rdma_dev": "/a", "dir": "/b"}`:                true,
	} {
		if got := namesLogFolder.MatchString(text); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// TestCuFileWithoutLibrary loads nothing, with cgo and without.
func TestCuFileWithoutLibrary(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for range 2 {
		if _, err := OpenCuFile(CuFileOptions{Library: "/nowhere/libcufile.so.0"}); err == nil {
			t.Error("opened")
		} else {
			t.Log(err)
		}
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}
