package tests

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// superuser is root without any supplementary group.
func superuser() user { return user{} }

// as runs f on a thread of its own that has u's credentials, the umask and its own working directory, and
// returns what f does. The thread ends with f. f must not use t.Fatal, and what it calls must stay on its
// thread: no goroutines, no exec.
func as(u user, umask int, f func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread is of no use to anybody else
		if unix.Gettid() == unix.Getpid() {
			// The main thread outlives its goroutine. While this one waits on it, another gets another thread.
			defer runtime.UnlockOSThread()
			result <- as(u, umask, f)
			return
		}
		err := becomeOnThread(u, umask)
		if err == nil {
			err = f()
		}
		result <- err
	}()
	return <-result
}

// becomeOnThread needs a locked thread. The wrappers of package syscall would change every thread.
func becomeOnThread(u user, umask int) error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	unix.Umask(umask)
	if u.UID == 0 && u.GID == 0 && os.Geteuid() != 0 {
		return errors.New("only root can be root")
	}
	groups := append([]uint32{u.GID}, u.Groups...)
	_, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(&groups[0])), 0)
	if errno != 0 {
		return fmt.Errorf("setgroups: %w", errno)
	}
	gid, uid := uintptr(u.GID), uintptr(u.UID)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, gid, gid, gid); errno != 0 {
		return fmt.Errorf("setresgid: %w", errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid); errno != 0 {
		return fmt.Errorf("setresuid: %w", errno)
	}
	// A change of user hides /proc/self from that user.
	return unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
}

// soaking says that the long forms of the tests are wanted.
func soaking() bool { return os.Getenv("TUNEFS_SOAK") != "" }

// pickLong is long when soaking, else short.
func pickLong[T any](short, long T) T {
	if soaking() {
		return long
	}
	return short
}

// withDescriptors makes the next mount of t run with at most n descriptors, soft and hard. Its flags are args.
func withDescriptors(t *testing.T, n int, args ...string) {
	t.Helper()
	script := filepath.Join(scratch(t), "limited")
	text := fmt.Sprintf("#!/bin/sh\nulimit -n %d && exec %s mount -f %s \"$@\"\n", n, tunefsBinary(t), strings.Join(args, " "))
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv(mountHook, script)
}

// must ends a test at an error in its preparations.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// writeFile is os.WriteFile with an exact mode, whatever the umask.
func writeFile(path, data string, mode os.FileMode) error {
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		return err
	}
	return unix.Chmod(path, uint32(mode))
}

// within fails the test when f takes longer than limit; then f goes on in a goroutine that nobody waits for.
func within(t *testing.T, limit time.Duration, what string, f func() error) error {
	t.Helper()
	result := make(chan error, 1)
	go func() { result <- f() }()
	select {
	case err := <-result:
		return err
	case <-time.After(limit):
		t.Fatalf("%s hangs: nothing after %v", what, limit)
		return nil
	}
}

// oneOf reports whether err is nil or wraps one of the errnos.
func oneOf(err error, allowed ...unix.Errno) bool {
	if err == nil {
		return true
	}
	for _, errno := range allowed {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}
