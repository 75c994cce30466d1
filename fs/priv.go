package fs

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// With FUSE_HANDLE_KILLPRIV_V2 it is our duty to take the setuid and setgid bits
// and the file capabilities off a file that somebody without CAP_FSETID
// changes, as the kernel does on its own filesystems.

// killPriv does so before a write to an open file of in.
func (t *Tree) killPriv(in *inode, fd int, h *fuse.InHeader) error {
	return t.takePriv(in, fd, func(st *unix.Stat_t) uint32 {
		if st.Mode&(unix.S_ISUID|unix.S_ISGID) == 0 {
			return st.Mode
		}
		c := credentialsOf(h)
		if c.can(unix.CAP_FSETID) {
			return st.Mode
		}
		return withoutPriv(st.Mode, c.in(st.Gid))
	})
}

// takePriv gives an open file of in the mode that left says, and takes its
// capabilities. The kernel is told, since it goes on with the mode that it has
// cached, even at an execve(2).
func (t *Tree) takePriv(in *inode, fd int, left func(*unix.Stat_t) uint32) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	changed := false
	if mode := left(&st); mode != st.Mode {
		if err := unix.Fchmod(fd, mode&0o7777); err != nil {
			return err
		}
		changed = true
	}
	switch err := unix.Fremovexattr(fd, capability); err {
	case nil:
		changed = true
	case unix.ENODATA, unix.ENOTSUP, unix.EPERM: // EPERM: only root can have set it
	default:
		return err
	}
	if changed {
		t.kernel.InodeNotify(in.id, -1, 0)
	}
	return nil
}

// withoutPriv is mode less the bits that a change takes away. Setgid without
// group execution marks mandatory locking and stays for members of the group.
func withoutPriv(mode uint32, member bool) uint32 {
	if mode&unix.S_IFMT == unix.S_IFDIR {
		return mode
	}
	if mode&unix.S_IXGRP != 0 || !member {
		mode &^= unix.S_ISGID
	}
	return mode &^ unix.S_ISUID
}

// changeNothing answers a SETATTR that sets nothing. It is either what the
// kernel sends before a write, an fallocate or the like, to have taken off what
// those take off, or a chown(2) to nobody. Which of them, the
// request does not say, so while the file is open for writing it passes for a
// write. From the privileged a write comes with such a request only if the file
// had capabilities.
func (t *Tree) changeNothing(in *inode, g grip, h *fuse.InHeader) error {
	if in.key.typ != unix.S_IFREG {
		_, err := t.chownNobody(g, h)
		return err
	}
	fd := g.fd
	if !g.opened {
		var err error
		if fd, err = unix.Open(procPath(g.fd), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err != nil {
			return err
		}
		defer close_(fd)
	}
	if in.isWritten() && (in.lostCapability.Swap(false) || !credentialsOf(h).can(unix.CAP_FSETID)) {
		return t.killPriv(in, fd, h)
	}
	left, err := t.chownNobody(g, h)
	if err != nil {
		return err
	}
	return t.takePriv(in, fd, func(*unix.Stat_t) uint32 { return left })
}

// capability is the extended attribute that holds a program's capabilities.
const capability = "security.capability"

// chownNobody does to the mode what chown(2) with neither owner nor group still
// does, and returns what is left of it.
func (t *Tree) chownNobody(g grip, h *fuse.InHeader) (left uint32, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(g.fd, &st); err != nil {
		return 0, err
	}
	c := credentialsOf(h)
	left = withoutPriv(st.Mode, c.in(st.Gid) || c.can(unix.CAP_FSETID))
	if left == st.Mode {
		return left, nil
	}
	if h.Uid != st.Uid && !c.can(unix.CAP_FOWNER) {
		return 0, unix.EPERM
	}
	return left, chmodGrip(g, left&0o7777)
}

// dropSetgid takes setgid off an object, once mode and group of gid, that the
// caller changed from outside its group, as the kernel does where it knows who
// that is. Behind us it sees only root.
func dropSetgid(h *fuse.InHeader, mode, gid uint32, chmod func(mode uint32) error) error {
	if h.Uid == 0 || mode&unix.S_ISGID == 0 {
		return nil
	}
	if c := credentialsOf(h); c.in(gid) || c.can(unix.CAP_FSETID) {
		return nil
	}
	return chmod(mode & 0o7777 &^ unix.S_ISGID)
}
