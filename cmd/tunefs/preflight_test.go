package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// asNobody runs f as an ordinary user. Only root can. The identity is one
// thread's, which ends with f: system calls made past the syscall package
// change no other thread.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to become an ordinary user")
	}
	const nobody = 65534
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread is not reused
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody); errno != 0 {
			done <- errno
			return
		}
		f()
		done <- nil
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// openTempDir is a t.TempDir that every user can pass through.
func openTempDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func mkdir(t *testing.T, mode os.FileMode, elem ...string) string {
	t.Helper()
	path := filepath.Join(elem...)
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil { // past the umask
		t.Fatal(err)
	}
	return path
}

// wantFault checks for an error that is one line with says in it; says "" is
// no error.
func wantFault(t *testing.T, what string, err error, says string) {
	t.Helper()
	switch {
	case says == "" && err != nil:
		t.Errorf("%s: %v", what, err)
	case says != "" && err == nil:
		t.Errorf("%s: no error, want one with %q", what, says)
	case says != "" && (!strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "\n")):
		t.Errorf("%s: error %q, want one line with %q", what, err, says)
	}
}

func TestCheckDirectory(t *testing.T) {
	dir := openTempDir(t)
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o644); err != nil {
		t.Fatal(err)
	}
	mkdir(t, 0o700, dir, "closed", "inside")
	mkdir(t, 0o700, dir, "closed")
	for path, says := range map[string]string{
		dir:                        "",
		file:                       "is not a directory but a regular file",
		fifo:                       "is not a directory but a named pipe",
		"/dev/null":                "is not a directory but a device",
		filepath.Join(dir, "none"): "does not exist",
		filepath.Join(file, "x"):   "something on the way is not a directory",
	} {
		wantFault(t, path, checkDirectory("SOURCE", path), says)
	}
	asNobody(t, func() {
		wantFault(t, "behind a closed door", checkDirectory("SOURCE", filepath.Join(dir, "closed", "inside")), "cannot be reached by user 65534")
	})
}

func TestCheckSource(t *testing.T) {
	dir := openTempDir(t)
	for mode, says := range map[os.FileMode]string{0o755: "", 0o700: "cannot be read by user 65534", 0o744: "cannot be read", 0o711: "cannot be read"} {
		source := mkdir(t, mode, dir, mode.String())
		wantFault(t, "root", checkSource(source), "")
		asNobody(t, func() { wantFault(t, mode.String(), checkSource(source), says) })
	}
}

func TestCheckRecursion(t *testing.T) {
	dir := openTempDir(t)
	source := mkdir(t, 0o755, dir, "source")
	mkdir(t, 0o755, source, "a", "b")
	mkdir(t, 0o755, dir, "source-not")
	for link, target := range map[string]string{"to-source": source, "to-b": source + "/a/b", "source/out": dir + "/source-not"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	const inside = "is inside SOURCE"
	for mountpoint, says := range map[string]string{
		"source": "", "source-not": "", ".": "", "to-source": "", "source/out": "", // out leads out
		"source/a": inside, "source/a/b": inside, "to-source/a": inside, "to-b": inside,
	} {
		wantFault(t, mountpoint, checkRecursion(source, filepath.Join(dir, mountpoint)), says)
	}
}

// The way to the mountpoint may lead through a bind mount of SOURCE.
func TestCheckRecursionSeesBindMounts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to bind")
	}
	dir := openTempDir(t)
	source, bound := mkdir(t, 0o755, dir, "source"), mkdir(t, 0o755, dir, "bound")
	mkdir(t, 0o755, source, "a")
	if err := unix.Mount(source, bound, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(bound, 0); err != nil {
			t.Error(err)
		}
	})
	wantFault(t, "through a bind mount", checkRecursion(source, bound+"/a"), "is inside SOURCE")
}

func TestCheckMountpoint(t *testing.T) {
	wantFault(t, "another mount", checkMountpoint("/proc"), "")
	wantFault(t, "a folder", checkMountpoint(t.TempDir()), "")
	wantFault(t, "nothing", checkMountpoint("/nonexistent"), "MOUNTPOINT /nonexistent does not exist")
}

