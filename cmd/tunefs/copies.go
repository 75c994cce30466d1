package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// mountCopy is a further mount of a mounted filesystem: one bound elsewhere, or
// in another mount namespace. It keeps the daemon running.
type mountCopy struct {
	id    int    // of the mount, in its namespace
	space string // the mount namespace, as /proc/PID/ns/mnt has it
	where string // for people
}

// copiesOf lists the mounts of m's filesystem beside m itself, as far as this
// user may see. It tells filesystems apart by their device, so it is right only
// while m or a copy is mounted: then the number goes to the next one.
func copiesOf(m mountEntry) []mountCopy {
	own, _ := os.Readlink("/proc/self/ns/mnt") // then all spaces look foreign
	var copies []mountCopy
	for space, pid := range mountNamespaces() {
		mounts, _ := readMountsOf(pid) // its last process may have ended
		for _, other := range mounts {
			if other.device != m.device || (space == own && other.id == m.id) {
				continue
			}
			where := "at " + other.point
			if space != own {
				where = fmt.Sprintf("in the mount namespace of pid %s (%s)", pid, comm(pid))
			}
			copies = append(copies, mountCopy{other.id, space, where})
		}
	}
	return copies
}

// mountNamespaces maps each mount namespace to the pid of one who lives there.
func mountNamespaces() map[string]string {
	spaces := make(map[string]string)
	for _, pid := range processes(nil) {
		space, err := os.Readlink(filepath.Join("/proc", pid, "ns/mnt"))
		if _, known := spaces[space]; err == nil && !known {
			spaces[space] = pid
		}
	}
	return spaces
}

// remaining says where one of the copies that were there before m was
// unmounted still is; "" if none is, or if there were none. A device number
// that has gone to another filesystem meanwhile does not fool it.
func remaining(before []mountCopy, m mountEntry) string {
	if len(before) == 0 {
		return ""
	}
	for _, now := range copiesOf(m) {
		if slices.ContainsFunc(before, func(c mountCopy) bool { return c.id == now.id && c.space == now.space }) {
			return now.where
		}
	}
	return ""
}
