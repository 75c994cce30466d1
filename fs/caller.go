package fs

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// asCaller runs f with the caller's user and group as those of new objects, so
// that they have their owner from the first moment they can be seen. The
// rights stay the daemon's: the kernel has checked the caller's already, with
// all groups of the caller, which we don't know.
func (t *Tree) asCaller(h *fuse.InHeader, f func() error) error {
	if !t.asRoot || h.Uid == 0 && h.Gid == 0 {
		return f()
	}
	// The ids are the thread's. Go starts no new thread from a locked one, so
	// no other inherits them.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// With this bit a change of user leaves the thread's capabilities alone.
	const secbitNoSetuidFixup = 1 << 2
	if _, _, errno := unix.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_SECUREBITS, secbitNoSetuidFixup, 0); errno != 0 {
		return errno
	}
	setFSID(unix.SYS_SETFSGID, h.Gid)
	setFSID(unix.SYS_SETFSUID, h.Uid)
	defer func() {
		setFSID(unix.SYS_SETFSUID, 0)
		setFSID(unix.SYS_SETFSGID, 0)
	}()
	return f()
}

// setFSID calls setfsuid(2) or setfsgid(2), which cannot fail with CAP_SETUID
// and CAP_SETGID and do not say so if they do.
func setFSID(call uintptr, id uint32) { unix.RawSyscall(call, uintptr(id), 0, 0) }

// createMode applies the caller's umask, unless the directory has a default
// ACL, which takes its place.
func createMode(dirfd int, mode, umask uint32) uint32 {
	if mode&umask&0o777 == 0 {
		return mode
	}
	if n, err := unix.Getxattr(procPath(dirfd), "system.posix_acl_default", nil); err == nil && n > 0 {
		return mode
	}
	return mode &^ (umask & 0o777)
}

// credentials are what /proc knows of a process and a request does not carry.
type credentials struct {
	groups       []uint32
	capabilities uint64
}

func (c credentials) can(capability uint) bool { return c.capabilities>>capability&1 == 1 }

func (c credentials) in(gid uint32) bool {
	for _, g := range c.groups {
		if g == gid {
			return true
		}
	}
	return false
}

// credentialsOf reads the supplementary groups and effective capabilities of
// a caller. A caller that cannot be seen (it has gone, or is in another pid
// namespace) has none.
func credentialsOf(h *fuse.InHeader) credentials {
	c := credentials{groups: []uint32{h.Gid}}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", h.Pid))
	if h.Pid == 0 || err != nil {
		return c
	}
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(line, ":")
		switch key {
		case "Groups":
			for _, g := range strings.Fields(value) {
				if n, err := strconv.ParseUint(g, 10, 32); err == nil {
					c.groups = append(c.groups, uint32(n))
				}
			}
		case "CapEff":
			c.capabilities, _ = strconv.ParseUint(strings.TrimSpace(value), 16, 64)
		}
	}
	return c
}