func TestCheckDevice(t *testing.T) {
	dir := openTempDir(t)
	closed := filepath.Join(dir, "fuse")
	if err := os.WriteFile(closed, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wantFault(t, "usable", host{device: closed}.checkDevice(), "")
	wantFault(t, "missing", host{device: filepath.Join(dir, "none")}.checkDevice(), "modprobe fuse")
	asNobody(t, func() { wantFault(t, "closed", host{device: closed}.checkDevice(), "no permission to use "+closed) })
	if os.Geteuid() == 0 {
		orphan := filepath.Join(dir, "orphan")
		if err := unix.Mknod(orphan, unix.S_IFCHR|0o666, int(unix.Mkdev(240, 99))); err != nil {
			t.Fatal(err)
		}
		wantFault(t, "no driver", host{device: orphan}.checkDevice(), "modprobe fuse")
	}
}

func TestCheckMaxRequest(t *testing.T) {
	sysctl := filepath.Join(t.TempDir(), "max_pages_limit")
	if err := os.WriteFile(sysctl, []byte("4096\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	raised, fixed := host{pagesLimit: sysctl}, host{pagesLimit: sysctl + "-none"}
	limit := 4096 * os.Getpagesize()
	wantFault(t, "up to the limit", raised.checkMaxRequest(limit), "")
	wantFault(t, "past the limit", raised.checkMaxRequest(2*limit), "fs.fuse.max_pages_limit=8192")
	wantFault(t, "an old kernel's", fixed.checkMaxRequest(256*os.Getpagesize()), "")
	wantFault(t, "past an old kernel's", fixed.checkMaxRequest(512*os.Getpagesize()), "fs.fuse.max_pages_limit=512")
}

func TestCheckAllowOther(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "fuse.conf")
	for text, says := range map[string]string{
		"user_allow_other\n":                     "",
		"mount_max = 10\n  user_allow_other  \n": "",
		"#user_allow_other\n":                    "has a line 'user_allow_other'",
		"":                                       "has a line 'user_allow_other'",
	} {
		if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		wantFault(t, text, host{conf: conf}.checkAllowOther(true), says)
		wantFault(t, text, host{conf: conf}.checkAllowOther(false), "")
	}
	wantFault(t, "no file", host{conf: conf + "-none"}.checkAllowOther(true), "is for root only")
}

func TestCheckUserOptions(t *testing.T) {
	wantFault(t, "harmless", checkUserOptions([]string{"ro", "noexec"}), "")
	wantFault(t, "suid", checkUserOptions([]string{"ro", "suid"}), "-o suid is for root only")
	wantFault(t, "dev", checkUserOptions([]string{"dev"}), "-o dev is for root only")
}

func TestCheckFusermount(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "fusermount3"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	wantFault(t, "in PATH", checkFusermount(), "")
	t.Setenv("PATH", t.TempDir())
	wantFault(t, "nowhere", checkFusermount(), "install the package fuse3")
}

func TestCheckUserName(t *testing.T) {
	wantFault(t, "root", checkUserName(0), "")
	wantFault(t, "nobody at all", checkUserName(1<<30+7), "has no name")
}

func TestCheckOwnMountpoint(t *testing.T) {
	dir := openTempDir(t)
	for mode, says := range map[os.FileMode]string{0o777: "", 0o755: "is not user 65534's own", 0o777 | os.ModeSticky: "is not user 65534's own"} {
		path := mkdir(t, mode, dir, mode.String())
		asNobody(t, func() { wantFault(t, mode.String(), checkOwnMountpoint(path), says) })
	}
}

func TestPrivilegeIsTheThreads(t *testing.T) {
	asNobody(t, func() {
		if thisHost().privileged {
			t.Error("nobody may mount")
		}
	})
	if os.Geteuid() == 0 && !hasCapability(unix.CAP_CHOWN) {
		t.Error("root has lost a capability that all tests rely on")
	}
}
