package tests

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// mountHook names a command that stands in for "tunefs mount -f": it is given SOURCE MOUNTPOINT, stays
// in the foreground and ends when unmounted.
const mountHook = "TUNEFS_TEST_MOUNT_CMD"

// mounted is a tunefs mount served by a process of its own.
type mounted struct {
	Source string // the backing folder
	Dir    string // the mountpoint
	PID    int    // of the daemon

	t     testing.TB
	cmd   *exec.Cmd
	log   string        // path of what the daemon printed
	done  chan struct{} // closed when the daemon has exited
	exit  error         // how; read it after done
	entry mountEntry
	fds   int // descriptors of the daemon when the mount was fresh
	once  sync.Once
}

// mountConfig is what the options of mount set.
type mountConfig struct {
	args   []string
	source string
	user   *user
	limit  time.Duration
}

type mountOption func(*mountConfig)

// withArgs adds flags of tunefs mount.
func withArgs(args ...string) mountOption {
	return func(c *mountConfig) { c.args = append(c.args, args...) }
}

// withMode asks for an I/O mode; see modes.
func withMode(mode string) mountOption { return withArgs("--io=" + mode) }

// withSource mounts a folder that exists instead of a fresh one.
func withSource(dir string) mountOption {
	return func(c *mountConfig) { c.source = dir }
}

// asUser has an ordinary user mount, who owns SOURCE and MOUNTPOINT.
func asUser(u user) mountOption {
	return func(c *mountConfig) { c.user = &u }
}

// withLimit replaces the time, two minutes, after which a mount is aborted and its test failed.
func withLimit(d time.Duration) mountOption {
	return func(c *mountConfig) { c.limit = d }
}

// mount mounts a fresh folder (or withSource) on a fresh mountpoint and unmounts it when the test ends,
// which fails when the daemon does not exit cleanly, leaks descriptors or logged what nobody expected.
func mount(t testing.TB, opts ...mountOption) *mounted {
	t.Helper()
	c := mountConfig{limit: 2 * time.Minute}
	for _, o := range opts {
		o(&c)
	}
	dir := scratch(t)
	m := &mounted{t: t, Source: c.source, Dir: filepath.Join(dir, "mnt"), log: filepath.Join(dir, "log"), done: make(chan struct{})}
	if m.Source == "" {
		m.Source = filepath.Join(dir, "src")
		makeDir(t, m.Source, c.user)
	}
	makeDir(t, m.Dir, c.user)
	m.start(c)
	t.Cleanup(m.Unmount)
	timer := time.AfterFunc(c.limit, func() {
		t.Errorf("%s: the test's time limit of %v has passed, the mount is aborted", m.Dir, c.limit)
		_ = m.stop() // the cleanup will see what is left
	})
	t.Cleanup(func() { timer.Stop() })
	return m
}

// makeDir makes dir, owned by u if there is one.
func makeDir(t testing.TB, dir string, u *user) {
	t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if u == nil || os.Geteuid() != 0 {
		return
	}
	if err := os.Chown(dir, int(u.UID), int(u.GID)); err != nil {
		t.Fatal(err)
	}
}

// start runs the daemon and waits until it serves.
func (m *mounted) start(c mountConfig) {
	m.t.Helper()
	m.cmd = mountCommand(m.t, m.Source, m.Dir, c.args)
	log, err := os.Create(m.log)
	if err != nil {
		m.t.Fatal(err)
	}
	defer log.Close()
	m.cmd.Stdout, m.cmd.Stderr = log, log
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if c.user != nil {
		openFuseDevice(m.t)
		m.cmd.SysProcAttr.Credential = c.user.credential()
	}
	if err := m.cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.PID = m.cmd.Process.Pid
	go func() {
		m.exit = m.cmd.Wait()
		close(m.done)
	}()
	if err := m.awaitMount(); err != nil {
		_ = m.cmd.Process.Kill()
		<-m.done
		m.t.Fatalf("mount: %v\n%s", err, m.Log())
	}
	m.fds = m.descriptors()
}

// openFuseDevice lets everybody use /dev/fuse, as the udev rule of Debian's fuse3 does: a machine
// without udev has it for root only.
func openFuseDevice(t testing.TB) {
	t.Helper()
	const device = "/dev/fuse"
	if st, err := os.Stat(device); err != nil || st.Mode().Perm() == 0o666 {
		return
	}
	if err := os.Chmod(device, 0o666); err != nil {
		t.Fatal(err)
	}
}

func mountCommand(t testing.TB, source, dir string, args []string) *exec.Cmd {
	t.Helper()
	if hook := os.Getenv(mountHook); hook != "" {
		return exec.Command(hook, source, dir)
	}
	return exec.Command(tunefsBinary(t), append(append([]string{"mount", "-f"}, args...), source, dir)...)
}

