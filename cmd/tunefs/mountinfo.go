package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// fsType is what /proc/mounts calls our mounts; other software finds them by it.
const fsType = "fuse.tunefs"

// mountEntry is a line of /proc/PID/mountinfo.
type mountEntry struct {
	id     int    // of the mount, as statx has it
	device string // major:minor of the filesystem
	point  string // where it is mounted
	fstype string
	source string
}

// connection is the number under which the kernel knows a FUSE mount's
// connection to its daemon: the minor of its device.
func (m mountEntry) connection() string {
	_, minor, _ := strings.Cut(m.device, ":")
	return minor
}

// readMounts lists the mounts of this process's mount namespace, in the order
// in which they cover each other.
func readMounts() ([]mountEntry, error) { return readMountsOf("self") }

// readMountsOf is readMounts for the mount namespace of the process pid.
func readMountsOf(pid string) ([]mountEntry, error) {
	f, err := os.Open(filepath.Join("/proc", pid, "mountinfo"))
	if err != nil {
		return nil, err
	}
	defer f.Close() // nothing was written
	return parseMounts(f)
}

func parseMounts(r io.Reader) ([]mountEntry, error) {
	var mounts []mountEntry
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20) // an overlay's options alone can fill a page
	for lines.Scan() {
		m, err := parseMountLine(lines.Text())
		if err != nil {
			return nil, err
		}
		mounts = append(mounts, m)
	}
	return mounts, lines.Err()
}

// parseMountLine reads one line:
// id parent major:minor root point options [optional...] - type source superoptions
func parseMountLine(line string) (mountEntry, error) {
	front, back, _ := strings.Cut(line, " - ")
	f, b := strings.Fields(front), strings.Fields(back)
	if len(f) < 6 || len(b) < 1 {
		return mountEntry{}, fmt.Errorf("mountinfo: cannot read %q", line)
	}
	id, err := strconv.Atoi(f[0])
	if err != nil {
		return mountEntry{}, fmt.Errorf("mountinfo: cannot read %q: %w", line, err)
	}
	m := mountEntry{id: id, device: f[2], point: unescapeOctal(f[4]), fstype: b[0]}
	if len(b) > 1 {
		m.source = unescapeOctal(b[1])
	}
	return m, nil
}

// unescapeOctal undoes the kernel's escapes, such as \040 for a blank.
func unescapeOctal(s string) string {
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		out.WriteByte(s[i])
	}
	return out.String()
}

// mountAt returns the topmost mount at path, if path is a mountpoint. It does
// not touch what is mounted there, which may be dead or hang.
func mountAt(path string) (mountEntry, bool, error) {
	mounts, err := readMounts()
	if err != nil {
		return mountEntry{}, false, err
	}
	point, err := resolve(path)
	if err != nil {
		return mountEntry{}, false, nil // what isn't there is no mountpoint
	}
	m, ok := topmost(mounts, point)
	return m, ok, nil
}

// resolve makes path absolute and free of symlinks, as filepath.EvalSymlinks
// does, but without looking at what it leads to: reading a link that isn't one
// asks nothing of a filesystem that is mounted there.
func resolve(path string) (string, error) {
	const most = 40 // symlinks, as in the kernel
	for range most {
		abs, err := filepath.Abs(path)
		if err != nil {
			return "", err
		}
		parent, err := filepath.EvalSymlinks(filepath.Dir(abs))
		if err != nil {
			return "", err
		}
		path = filepath.Join(parent, filepath.Base(abs))
		target, err := os.Readlink(path)
		if err != nil {
			return path, nil
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(parent, target)
		}
		path = target
	}
	return "", &os.PathError{Op: "resolve", Path: path, Err: unix.ELOOP}
}

// topmost returns the last of the mounts at point, which covers the others.
func topmost(mounts []mountEntry, point string) (found mountEntry, ok bool) {
	for _, m := range mounts {
		if m.point == point {
			found, ok = m, true
		}
	}
	return found, ok
}
