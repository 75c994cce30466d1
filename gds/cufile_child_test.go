//go:build cgo

package gds

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// These tests drive NVIDIA's own libcufile. A process can open it once and must not fork afterwards, so each test
// is run by a process of its own: parts is what they do there.
var parts = map[string]func(t *testing.T){
	"moves":     partMoves,
	"opens":     partOpens,
	"full":      partFull,
	"pins":      partPins,
	"staging":   partStaging,
	"refused":   partRefused,
	"nameless":  partNameless,
	"elsewhere": partElsewhere,
	"environ":   partEnvironment,
	"unopened":  partUnopened,
}

const (
	envPart    = "TUNEFS_TEST_CUFILE_PART"
	envLibrary = "TUNEFS_TEST_CUFILE_LIBRARY"
	envFolder  = "TUNEFS_TEST_CUFILE_FOLDER"
	envRounds  = "TUNEFS_TEST_CUFILE_ROUNDS"
	envWant    = "TUNEFS_TEST_CUFILE_WANT" // what an error has to say; separated by |
)

// TestCuFilePart is the process of another test.
func TestCuFilePart(t *testing.T) {
	name := os.Getenv(envPart)
	if name == "" {
		t.Skip("runs in processes of other tests")
	}
	parts[name](t)
}

// cufileChild is how to run a part.
type cufileChild struct {
	part, library string
	cuda          string // a folder with libcuda.so.1, or "" for none
	folder        string // where it may write, and has its working directory
	shell         string // what its mount namespace needs more than a /run of its own
	env           []string
}

// run runs a part in a mount namespace of its own, where /run is empty, so that nothing depends on this machine's udev.
func (c cufileChild) run(t *testing.T) string {
	t.Helper()
	const mayNotMount = 77
	script := fmt.Sprintf("set -e; mount -t tmpfs tmpfs /run || exit %d\n", mayNotMount) + c.shell + "\n" + `exec "$@"`
	cmd := exec.Command("/bin/sh", "-c", script, "sh", os.Args[0], "-test.run=^TestCuFilePart$", "-test.v", "-test.timeout=2m")
	cmd.Dir = c.folder
	cmd.Env = slices.Concat(os.Environ(), []string{
		envPart + "=" + c.part, envLibrary + "=" + c.library, envFolder + "=" + c.folder,
		"LD_LIBRARY_PATH=" + c.cuda, "TMPDIR=" + t.TempDir(), "GORACE=atexit_sleep_ms=0",
	}, c.env)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}},
			Pdeathsig:   unix.SIGKILL,
		}
	}
	// The death of the thread that started it would count as that of the parent.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	out, err := cmd.CombinedOutput()
	if errors.Is(err, unix.EPERM) || cmd.ProcessState.ExitCode() == mayNotMount {
		t.Skipf("this user may make no namespace with mounts of its own: %v\n%s", err, out)
	}
	t.Logf("%s", out)
	if err != nil || !bytes.Contains(out, []byte("--- PASS: TestCuFilePart")) {
		t.Errorf("%s: %v", c.part, err)
	}
	c.wantNoLitter(t)
	return string(out)
}

// wantNoLitter wants no log in the working directory.
func (c cufileChild) wantNoLitter(t *testing.T) {
	t.Helper()
	if logs, _ := filepath.Glob(filepath.Join(c.folder, "*.log")); len(logs) > 0 {
		t.Errorf("left in the working directory: %q", logs)
	}
}

// udevRecord is what a part's namespace needs for files on the filesystem of folder.
func udevRecord(t *testing.T, folder string) string {
	t.Helper()
	var st unix.Stat_t
	var sfs unix.Statfs_t
	if err := errors.Join(unix.Stat(folder, &st), unix.Statfs(folder, &sfs)); err != nil {
		t.Fatal(err)
	}
	types := map[int64]string{unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs"}
	if types[sfs.Type] == "" || unix.Major(st.Dev) == 0 {
		t.Skipf("%s is neither on ext4 nor on xfs, which are the local filesystems that cuFile takes", folder)
	}
	return recordOf(fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)), types[sfs.Type])
}

func recordOf(device, fstype string) string {
	return fmt.Sprintf("mkdir -p /run/udev/data\n"+
		`printf 'I:1\nE:ID_FS_USAGE=filesystem\nE:ID_FS_TYPE=%s\nG:systemd\n' > /run/udev/data/b%s`, fstype, device)
}

// working is a child for which cuFile works.
func working(t *testing.T, part string) cufileChild {
	t.Helper()
	dir := places(t)["var-tmp"]
	return cufileChild{
		part: part, library: newCuFileLibrary(t), cuda: standIn(t), folder: dir, shell: udevRecord(t, dir),
	}
}
