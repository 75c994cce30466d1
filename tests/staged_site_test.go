package tests

import (
	"bytes"
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

// stagedSite is a SOURCE and a MOUNTPOINT in staged mode whose daemon a test starts, unmounts and kills as often as
// it likes. The harness's mount wants every daemon to end well; here it is the test that judges.
type stagedSite struct {
	*cliPlace
	t    *testing.T
	cmd  *exec.Cmd
	log  string        // path of what all daemons of the site have printed
	done chan struct{} // closed when the daemon has ended
	exit error         // how; read it after done
}

// newStagedSite makes a place of u's, or ours if u is nil, with nothing mounted yet.
func newStagedSite(t *testing.T, u *user) *stagedSite {
	t.Helper()
	p := newPlace(t, u)
	s := &stagedSite{cliPlace: p, t: t, log: filepath.Join(p.dir, "log")}
	t.Cleanup(func() {
		s.end()
		if t.Failed() {
			t.Logf("the daemons' log:\n%s", tail(s.text(), 16<<10))
		}
	})
	return s
}

// eachStager runs f as root and as a user who mounts with fusermount3.
func eachStager(t *testing.T, f func(t *testing.T, s *stagedSite)) {
	t.Helper()
	eachUser(t, func(t *testing.T, u *user) { f(t, newStagedSite(t, u)) })
}

// start runs a daemon in the foreground and waits until it serves.
func (s *stagedSite) start(args ...string) {
	s.t.Helper()
	s.startWith(tunefsBinary(s.t), append([]string{"mount", "-f", "--io=staged"}, args...)...)
}

// startWith does so through a program of the caller's, which gets SOURCE and MOUNTPOINT as last arguments.
func (s *stagedSite) startWith(name string, args ...string) {
	s.t.Helper()
	s.cmd = program(s.user, name, append(args, s.src, s.mnt)...)
	log, err := os.OpenFile(s.log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	must(s.t, err)
	defer log.Close()
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if s.cmd.SysProcAttr == nil {
		s.cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	s.cmd.SysProcAttr.Setsid = true
	must(s.t, s.cmd.Start())
	s.done = make(chan struct{})
	go func(cmd *exec.Cmd, done chan struct{}) {
		s.exit = cmd.Wait()
		close(done)
	}(s.cmd, s.done)
	awaitEntry(s.t, s.mnt)
}

// pid is the daemon's.
func (s *stagedSite) pid() int { return s.cmd.Process.Pid }

// text is everything that the site's daemons have printed.
func (s *stagedSite) text() string {
	b, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// do runs f as the one who mounts, since others may not see the mount. The terms are those of as.
func (s *stagedSite) do(f func() error) error {
	if s.user == nil {
		return f()
	}
	return as(*s.user, 0o022, f)
}

// must is do, and ends the test at an error.
func (s *stagedSite) must(f func() error) {
	s.t.Helper()
	must(s.t, s.do(f))
}

// program is a command that the one who mounts runs.
func (s *stagedSite) program(name string, args ...string) *exec.Cmd {
	return program(s.user, name, args...)
}

func (s *stagedSite) path(elem ...string) string {
	return filepath.Join(append([]string{s.mnt}, elem...)...)
}

func (s *stagedSite) backing(elem ...string) string {
	return filepath.Join(append([]string{s.src}, elem...)...)
}

// kill ends the daemon without a chance to flush anything, and takes the dead mount away.
func (s *stagedSite) kill() {
	s.t.Helper()
	must(s.t, s.cmd.Process.Kill())
	<-s.done
	left, err := mountsBelow(s.mnt)
	must(s.t, err)
	for _, e := range left {
		must(s.t, errors.Join(e.abort(), e.detach()))
	}
}

// unmount ends the mount as a user would, and returns how the daemon ended.
func (s *stagedSite) unmount() error {
	s.t.Helper()
	must(s.t, unmountOnce(s.mnt))
	return s.awaitEnd(time.Minute)
}

// unmountClean is unmount where nothing has gone wrong.
func (s *stagedSite) unmountClean() {
	s.t.Helper()
	if err := s.unmount(); err != nil {
		s.t.Errorf("the daemon ended with %v", err)
	}
	for line := range strings.Lines(s.text()) {
		if suspicious.MatchString(line) {
			s.t.Errorf("the daemon logged: %s", line)
		}
	}
}

// awaitEnd returns how the daemon ended.
func (s *stagedSite) awaitEnd(limit time.Duration) error {
	s.t.Helper()
	select {
	case <-s.done:
		return s.exit
	case <-time.After(limit):
		s.t.Fatalf("the daemon has not ended after %v", limit)
		return nil
	}
}

// end kills what is left of the daemon when the test ends.
func (s *stagedSite) end() {
	if s.cmd == nil {
		return
	}
	select {
	case <-s.done:
	default:
		_ = s.cmd.Process.Signal(unix.SIGQUIT) // for the log: what it was at
		select {
		case <-s.done:
		case <-time.After(5 * time.Second):
			_ = s.cmd.Process.Kill()
			<-s.done
		}
	}
}

// open opens a file of the mount as the one who mounts; it is closed when the test ends.
func (s *stagedSite) open(path string, flags int) int {
	s.t.Helper()
	fd := -1
	s.must(func() (err error) {
		fd, err = unix.Open(path, flags|unix.O_CLOEXEC, 0o644)
		return err
	})
	return fd
}

// writeFD writes all of data at off.
func writeFD(fd int, data []byte, off int64) error {
	for n := 0; n < len(data); {
		m, err := unix.Pwrite(fd, data[n:], off+int64(n))
		if err != nil && err != unix.EINTR {
			return fmt.Errorf("write %d bytes at %d: %w", len(data)-n, off+int64(n), err)
		}
		n += max(m, 0)
	}
	return nil
}

// readFD reads as much of b at off as the file has. The rest is zero.
func readFD(fd int, b []byte, off int64) error {
	for n := 0; n < len(b); {
		m, err := unix.Pread(fd, b[n:], off+int64(n))
		if err != nil && err != unix.EINTR {
			return fmt.Errorf("read %d bytes at %d: %w", len(b)-n, off+int64(n), err)
		}
		if err == nil && m == 0 {
			clear(b[n:])
			return nil
		}
		n += max(m, 0)
	}
	return nil
}

// pushFD has the kernel send the dirty pages of fd to the daemon, which fsync would do as well, but without having
// it flush them.
func pushFD(fd int) error {
	const wait = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
	return unix.SyncFileRange(fd, 0, 0, wait)
}

// stagedBytes are n bytes that differ from place to place and from seed to seed, none of them zero.
func stagedBytes(seed, n int) []byte {
	b := make([]byte, n)
	x := uint64(seed)*0x9e3779b97f4a7c15 + 1
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x) | 1
	}
	return b
}

// wantFile fails the test unless the file holds data, and says where it does not.
func wantFile(t testing.TB, path string, data []byte) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
		return
	}
	if where := differ(got, data); where != "" {
		t.Errorf("%s: %s", path, where)
	}
}

// differ says where got is not want, or "".
func differ(got, want []byte) string {
	if bytes.Equal(got, want) {
		return ""
	}
	n := min(len(got), len(want))
	at := n
	for i := range n {
		if got[i] != want[i] {
			at = i
			break
		}
	}
	return fmt.Sprintf("%d bytes, want %d; the first difference is at %d: %x, want %x",
		len(got), len(want), at, got[at:min(at+8, len(got))], want[at:min(at+8, len(want))])
}
