package tests

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// soak says whether the long variants of the tests run: TUNEFS_SOAK=1.
func soak() bool { return os.Getenv("TUNEFS_SOAK") != "" }

// sized chooses between a size for every run and one for soak runs.
func sized[T any](short, long T) T {
	if soak() {
		return long
	}
	return short
}

// programLimit is how long a program may run. It is below a mount's own limit, so that a program that
// hangs is reported as such.
func programLimit() time.Duration { return sized(100*time.Second, 20*time.Minute) }

// programMount is mount with the time that programs need.
func programMount(t testing.TB, mode string, opts ...mountOption) *mounted {
	t.Helper()
	return mount(t, append(opts, withMode(mode), withLimit(programLimit()+20*time.Second))...)
}

// run runs a program to its end and gives what it printed. The test fails when it fails or takes too long.
func run(t testing.TB, cmd *exec.Cmd) string {
	t.Helper()
	out, err := tryRun(cmd)
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, tail(out, 8<<10))
	}
	return out
}

// tryRun is run for programs that may fail. A program out of time is killed with all its children.
func tryRun(cmd *exec.Cmd) (string, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, "LC_ALL=C")
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return "", err
	}
	timer := time.AfterFunc(programLimit(), func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	defer timer.Stop()
	err := cmd.Wait()
	return out.String(), err
}

// unprivileged is whom programs run as that have no business being root: nobody, or nil, which stands
// for the user who runs the tests, when that is not root. fusermount3 wants a user with a name.
func unprivileged() *user {
	if os.Geteuid() != 0 {
		return nil
	}
	return &user{UID: 65534, GID: 65534}
}

// program is a command that u runs, or whoever runs the tests when u is nil.
func program(u *user, name string, args ...string) *exec.Cmd {
	if u == nil {
		return exec.Command(name, args...)
	}
	return u.command(name, args...)
}

// mountFor mounts a folder of u's in the way that gives u the mode: with fusermount3, or by root, who
// alone may use passthrough, for others too.
func mountFor(t testing.TB, u *user, mode string) *mounted {
	t.Helper()
	if u == nil {
		return programMount(t, mode)
	}
	if mode != "passthrough" {
		requirePackages(t, "fuse3")
		return programMount(t, mode, asUser(*u))
	}
	source := filepath.Join(scratch(t), "src")
	makeDir(t, source, u)
	return programMount(t, mode, withSource(source), withArgs("--allow-other"))
}
