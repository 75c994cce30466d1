package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// preflight finds the faults that a user can make and mend, before anything is
// mounted. Each error is one line: what is wrong, and what to do. What changes
// after it has looked is found by mounting itself.
func preflight(s *settings) error { return thisHost().preflight(s) }

func (h host) preflight(s *settings) error {
	checks := []func() error{
		func() error { return checkSource(s.source) },
		func() error { return checkMountpoint(s.mountpoint) },
		func() error { return checkRecursion(s.source, s.mountpoint) },
		func() error { return h.checkDevice() },
		func() error { return h.checkMaxRequest(s.options.MaxWrite) },
		func() error { return s.staging.probe(s.source) },
	}
	if !h.privileged {
		checks = append(checks,
			func() error { return checkFusermount() },
			func() error { return checkUserName(os.Geteuid()) },
			func() error { return checkOwnMountpoint(s.mountpoint) },
			func() error { return h.checkAllowOther(s.options.AllowOther) },
			func() error { return checkUserOptions(s.options.MountOptions) },
		)
	}
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// checkSource wants a directory that can be listed and entered.
func checkSource(path string) error {
	if err := checkDirectory("SOURCE", path); err != nil {
		return err
	}
	if unix.Faccessat(unix.AT_FDCWD, path, unix.R_OK|unix.X_OK, unix.AT_EACCESS) != nil {
		return fmt.Errorf("SOURCE %s cannot be read by user %d: give it the permissions r and x on it", path, os.Geteuid())
	}
	return nil
}

// checkMountpoint wants a directory where no tunefs is mounted. Anything else
// that is mounted there gets covered, as mount(8) does it.
func checkMountpoint(path string) error {
	m, isMount, err := mountAt(path)
	if err != nil {
		return err
	}
	if err := checkDirectory("MOUNTPOINT", path); err != nil {
		return err
	}
	if isMount && m.fstype == fsType {
		// A dead daemon's directory may still be cached; this always asks it.
		if unix.Statfs(path, new(unix.Statfs_t)) == unix.ENOTCONN {
			return deadMount("MOUNTPOINT", path)
		}
		return fmt.Errorf("MOUNTPOINT %s is busy: it is a tunefs mount of %s already; 'tunefs umount %s' ends that", path, m.source, path)
	}
	return nil
}

func checkDirectory(operand, path string) error {
	fi, err := os.Stat(path)
	switch {
	case err == nil && fi.IsDir():
		return nil
	case err == nil:
		return fmt.Errorf("%s %s is not a directory but %s", operand, path, kindOf(fi.Mode()))
	case errors.Is(err, unix.ENOTCONN):
		return deadMount(operand, path)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s %s does not exist: check the spelling, or make it with mkdir", operand, path)
	case errors.Is(err, unix.ENOTDIR):
		return fmt.Errorf("%s %s cannot be there: something on the way is not a directory", operand, path)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s %s cannot be reached by user %d: a directory on the way lacks the permission x", operand, path, os.Geteuid())
	}
	return fmt.Errorf("%s: %w", operand, err)
}

func deadMount(operand, path string) error {
	return fmt.Errorf("%s %s is a dead mount, whose daemon is gone: 'tunefs umount %s' or 'fusermount3 -u %s' takes it away", operand, path, path, path)
}

func kindOf(mode fs.FileMode) string {
	switch mode.Type() {
	case 0:
		return "a regular file"
	case fs.ModeNamedPipe:
		return "a named pipe"
	case fs.ModeSocket:
		return "a socket"
	}
	return "a device"
}

// checkRecursion refuses a MOUNTPOINT inside SOURCE, which would show itself
// without end. SOURCE itself is fine: it is covered, and we go on below.
// Identities are compared, not names: the way to MOUNTPOINT may lead through a
// bind mount of SOURCE.
func checkRecursion(source, mountpoint string) error {
	src, err := os.Stat(source)
	if err != nil {
		return err
	}
	dir, err := filepath.EvalSymlinks(mountpoint)
	if err != nil {
		return err
	}
	for dir != "/" {
		dir = filepath.Dir(dir)
		if fi, err := os.Stat(dir); err == nil && os.SameFile(src, fi) {
			return fmt.Errorf("MOUNTPOINT %s is inside SOURCE %s, so it would contain itself: choose one outside, or SOURCE itself", mountpoint, source)
		}
	}
	return nil
}

// checkDevice wants a /dev/fuse that we can open. The kernel loads its module
// at that, if there is one.
func (h host) checkDevice() error {
	fd, err := unix.Open(h.device, unix.O_RDWR|unix.O_CLOEXEC, 0)
	switch {
	case err == nil:
		return unix.Close(fd)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		return fmt.Errorf("no %s: run 'modprobe fuse' as root; a container needs the option --device /dev/fuse (and --cap-add SYS_ADMIN)", h.device)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("no permission to use %s: run 'chmod 666 %s' as root, as udev's rules do; a container needs the option --device /dev/fuse", h.device, h.device)
	}
	return fmt.Errorf("cannot use %s: %w", h.device, err)
}

// checkMaxRequest refuses what the kernel would cut down.
func (h host) checkMaxRequest(bytes int) error {
	if limit := h.maxRequest(); bytes > limit {
		return fmt.Errorf("--max-write %s is more than the %s that this kernel allows: raise it with 'sysctl fs.fuse.max_pages_limit=%d' (Linux 6.13 or newer)",
			formatBytes(bytes), formatBytes(limit), bytes/os.Getpagesize())
	}
	return nil
}

func checkFusermount() error {
	if _, err := findFusermount(); err != nil {
		return errors.New("only root can mount without fusermount3, and that is not installed: install the package fuse3")
	}
	return nil
}

// checkUserName wants an entry in the user database, as fusermount3 does: a
// container's user often has none.
func checkUserName(uid int) error {
	const notFound = 2
	err := exec.Command("getent", "passwd", strconv.Itoa(uid)).Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == notFound {
		return fmt.Errorf("user %d has no name, without which fusermount3 does not mount: add a line for it to /etc/passwd", uid)
	}
	return nil // whatever else fails is no reason
}

// checkOwnMountpoint wants what fusermount3 wants of a user's mountpoint.
func checkOwnMountpoint(path string) error {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return fmt.Errorf("MOUNTPOINT %s: %w", path, err)
	}
	uid := os.Geteuid()
	foreignSticky := st.Mode&unix.S_ISVTX != 0 && int(st.Uid) != uid
	if foreignSticky || unix.Faccessat(unix.AT_FDCWD, path, unix.W_OK, unix.AT_EACCESS) != nil {
		return fmt.Errorf("MOUNTPOINT %s is not user %d's own: a user mounts only on directories that he may write to, and owns if they are sticky", path, uid)
	}
	return nil
}

func (h host) checkAllowOther(wanted bool) error {
	if wanted && !h.userAllowOther() {
		return fmt.Errorf("--allow-other is for root only, unless %s has a line 'user_allow_other': add that as root, or drop --allow-other", h.conf)
	}
	return nil
}

func checkUserOptions(words []string) error {
	for _, w := range []string{"suid", "dev"} {
		if slices.Contains(words, w) {
			return fmt.Errorf("-o %s is for root only: drop it", w)
		}
	}
	return nil
}
