package tests

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// faultyDisk is a SOURCE that fails, or is slow, when a test wants it to.
type faultyDisk struct {
	t      *testing.T
	faults string // path of what goes wrong
	under  string // the folder that it shows
}

// newFaultyDisk makes a site of root's with such a SOURCE.
func newFaultyDisk(t *testing.T) (*faultyDisk, *stagedSite) {
	t.Helper()
	requireRoot(t)
	dir := scratch(t)
	d := &faultyDisk{t: t, faults: filepath.Join(dir, "faults"), under: filepath.Join(dir, "under")}
	point, program := filepath.Join(dir, "source"), filepath.Join(dir, "faultyfs")
	makeDir(t, d.under, nil)
	makeDir(t, point, nil)
	d.set("")
	must(t, quiet(exec.Command("go", "build", "-o", program, "tunefs/tests/faultyfs")))
	cmd := exec.Command(program, d.faults, d.under, point)
	cmd.Stderr = os.Stderr
	must(t, cmd.Start())
	t.Cleanup(func() {
		if err := unix.Unmount(point, unix.MNT_DETACH); err != nil {
			_ = cmd.Process.Kill()
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	awaitEntry(t, point)
	s := newStagedSite(t, nil)
	s.src = point
	return d, s
}

// set says what goes wrong from now on; "" for nothing.
func (d *faultyDisk) set(faults string) {
	d.t.Helper()
	fresh := d.faults + ".new" // so that it is read whole
	must(d.t, os.WriteFile(fresh, []byte(faults), 0o644))
	must(d.t, os.Rename(fresh, d.faults))
}

// TestStagedWriteErrors: a disk that fails is reported for as long as it does, nothing is lost meanwhile, and all is
// written when it works again.
func TestStagedWriteErrors(t *testing.T) {
	for _, event := range []string{"close", "idle"} {
		t.Run(event, func(t *testing.T) {
			d, s := newFaultyDisk(t)
			s.start("--flush-on="+event, "--stage-size=1M", "--flush-after=200ms")
			data := stagedBytes(5, 9<<20+100)
			fd := s.open(s.path("file"), unix.O_RDWR|unix.O_CREAT)
			must(t, errors.Join(writeFD(fd, data[:1<<20], 0), unix.Fsync(fd)))
			d.set("write EIO\n")
			must(t, writeFD(fd, data[1<<20:], 1<<20))
			for range 2 {
				wantErrno(t, "fsync", unix.Fsync(fd), unix.EIO)
			}
			wantMounted(t, s, "file", data)
			wantErrno(t, "close", unix.Close(fd), unix.EIO)
			must(t, os.Rename(s.path("file"), s.path("renamed")))
			wantMounted(t, s, "renamed", data)
			time.Sleep(time.Second) // it is tried again meanwhile
			d.set("")
			fd = s.open(s.path("renamed"), unix.O_RDWR)
			if err := errors.Join(unix.Fsync(fd), unix.Close(fd)); err != nil {
				t.Errorf("once the disk works again: %v", err)
			}
			wantFile(t, filepath.Join(d.under, "renamed"), data)
			s.unmountClean()
		})
	}
}

// TestStagedHeals: what failed is written without anybody asking once that is possible.
func TestStagedHeals(t *testing.T) {
	d, s := newFaultyDisk(t)
	s.start("--flush-on=idle", "--stage-size=1M", "--flush-after=50ms")
	data := stagedBytes(6, 5<<20)
	d.set("write EIO\n")
	fd := s.open(s.path("file"), unix.O_RDWR|unix.O_CREAT)
	must(t, errors.Join(writeFD(fd, data, 0), pushFD(fd)))
	_ = unix.Close(fd) // may say that a flush has failed
	time.Sleep(500 * time.Millisecond)
	d.set("")
	eventually(t, "all is written", func() bool {
		got, err := os.ReadFile(filepath.Join(d.under, "file"))
		return err == nil && differ(got, data) == ""
	})
	s.unmountClean()
}

// TestStagedSyncErrors: a sync that fails is reported for as long as the file is used; what is written stays.
func TestStagedSyncErrors(t *testing.T) {
	d, s := newFaultyDisk(t)
	s.start()
	data := stagedBytes(7, 3<<20)
	fd := s.open(s.path("file"), unix.O_RDWR|unix.O_CREAT)
	d.set("fsync EIO\n")
	must(t, writeFD(fd, data, 0))
	wantErrno(t, "fsync", unix.Fsync(fd), unix.EIO)
	d.set("")
	wantErrno(t, "fsync, later", unix.Fsync(fd), unix.EIO) // the system has forgotten what it could not write
	_ = unix.Close(fd)
	wantMounted(t, s, "file", data)
	s.unmountClean()
	wantFile(t, filepath.Join(d.under, "file"), data)
}

// TestStagedGivenUp: what cannot be written for half a minute after the last close is lost, and in the log.
func TestStagedGivenUp(t *testing.T) {
	if !soaking() {
		t.Skip("takes 40 seconds; set TUNEFS_SOAK=1")
	}
	d, s := newFaultyDisk(t)
	s.start("--flush-on=idle", "--flush-after=50ms")
	d.set("write EIO\n")
	must(t, os.WriteFile(s.path("file"), stagedBytes(8, 100000), 0o644))
	for end := time.Now().Add(time.Minute); !strings.Contains(s.text(), `msg="staged data is lost" path=file offset=0 bytes=100000`); time.Sleep(time.Second) {
		if time.Now().After(end) {
			t.Fatal("nothing is said to be lost")
		}
	}
	d.set("")
	must(t, os.WriteFile(s.path("other"), []byte("hello"), 0o644))
	if err := s.unmount(); err == nil {
		t.Error("the daemon says that all was well")
	}
	wantFile(t, filepath.Join(d.under, "other"), []byte("hello"))
}

// TestStagedSlowDisk: while a flush takes its time, readers and other files' writers do not wait for it.
func TestStagedSlowDisk(t *testing.T) {
	d, s := newFaultyDisk(t)
	s.start("--flush-on=idle", "--stage-size=1M", "--flush-after=1h")
	data := stagedBytes(9, 4<<20)
	fd := s.open(s.path("file"), unix.O_RDWR|unix.O_CREAT)
	other := s.open(s.path("other"), unix.O_RDWR|unix.O_CREAT)
	d.set("delay 1s\n")
	must(t, writeFD(fd, data, 0))
	synced := make(chan error, 1)
	go func() { synced <- unix.Fsync(fd) }()
	time.Sleep(300 * time.Millisecond)
	for what, f := range map[string]func() error{
		"stat":  func() error { return unix.Stat(s.path("file"), new(unix.Stat_t)) },
		"read":  func() error { return readFD(fd, make([]byte, len(data)), 0) },
		"write": func() error { return errors.Join(writeFD(other, data[:100000], 0), pushFD(other)) },
		"open":  func() error { return errors.Join(makeFile(s.path("new"), 0, 0o644), readsAs(s.path("new"), "")) },
	} {
		begin := time.Now()
		must(t, f())
		if took := time.Since(begin); took > 300*time.Millisecond {
			t.Errorf("%s waits %v for another file's flush", what, took)
		}
	}
	d.set("")
	must(t, errors.Join(<-synced, unix.Close(fd), unix.Close(other)))
	s.unmountClean()
	wantFile(t, filepath.Join(d.under, "file"), data)
	wantFile(t, filepath.Join(d.under, "other"), data[:100000])
}

// TestStagedSignals: a signal that a program handles does not end its waiting for a flush, as it does not natively.
func TestStagedSignals(t *testing.T) {
	requirePackages(t, "python3")
	d, s := newFaultyDisk(t)
	s.start("--flush-after=1h")
	for what, call := range map[string]string{
		"fsync":     "libc.fsync(fd)",
		"close":     "libc.close(fd)",
		"ftruncate": "libc.ftruncate(fd, ctypes.c_long(5))",
		"lseek":     "min(libc.lseek(fd, 0, os.SEEK_HOLE), 0)",
	} {
		d.set("")
		script := `
import os, ctypes, signal
libc = ctypes.CDLL(None, use_errno=True)
fd = os.open("` + s.path(what) + `", os.O_RDWR | os.O_CREAT)
for i in range(5):
	os.pwrite(fd, bytes(100000), i * 40000000)
libc.sync_file_range(fd, ctypes.c_long(0), ctypes.c_long(0), 7)
os.rename("` + d.faults + `.slow", "` + d.faults + `")
signal.signal(signal.SIGALRM, lambda *a: None)
signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
failed = ` + call + `
signal.setitimer(signal.ITIMER_REAL, 0)
if failed:
	raise SystemExit(os.strerror(ctypes.get_errno()))
`
		must(t, os.WriteFile(d.faults+".slow", []byte("delay 200ms\n"), 0o644))
		if err := quiet(exec.Command("python3", "-c", script)); err != nil {
			t.Errorf("%s with signals: %v", what, err)
		}
	}
	d.set("")
	s.unmountClean()
}
