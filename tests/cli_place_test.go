package tests

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// cliPlace is a SOURCE and a MOUNTPOINT for tests of the command line itself, which mount by the words
// that are tested and not by the harness.
type cliPlace struct {
	t        testing.TB
	dir      string
	src, mnt string
	user     *user // who runs commands; nil: we ourselves
}

// newPlace makes a place that u owns, or we if u is nil. Whatever is mounted there when the test ends
// is taken away.
func newPlace(t testing.TB, u *user) *cliPlace {
	t.Helper()
	dir := scratch(t)
	p := &cliPlace{t: t, dir: dir, src: filepath.Join(dir, "src"), mnt: filepath.Join(dir, "mnt"), user: u}
	if u != nil {
		requireRoot(t)
		requirePackages(t, "fuse3")
		openFuseDevice(t)
	}
	makeDir(t, p.src, u)
	makeDir(t, p.mnt, u)
	t.Cleanup(p.clear)
	return p
}

func (p *cliPlace) clear() {
	left, err := mountsBelow(p.dir)
	if err != nil {
		p.t.Error(err)
	}
	for _, m := range left {
		if err := errors.Join(m.detach(), m.abort()); err != nil {
			p.t.Logf("taking away %s: %v", m.Dir, err)
		}
	}
}

// cliResult is what a command has said and how it ended.
type cliResult struct {
	code        int
	out, stderr string
}

// tunefs runs tunefs with args as the place's user.
func (p *cliPlace) tunefs(args ...string) cliResult {
	p.t.Helper()
	return p.run(tunefsBinary(p.t), args...)
}

// run runs a program as the place's user. Its output ends only when nobody holds it open any more:
// a daemon that kept it would show as a test that runs out of time.
func (p *cliPlace) run(name string, args ...string) cliResult {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = p.dir
	if p.user != nil {
		cmd.SysProcAttr = p.user.command(name).SysProcAttr
	}
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if ctx.Err() != nil || (err != nil && !errors.As(err, &exit)) {
		p.t.Fatalf("%s %q: %v %v\n%s", name, args, err, ctx.Err(), stderr.String())
	}
	return cliResult{cmd.ProcessState.ExitCode(), out.String(), stderr.String()}
}

// wantOK fails the test unless the command succeeded without a word on stderr.
func (p *cliPlace) wantOK(r cliResult) {
	p.t.Helper()
	if r.code != 0 || r.stderr != "" {
		p.t.Fatalf("exit %d: %s", r.code, r.stderr)
	}
}

// wantFault fails the test unless the command failed with one line that contains says.
func (p *cliPlace) wantFault(r cliResult, code int, says string) {
	p.t.Helper()
	if r.code != code || !strings.Contains(r.stderr, says) || strings.Count(r.stderr, "\n") != 1 {
		p.t.Errorf("exit %d: %swant exit %d and one line with %q", r.code, r.stderr, code, says)
	}
}

// mounts lists what is mounted at the mountpoint.
func (p *cliPlace) mounts() []mountEntry {
	p.t.Helper()
	m, err := mountsBelow(p.mnt)
	if err != nil {
		p.t.Fatal(err)
	}
	return m
}

// daemon is the background process that serves the place's mount.
func (p *cliPlace) daemon() *process {
	p.t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		p.t.Fatal(err)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		args := strings.Split(string(b), "\x00")
		if err != nil || !slices.Contains(args, "--ready-fd=3") || !slices.Contains(args, p.mnt) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err != nil {
			p.t.Fatal(err)
		}
		return watchProcess(p.t, pid)
	}
	p.t.Fatalf("no daemon for %s", p.mnt)
	return nil
}

// process is one that need not be our child.
type process struct {
	t   testing.TB
	pid int
	fd  int // a pidfd: a pid may come to mean another process
}

func watchProcess(t testing.TB, pid int) *process {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return &process{t, pid, fd}
}

func (p *process) signal(sig unix.Signal) {
	p.t.Helper()
	if err := unix.PidfdSendSignal(p.fd, sig, nil, 0); err != nil {
		p.t.Fatal(err)
	}
}

// ended waits at most limit for the process to end.
func (p *process) ended(limit time.Duration) bool {
	p.t.Helper()
	for {
		fds := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, int(limit.Milliseconds()))
		if !errors.Is(err, unix.EINTR) {
			return err == nil && n == 1
		}
	}
}

// eventually waits until ok, and fails the test if that takes too long.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("not within 10 s: %s", what)
}
