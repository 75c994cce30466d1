package tests

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// mountEntry is one line of /proc/self/mountinfo.
type mountEntry struct {
	Dir     string // mount point
	Minor   int    // the device's minor number: the name of the connection under /sys/fs/fuse/connections
	Options string // options of this mount and of its filesystem
	Type    string // such as fuse.tunefs
	Source  string
}

// mountsBelow lists what is mounted on dir or below it, innermost and latest first. It never
// touches the mounts themselves, which may hang.
func mountsBelow(dir string) ([]mountEntry, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var found []mountEntry
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		e := parseMountinfo(lines.Text())
		if e.Dir == dir || strings.HasPrefix(e.Dir, dir+"/") {
			found = append(found, e)
		}
	}
	slices.Reverse(found)
	return found, lines.Err()
}

// parseMountinfo reads "36 35 98:0 /root /dir options optional - type source superoptions".
func parseMountinfo(line string) mountEntry {
	front, back, _ := strings.Cut(line, " - ")
	f, b := strings.Fields(front), strings.Fields(back)
	_, minor, _ := strings.Cut(f[2], ":")
	n, _ := strconv.Atoi(minor)
	return mountEntry{
		Dir:     unescapeMountinfo(f[4]),
		Minor:   n,
		Options: f[5] + "," + b[len(b)-1],
		Type:    b[0],
		Source:  unescapeMountinfo(b[1]),
	}
}

// unescapeMountinfo undoes the octal escapes of blanks and backslashes.
func unescapeMountinfo(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// abort ends every request of a FUSE mount with ENOTCONN, also those that hang. Root only.
func (e mountEntry) abort() error {
	const control = "/sys/fs/fuse/connections"
	if !strings.HasPrefix(e.Type, "fuse") || os.Geteuid() != 0 {
		return nil
	}
	path := filepath.Join(control, strconv.Itoa(e.Minor), "abort")
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		if err := unix.Mount("fusectl", control, "fusectl", 0, ""); err != nil {
			return fmt.Errorf("mounting fusectl: %w", err)
		}
	}
	return os.WriteFile(path, []byte("1"), 0)
}

// detach takes the mount out of the tree at once, busy or not.
func (e mountEntry) detach() error {
	if os.Geteuid() == 0 {
		return unix.Unmount(e.Dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	}
	if out, err := exec.Command("fusermount3", "-u", "-z", e.Dir).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// reaper waits for the test process to end, however it ends, and then unmounts and removes what is
// left below the folder it was given. A mount left behind is a failure: the exit status says so.
func reaper() int {
	dir := os.Args[1]
	_, _ = io.Copy(io.Discard, os.Stdin) // whatever ends it, the test process is gone
	code := 0
	for range 10 {
		left, err := mountsBelow(dir)
		if err != nil {
			fmt.Println("reaper:", err)
			return 1
		}
		if len(left) == 0 {
			break
		}
		code = 1
		for _, e := range left {
			fmt.Printf("reaper: %s was left mounted (abort: %v, detach: %v)\n", e.Dir, e.abort(), e.detach())
		}
		time.Sleep(100 * time.Millisecond)
	}
	if left, err := mountsBelow(dir); err != nil || len(left) > 0 {
		fmt.Printf("reaper: cannot unmount %v: %v\n", left, err)
		return 1
	}
	if err := clearInodeFlags(dir); err != nil {
		fmt.Println("reaper:", err)
	}
	if err := os.RemoveAll(dir); err != nil {
		fmt.Println("reaper:", err)
		return 1
	}
	return code
}

// clearInodeFlags takes the immutable and append-only flags off everything below dir, so that it can
// be removed. Only root could have set them.
func clearInodeFlags(dir string) error {
	const frozen = unix.STATX_ATTR_IMMUTABLE | unix.STATX_ATTR_APPEND
	if os.Geteuid() != 0 {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !(d.IsDir() || d.Type().IsRegular()) {
			return err
		}
		var st unix.Statx_t
		if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, 0, &st); err != nil || st.Attributes&frozen == 0 {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS)
		if err != nil {
			return err
		}
		return unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags&^(fsImmutable|fsAppend))
	})
}
