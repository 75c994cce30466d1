// Package tests runs the tunefs binary on real mounts, as its users do.
//
// The binary is built once and serves each mount from a process of its own, so that a deadlock or a
// crash of the daemon cannot take the test with it. What a test mounts is unmounted whatever happens:
// by the test's cleanup, or, when the test process dies, by the reaper (see reaper).
package tests

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// helperEnv names the part that a re-executed test binary plays instead of running tests.
const helperEnv = "TUNEFS_TEST_HELPER"

// helpers are the parts a re-executed test binary can play; each returns the exit status.
// Start one with helperCommand.
func helpers() map[string]func() int {
	return map[string]func() int{
		"reaper":       reaper,
		"model-worker": modelWorker,
	}
}

// suite is what all tests of one run share. It is made once and never changes.
type suite struct {
	dir    string         // everything the tests make lies below it
	binary func() string  // path of the built tunefs; panics when the build fails
	reaper *exec.Cmd      // cleans dir up when this process is gone
	alive  io.WriteCloser // closed by our death: the reaper's signal
}

var theSuite = sync.OnceValues(newSuite)

func TestMain(m *testing.M) {
	if name := os.Getenv(helperEnv); name != "" {
		os.Exit(helpers()[name]())
	}
	s, err := theSuite()
	if err != nil {
		fmt.Fprintln(os.Stderr, "tests:", err)
		os.Exit(1)
	}
	code := m.Run()
	if err := s.close(); err != nil {
		fmt.Fprintln(os.Stderr, "tests:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func newSuite() (*suite, error) {
	parent, err := scratchParent()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(parent, "tunefs-test-")
	if err != nil {
		return nil, err
	}
	// Ordinary users must reach their mounts below it.
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}
	s := &suite{dir: dir}
	s.binary = sync.OnceValue(func() string { return build(dir) })
	s.reaper = helperCommand("reaper", dir)
	s.reaper.Stdout, s.reaper.Stderr = os.Stderr, os.Stderr
	s.reaper.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if s.alive, err = s.reaper.StdinPipe(); err != nil {
		return nil, err
	}
	return s, s.reaper.Start()
}

// close lets the reaper remove what the run left, and fails if a mount was among it.
func (s *suite) close() error {
	if err := s.alive.Close(); err != nil {
		return err
	}
	return s.reaper.Wait()
}

// scratchParent is a folder on a disk filesystem: tmpfs, where /tmp often lies, lacks much of what the
// tests compare with. TUNEFS_TEST_DIR overrides it.
func scratchParent() (string, error) {
	if dir := os.Getenv("TUNEFS_TEST_DIR"); dir != "" {
		return filepath.Abs(dir)
	}
	for _, dir := range []string{os.TempDir(), "/var/tmp"} {
		var st unix.Statfs_t
		if err := unix.Statfs(dir, &st); err == nil && st.Type != unix.TMPFS_MAGIC {
			return dir, nil
		}
	}
	return "", errors.New("no scratch folder on a disk: set TUNEFS_TEST_DIR")
}

// build compiles the binary the way the tests themselves were compiled.
func build(dir string) string {
	path := filepath.Join(dir, "tunefs")
	args := []string{"build", "-o", path}
	if raceDetector {
		args = append(args, "-race")
	}
	out, err := exec.Command("go", append(args, "tunefs/cmd/tunefs")...).CombinedOutput()
	if err != nil {
		panic(fmt.Sprintf("go build tunefs/cmd/tunefs: %v\n%s", err, out))
	}
	return path
}

// tunefsBinary is the path of the tunefs under test.
func tunefsBinary(t testing.TB) string {
	t.Helper()
	s, err := theSuite()
	if err != nil {
		t.Fatal(err)
	}
	return s.binary()
}

// scratch makes a folder for the test on a disk filesystem that every user can pass through.
// It is removed after everything mounted below it later in the test has been unmounted.
func scratch(t testing.TB) string {
	t.Helper()
	s, err := theSuite()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(s.dir, "t-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeScratch(t, dir) })
	return dir
}

// removeScratch never descends into something still mounted: the mount's own cleanup has failed
// the test then, and the reaper sees to the rest.
func removeScratch(t testing.TB, dir string) {
	left, err := mountsBelow(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("still mounted below %s: %v (%v)", dir, left, err)
		return
	}
	if err := clearInodeFlags(dir); err != nil {
		t.Error(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Error(err)
	}
}

// helperCommand re-executes the test binary to play one of the helpers with args.
func helperCommand(name string, args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	// A process with the race detector otherwise takes a second to end.
	cmd.Env = append(os.Environ(), helperEnv+"="+name, "GORACE=atexit_sleep_ms=0")
	return cmd
}