// awaitMount returns when the mount is in the mount table and its root answers.
func (m *mounted) awaitMount() error {
	limit := time.After(20 * time.Second)
	for {
		switch left, err := mountsBelow(m.Dir); {
		case err != nil:
			return err
		case len(left) > 0:
			m.entry = left[0]
			return nil
		}
		select {
		case <-m.done:
			return fmt.Errorf("the daemon ended: %w", errors.Join(m.exit, errors.New("nothing is mounted")))
		case <-limit:
			return errors.New("nothing is mounted after 20 s")
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Path is a path below the mountpoint, Backing the same below SOURCE.
func (m *mounted) Path(elem ...string) string {
	return filepath.Join(append([]string{m.Dir}, elem...)...)
}

func (m *mounted) Backing(elem ...string) string {
	return filepath.Join(append([]string{m.Source}, elem...)...)
}

// Log is everything the daemon has printed so far.
func (m *mounted) Log() string {
	b, err := os.ReadFile(m.log)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// Unmount unmounts, waits for the daemon and judges how it went. The test's cleanup calls it; a test
// that wants to see what is left behind may call it earlier.
func (m *mounted) Unmount() { m.once.Do(m.unmount) }

func (m *mounted) unmount() {
	m.t.Helper()
	m.checkDescriptors()
	if err := m.detachCleanly(); err != nil {
		m.t.Errorf("unmounting %s: %v", m.Dir, err)
		m.destroy()
	}
	select {
	case <-m.done:
		if m.exit != nil {
			m.t.Errorf("the daemon ended with %v", m.exit)
		}
	case <-time.After(20 * time.Second):
		m.t.Errorf("the daemon still runs 20 s after the unmount")
		m.destroy()
		_ = m.cmd.Process.Kill()
		<-m.done
	}
	m.checkLog()
}

// detachCleanly unmounts as a user would, and gives programs that are just ending two seconds for it.
func (m *mounted) detachCleanly() error {
	for end := time.Now().Add(2 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if left, err := mountsBelow(m.Dir); err != nil || len(left) == 0 {
			return err
		}
		err := unmountOnce(m.Dir)
		if err == nil || !errors.Is(err, unix.EBUSY) || time.Now().After(end) {
			return err
		}
	}
}

func unmountOnce(dir string) error {
	if os.Geteuid() == 0 {
		return unix.Unmount(dir, unix.UMOUNT_NOFOLLOW)
	}
	out, err := exec.Command("fusermount3", "-u", dir).CombinedOutput()
	switch {
	case err == nil:
		return nil
	case bytes.Contains(out, []byte("busy")):
		return unix.EBUSY
	}
	return fmt.Errorf("%w: %s", err, out)
}

// destroy ends the daemon and takes the mount away by force.
func (m *mounted) destroy() {
	if err := errors.Join(m.stop(), m.entry.detach()); err != nil {
		m.t.Logf("destroying %s: %v", m.Dir, err)
	}
}

// stop has the daemon log what all its goroutines are at, which ends it, and ends all requests with an error.
func (m *mounted) stop() error {
	_ = m.cmd.Process.Signal(unix.SIGQUIT) // it may have ended already
	return m.entry.abort()
}

// suspicious matches log lines that no test may cause by accident.
var suspicious = regexp.MustCompile(`\b(WARN|WARNING|ERROR)\b|panic|fatal error|DATA RACE`)

func (m *mounted) checkLog() {
	m.t.Helper()
	log := m.Log()
	for line := range strings.Lines(log) {
		if suspicious.MatchString(line) {
			m.t.Errorf("the daemon logged: %s", line)
		}
	}
	if m.t.Failed() {
		m.t.Logf("log of the daemon at %s:\n%s", m.Dir, tail(log, 64<<10))
	}
}

// tail is the end of s, n bytes at most.
func tail(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return "[...]" + s[len(s)-n:]
}

// descriptors counts the daemon's open descriptors; -1 when that is not ours to see.
func (m *mounted) descriptors() int {
	l, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(m.PID), "fd"))
	if err != nil {
		return -1
	}
	return len(l)
}

// checkDescriptors fails the test when the daemon keeps descriptors for objects that the kernel has
// forgotten. A remount makes the kernel forget: only root can.
func (m *mounted) checkDescriptors() {
	// A pipe per worker and what the Go runtime opens at its first need are not leaks.
	const slack = 40
	if m.t.Failed() || os.Geteuid() != 0 || m.fds < 0 {
		return
	}
	var n int
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if n = m.descriptors(); n <= m.fds+slack {
			return
		}
		if err := forgetInodes(m.Dir); err != nil {
			m.t.Errorf("remounting %s: %v", m.Dir, err)
			return
		}
	}
	m.t.Errorf("the daemon has %d descriptors open with nothing in use, %d when fresh", n, m.fds)
}

// forgetInodes makes the kernel drop all names of a mount, and with them the inodes that nothing uses: a
// remount does that as its side effect. Root only.
func forgetInodes(mountpoint string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(mountpoint, &st); err != nil {
		return err
	}
	return unix.Mount("", mountpoint, "", unix.MS_REMOUNT|remountFlags(st.Flags), "")
}

// remountFlags are statfs's flags that mount(2) shares by value; the rest would be refused or lost.
func remountFlags(f int64) uintptr {
	const shared = unix.ST_RDONLY | unix.ST_NOSUID | unix.ST_NODEV | unix.ST_NOEXEC | unix.ST_SYNCHRONOUS | unix.ST_NOATIME | unix.ST_NODIRATIME
	return uintptr(f & shared)
}
