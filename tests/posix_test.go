package tests

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/hanwen/go-fuse/v2/posixtest"
	"golang.org/x/sys/unix"
)

// wrongPosixTests are the tests of go-fuse's suite that no filesystem passes, each with the reason.
// TestPosixExclusions holds them to it on a plain folder.
func wrongPosixTests() map[string]string {
	return map[string]string{
		"FcntlFlockLocksFile": "wants a process to be refused by its own fcntl(2) lock; TestFcntlLockExcludes asks with a lock that can be",
	}
}

// TestPosix runs go-fuse's conformance suite, each test in an empty folder of the mount.
func TestPosix(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) { runPosix(t, mount(t, withMode(mode))) })
}

// TestPosixOnTmpfs shows another filesystem, which holds the large attributes that XAttrLarge needs and
// that ext4 refuses.
func TestPosixOnTmpfs(t *testing.T) {
	requireRoot(t)
	eachMode(t, func(t *testing.T, mode string) {
		source := scratch(t)
		if err := unix.Mount("tests", source, "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(source, 0); err != nil {
				t.Error(err)
			}
		})
		runPosix(t, mount(t, withMode(mode), withSource(source)))
	})
}

func runPosix(t *testing.T, m *mounted) {
	for _, name := range slices.Sorted(maps.Keys(posixtest.All)) {
		t.Run(name, func(t *testing.T) {
			if reason, wrong := wrongPosixTests()[name]; wrong {
				t.Skip(reason)
			}
			makeDir(t, m.Path(name), nil)
			posixtest.All[name](t, m.Path(name))
		})
	}
}

// TestPosixExclusions shows that each test that TestPosix leaves out fails on a plain folder too. It runs
// them in a child process, since a test cannot outlive a failure of its own.
func TestPosixExclusions(t *testing.T) {
	const chosen = "TUNEFS_TEST_POSIX"
	if name := os.Getenv(chosen); name != "" {
		posixtest.All[name](t, scratch(t))
		return
	}
	for name := range wrongPosixTests() {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestPosixExclusions$", "-test.count=1")
		cmd.Env = append(os.Environ(), chosen+"="+name)
		var failed *exec.ExitError
		if out, err := cmd.CombinedOutput(); !errors.As(err, &failed) {
			t.Errorf("%s does not fail on a plain folder (%v): put it back into TestPosix\n%s", name, err, out)
		}
	}
}

// TestFcntlLockExcludes holds a record lock of the process and asks for a lock of another open file
// description, the one kind that conflicts with locks of its own process.
func TestFcntlLockExcludes(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		path := mount(t, withMode(mode)).Path("file")
		first, second := openFile(t, path, os.O_RDWR|os.O_CREATE), openFile(t, path, os.O_RDWR)
		if err := unix.FcntlFlock(first.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
			t.Fatal(err)
		}
		if err := unix.FcntlFlock(second.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_RDLCK}); !errors.Is(err, unix.EAGAIN) {
			t.Errorf("a second lock gave %v, want EAGAIN", err)
		}
		if err := unix.FcntlFlock(first.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_UNLCK}); err != nil {
			t.Fatal(err)
		}
		if err := unix.FcntlFlock(second.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_RDLCK}); err != nil {
			t.Errorf("after the unlock: %v", err)
		}
	})
}

// openFile opens path for the length of the test.
func openFile(t testing.TB, path string, flags int) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, flags, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}
