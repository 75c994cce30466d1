package tests

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestProgramKilled: a program that is ended while it reads or writes ends at once, and leaves nothing behind: the
// mount goes on, and can be unmounted, which the harness checks.
func TestProgramKilled(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		m := mount(t, withMode(mode))
		big := m.Path("big")
		f, err := os.Create(m.Backing("big"))
		must(t, err)
		must(t, errors.Join(f.Truncate(1<<40), f.Close()))
		for _, sig := range []syscall.Signal{unix.SIGKILL, unix.SIGINT, unix.SIGTERM} {
			for name, args := range map[string][]string{
				"reading":           {"if=" + big, "of=/dev/null", "bs=1M"},
				"reading, O_DIRECT": {"if=" + big, "of=/dev/null", "bs=1M", "iflag=direct"},
				"writing":           {"if=/dev/zero", "of=" + m.Path("out"), "bs=64k", "count=1000", "conv=notrunc", "oflag=append"},
				"writing and fsync": {"if=/dev/zero", "of=" + m.Path("out"), "bs=64k", "count=100000", "oflag=dsync"},
			} {
				cmd := exec.Command("dd", args...)
				must(t, cmd.Start())
				time.Sleep(50 * time.Millisecond)
				_ = cmd.Process.Signal(sig) // it may have ended by itself
				err := within(t, 30*time.Second, "dd, "+name+", after "+sig.String(), cmd.Wait)
				if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
					t.Errorf("dd, %s: %v", name, err)
				}
			}
			must(t, os.WriteFile(m.Path("small"), []byte("hello"), 0o644))
			must(t, readsAs(m.Path("small"), "hello"))
			must(t, os.Truncate(m.Path("out"), 0))
		}
	})
}

// TestDaemonKilled: when the daemon dies, programs get an error and do not hang, and tunefs umount takes the mount
// away.
func TestDaemonKilled(t *testing.T) {
	requireRoot(t)
	requirePackages(t, "fuse3")
	eachMode(t, func(t *testing.T, mode string) { killDaemon(t, superuser(), mode) })
	t.Run("user", func(t *testing.T) { killDaemon(t, ordinary(), "cached") })
}

func killDaemon(t *testing.T, u user, mode string) {
	base := scratch(t)
	source, point := filepath.Join(base, "src"), filepath.Join(base, "mnt")
	makeDir(t, source, &u)
	makeDir(t, point, &u)
	openFuseDevice(t)
	daemon := u.command(tunefsBinary(t), "mount", "-f", "--io="+mode, "--attr-timeout=0s", "--entry-timeout=0s", source, point)
	must(t, daemon.Start())
	t.Cleanup(func() { removeDead(t, point) })
	awaitEntry(t, point)
	var fd int
	must(t, as(u, 0o022, func() (err error) {
		if err := os.WriteFile(point+"/file", []byte(strings.Repeat("x", 1<<20)), 0o644); err != nil {
			return err
		}
		fd, err = unix.Open(point+"/file", unix.O_RDWR|unix.O_CLOEXEC, 0)
		return err
	}))
	defer unix.Close(fd)
	busy := make(chan error, 1)
	go func() { busy <- as(u, 0, func() error { return statForEver(point + "/file") }) }()
	time.Sleep(50 * time.Millisecond)
	must(t, daemon.Process.Kill())
	_ = daemon.Wait()
	select {
	case err := <-busy:
		// EIO is the kernel's word for a daemon that died within its answer.
		if err == nil || !oneOf(err, unix.ENOTCONN, unix.ECONNABORTED, unix.EIO) {
			t.Errorf("a program under way got %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("a program under way hangs")
	}
	must(t, within(t, 10*time.Second, "using a dead mount", func() error { return as(u, 0, func() error { return useDead(point, fd) }) }))
	unix.Close(fd)
	if out, err := u.command(tunefsBinary(t), "umount", point).CombinedOutput(); err != nil {
		t.Errorf("tunefs umount: %v: %s", err, out)
	}
	if left, err := mountsBelow(point); err != nil || len(left) > 0 {
		t.Errorf("left mounted: %v, %v", left, err)
	}
	must(t, lists(point))
}

func awaitEntry(t *testing.T, point string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if found, err := mountsBelow(point); err == nil && len(found) > 0 {
			return
		}
	}
	t.Fatal("nothing is mounted after 20 s")
}

// removeDead is for a test that failed.
func removeDead(t *testing.T, point string) {
	left, err := mountsBelow(point)
	must(t, err)
	for _, e := range left {
		must(t, errors.Join(e.abort(), e.detach()))
	}
}

func statForEver(path string) error {
	for {
		var st unix.Statx_t
		if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_STATX_FORCE_SYNC, unix.STATX_BASIC_STATS, &st); err != nil {
			return err
		}
	}
}

// useDead wants ENOTCONN of all that needs the daemon, and of an open file an end, whatever it is: what the kernel
// does itself may go on.
func useDead(point string, fd int) error {
	var problems []error
	for name, err := range map[string]error{
		"stat":   unix.Stat(point, new(unix.Stat_t)),
		"open":   second(unix.Open(point+"/file", unix.O_RDONLY|unix.O_CLOEXEC, 0)),
		"create": makeFile(point+"/new", 0, 0o644),
		"mkdir":  unix.Mkdir(point+"/new", 0o755),
		"statfs": unix.Statfs(point, new(unix.Statfs_t)),
	} {
		if !errors.Is(err, unix.ENOTCONN) {
			problems = append(problems, fmt.Errorf("%s gives %w", name, err))
		}
	}
	_, _ = unix.Pread(fd, make([]byte, 100000), 0)
	_, _ = unix.Pwrite(fd, []byte("x"), 0)
	_ = unix.Fsync(fd)
	return errors.Join(problems...)
}
