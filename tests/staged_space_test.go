package tests

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// newImage is a folder on a small filesystem of its own, of so many MiB, that is u's, or ours if u is nil. Make it
// before what mounts it.
func newImage(t *testing.T, u *user, mib int64) string {
	t.Helper()
	requireRoot(t)
	requirePackages(t, "e2fsprogs", "mount")
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skipf("no loop devices: %v", err)
	}
	dir := scratch(t)
	image, point := filepath.Join(dir, "image"), filepath.Join(dir, "source")
	f, err := os.Create(image)
	must(t, err)
	must(t, errors.Join(f.Truncate(mib<<20), f.Close(), os.Mkdir(point, 0o755)))
	run(t, exec.Command("mkfs.ext4", "-q", "-m", "0", "-E", "nodiscard,root_owner="+ownerOf(u), image))
	run(t, exec.Command("mount", "-o", "loop", image, point))
	t.Cleanup(func() {
		if err := unix.Unmount(point, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return point
}

func ownerOf(u *user) string {
	if u == nil {
		return "0:0"
	}
	return fmt.Sprintf("%d:%d", u.UID, u.GID)
}

// eachSmallDisk runs f with a SOURCE on an image of 64 MiB of which a file, filler, leaves 16.
func eachSmallDisk(t *testing.T, f func(t *testing.T, s *stagedSite, filler string)) {
	t.Helper()
	eachUser(t, func(t *testing.T, u *user) {
		source := newImage(t, u, 64)
		s := newStagedSite(t, u)
		s.src = source
		filler := s.backing("filler")
		var sfs unix.Statfs_t
		must(t, unix.Statfs(source, &sfs))
		file, err := os.Create(filler)
		must(t, err)
		must(t, unix.Fallocate(int(file.Fd()), 0, 0, int64(sfs.Bavail)*sfs.Bsize-16<<20))
		must(t, file.Close())
		f(t, s, filler)
	})
}

// wantErrno fails the test unless err is want.
func wantErrno(t *testing.T, what string, err error, want unix.Errno) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s gives %v, want %v", what, err, want)
	}
}

const tooMuch = 40 << 20 // bytes; more than a small disk has

// TestStagedDiskFull: when SOURCE is full, fsync and close say so as long as it is; nothing is lost meanwhile, and
// with the space given all of it is written.
func TestStagedDiskFull(t *testing.T) {
	eachSmallDisk(t, func(t *testing.T, s *stagedSite, filler string) {
		s.start("--stage-size=8M", "--stage-memory=128M")
		data := stagedBytes(1, tooMuch+1<<20)
		fd := s.open(s.path("file"), unix.O_RDWR|unix.O_CREAT)
		must(t, writeFD(fd, data[:tooMuch], 0))
		wantErrno(t, "fsync", unix.Fsync(fd), unix.ENOSPC)
		wantErrno(t, "fdatasync", unix.Fdatasync(fd), unix.ENOSPC)
		wantMounted(t, s, "file", data[:tooMuch])
		wantErrno(t, "close", unix.Close(fd), unix.ENOSPC)

		fd = s.open(s.path("file"), unix.O_RDWR)
		must(t, writeFD(fd, data[tooMuch:], tooMuch))
		wantErrno(t, "another fsync", unix.Fsync(fd), unix.ENOSPC)
		var st unix.Stat_t
		if err := s.do(func() error { return unix.Fstat(fd, &st) }); err != nil || st.Size != int64(len(data)) {
			t.Errorf("it has %d bytes, %v; want %d", st.Size, err, len(data))
		}
		wantMounted(t, s, "file", data)

		must(t, os.Remove(filler))
		if err := errors.Join(unix.Fsync(fd), unix.Close(fd)); err != nil {
			t.Errorf("with space: %v", err)
		}
		wantFile(t, s.backing("file"), data)
		wantMounted(t, s, "file", data)
		s.unmountClean()
	})
}

