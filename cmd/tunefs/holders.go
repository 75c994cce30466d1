package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// maxHolders is how many holders of a busy mount are worth naming.
const maxHolders = 10

// holder is a process that keeps a mount busy.
type holder struct {
	pid  string
	comm string
	how  string // what it does below the mountpoint
}

func (h holder) String() string { return fmt.Sprintf("pid %s (%s: %s)", h.pid, h.comm, h.how) }

// whoHolds says who keeps the mount at point busy, in words for people. The
// processes in except are left out: the daemon itself holds descriptors below
// point if SOURCE is mounted over itself. It reads /proc only and touches
// nothing below point. point is a path without symlinks.
func whoHolds(point string, except ...string) string {
	var words []string
	mounts, _ := readMounts() // then the mounts go unmentioned
	for _, m := range mounts {
		if m.point != point && under(point, m.point) {
			words = append(words, "a mount at "+m.point)
		}
	}
	holders, more := findHolders(point, except)
	for _, h := range holders {
		words = append(words, h.String())
	}
	switch {
	case len(words) == 0:
		return "something that this user may not see"
	case more:
		words = append(words, "and more")
	}
	return strings.Join(words, ", ")
}

// findHolders lists the first processes that use something below point, and
// whether there are more.
func findHolders(point string, except []string) (found []holder, more bool) {
	for _, pid := range processes(except) {
		how := usesBelow(pid, point)
		if how == "" {
			continue
		}
		if len(found) == maxHolders {
			return found, true
		}
		found = append(found, holder{pid, comm(pid), how})
	}
	return found, false
}

// processes lists the pids in /proc, in its order, but for those in except.
func processes(except []string) []string {
	names, _ := filepath.Glob("/proc/[0-9]*") // only a bad pattern can fail
	var pids []string
	for _, name := range names {
		pid := filepath.Base(name)
		if !slices.Contains(except, pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func comm(pid string) string {
	b, err := os.ReadFile(filepath.Join("/proc", pid, "comm"))
	if err != nil {
		return "?" // it has just ended
	}
	return strings.TrimSpace(string(b))
}

// usesBelow says how the process uses something below point; "" if it doesn't,
// or if that is not for us to see.
func usesBelow(pid, point string) string {
	dir := filepath.Join("/proc", pid)
	for _, link := range []struct{ name, how string }{
		{"cwd", "working directory"}, {"root", "root directory"}, {"exe", "program"},
	} {
		if path, err := os.Readlink(filepath.Join(dir, link.name)); err == nil && under(point, path) {
			return link.how + " " + path
		}
	}
	fds, _ := os.ReadDir(filepath.Join(dir, "fd")) // none if not ours to see
	for _, fd := range fds {
		if path, err := os.Readlink(filepath.Join(dir, "fd", fd.Name())); err == nil && under(point, path) {
			return "open file " + path
		}
	}
	return mapsBelow(filepath.Join(dir, "maps"), point)
}

// mapsBelow looks for a mapped file below point in a /proc/PID/maps.
func mapsBelow(maps, point string) string {
	b, err := os.ReadFile(maps)
	if err != nil || !bytes.Contains(b, []byte(point)) {
		return ""
	}
	lines := bufio.NewScanner(bytes.NewReader(b))
	for lines.Scan() {
		if i := strings.IndexByte(lines.Text(), '/'); i >= 0 && under(point, lines.Text()[i:]) {
			return "mapped file " + lines.Text()[i:]
		}
	}
	return ""
}

// under reports whether path is dir or below it. Both are clean and absolute.
func under(dir, path string) bool {
	rest, ok := strings.CutPrefix(path, dir)
	return ok && (rest == "" || rest[0] == '/' || dir == "/")
}

// daemonsOf lists the processes that serve the FUSE connection: those with a
// /dev/fuse descriptor of it. Empty if they are somebody else's, or if the
// kernel does not tell connections apart there (before Linux 6.16).
func daemonsOf(connection string) []int {
	var pids []int
	for _, pid := range processes(nil) {
		if !serves(filepath.Join("/proc", pid), connection) {
			continue
		}
		if n, err := strconv.Atoi(pid); err == nil {
			pids = append(pids, n)
		}
	}
	return pids
}

func serves(process, connection string) bool {
	fds, _ := os.ReadDir(filepath.Join(process, "fd")) // none if not ours to see
	for _, fd := range fds {
		if path, err := os.Readlink(filepath.Join(process, "fd", fd.Name())); err != nil || path != "/dev/fuse" {
			continue
		}
		info, err := os.ReadFile(filepath.Join(process, "fdinfo", fd.Name()))
		if err == nil && bytes.Contains(info, []byte("fuse_connection:\t"+connection+"\n")) {
			return true
		}
	}
	return false
}