// wantMounted is wantFile of a file on the mount.
func wantMounted(t *testing.T, s *stagedSite, name string, data []byte) {
	t.Helper()
	must(t, s.do(func() error {
		fd, err := unix.Open(s.path(name), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		got := make([]byte, len(data)+1)
		n := 0
		for n < len(got) {
			m, err := unix.Pread(fd, got[n:], int64(n))
			if err != nil {
				return err
			}
			if m == 0 {
				break
			}
			n += m
		}
		if where := differ(got[:n], data); where != "" {
			t.Errorf("%s: %s", s.path(name), where)
		}
		return nil
	}))
}

var lostLine = regexp.MustCompile(`level=ERROR msg="staged data is lost" path=(\S+) offset=(\d+) bytes=(\d+) err="[^"]*no space left on device"`)

// TestStagedLost: what cannot be written till the end of the mount is in the log, with its place, and the daemon's
// exit status says so. Everything else is in SOURCE.
func TestStagedLost(t *testing.T) {
	for _, event := range []string{"close", "idle"} {
		t.Run(event, func(t *testing.T) {
			eachSmallDisk(t, func(t *testing.T, s *stagedSite, _ string) {
				s.start("--flush-on="+event, "--stage-size=8M", "--stage-memory=128M")
				data := stagedBytes(2, tooMuch)
				fd := s.open(s.path("file"), unix.O_RDWR|unix.O_CREAT)
				must(t, writeFD(fd, data, 0))
				if err := unix.Close(fd); event == "close" {
					wantErrno(t, "close", err, unix.ENOSPC)
				}
				if err := s.unmount(); err == nil {
					t.Error("the daemon says that all is well")
				}
				wantSaved(t, s, data)
			})
		})
	}
}

// wantSaved wants in SOURCE all of file but what the log says is lost.
func wantSaved(t *testing.T, s *stagedSite, data []byte) {
	t.Helper()
	got, err := os.ReadFile(s.backing("file"))
	must(t, err)
	got = append(got, make([]byte, max(len(data)-len(got), 0))...)
	lost := 0
	for _, m := range lostLine.FindAllStringSubmatch(s.text(), -1) {
		off, err1 := strconv.Atoi(m[2])
		n, err2 := strconv.Atoi(m[3])
		must(t, errors.Join(err1, err2))
		if filepath.Base(m[1]) != "file" || off+n > len(data) {
			t.Errorf("the log has: %s", m[0])
			continue
		}
		copy(got[off:], data[off:off+n])
		lost += n
	}
	if lost == 0 || lost == len(data) {
		t.Errorf("%d of %d bytes are said to be lost", lost, len(data))
	}
	if where := differ(got, data); where != "" {
		t.Errorf("what the log does not have, SOURCE has not either: %s", where)
	}
}

// TestStagedLimit has the daemon run under a limit on the size of files, as a shell may give it one.
func TestStagedLimit(t *testing.T) {
	eachStager(t, func(t *testing.T, s *stagedSite) {
		s.startWith("sh", "-c", `ulimit -f 20480 && exec "$0" mount -f --io=staged "$@"`, tunefsBinary(t))
		data := stagedBytes(3, tooMuch)
		fd := s.open(s.path("file"), unix.O_RDWR|unix.O_CREAT)
		must(t, writeFD(fd, data, 0))
		wantErrno(t, "fsync", unix.Fsync(fd), unix.EFBIG)
		wantMounted(t, s, "file", data)
		s.must(func() error { return unix.Ftruncate(fd, 10<<20) })
		if err := errors.Join(unix.Fsync(fd), unix.Close(fd)); err != nil {
			t.Errorf("once it is small enough: %v", err)
		}
		wantFile(t, s.backing("file"), data[:10<<20])
		s.unmountClean()
	})
}

// TestStagedDiskFullBeyondMemory: more than memory holds cannot be kept for a full disk, but the program is told.
func TestStagedDiskFullBeyondMemory(t *testing.T) {
	eachSmallDisk(t, func(t *testing.T, s *stagedSite, filler string) {
		s.start("--stage-size=1M", "--stage-memory=2M")
		data := stagedBytes(4, tooMuch)
		fd := s.open(s.path("file"), unix.O_RDWR|unix.O_CREAT)
		must(t, writeFD(fd, data, 0))
		wantErrno(t, "fsync", unix.Fsync(fd), unix.ENOSPC)
		must(t, os.Remove(filler))
		must(t, writeFD(fd, data, 0))
		if err := errors.Join(unix.Fsync(fd), unix.Close(fd)); err != nil {
			t.Errorf("written again, with space: %v", err)
		}
		wantFile(t, s.backing("file"), data)
		must(t, unmountOnce(s.mnt))
		_ = s.awaitEnd(time.Minute) // it may say that it has lost something
	})
}
