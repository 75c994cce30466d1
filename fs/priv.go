package fs

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// With FUSE_HANDLE_KILLPRIV_V2 it is our duty to take the setuid and setgid bits
// and the file capabilities off a file that somebody without CAP_FSETID
// changes, as the kernel does on its own filesystems.

// killPriv does so for an open file of in. The kernel is told, since it goes
// on with the mode that it has cached, even at an execve(2).
func (t *Tree) killPriv(in *inode, fd int, h *fuse.InHeader) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	changed := false
	if mode := withoutPriv(st.Mode, st.Gid, h); mode != st.Mode {
		if err := unix.Fchmod(fd, mode&0o7777); err != nil {
			return err
		}
		changed = true
	}
	switch err := unix.Fremovexattr(fd, "security.capability"); err {
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

// withoutPriv is mode less the bits that a change by the caller takes away.
// Setgid without group execution marks mandatory locking and stays for members
// of the group.
func withoutPriv(mode, gid uint32, h *fuse.InHeader) uint32 {
	if mode&unix.S_IFMT != unix.S_IFREG || mode&(unix.S_ISUID|unix.S_ISGID) == 0 {
		return mode
	}
	c := credentialsOf(h)
	if c.can(unix.CAP_FSETID) {
		return mode
	}
	if mode&unix.S_IXGRP != 0 || !c.in(gid) {
		mode &^= unix.S_ISGID
	}
	return mode &^ unix.S_ISUID
}

// changeNothing answers a SETATTR that sets nothing. The kernel sends it before
// a write in passthrough, and for a chown(2) to nobody; either way, what a
// change would take off is to go.
func (t *Tree) changeNothing(in *inode, g grip, req *fuse.SetAttrIn) error {
	if in.key.typ != unix.S_IFREG {
		return nil
	}
	in.mu.Lock()
	writers := in.opened.writers
	in.mu.Unlock()
	if writers == 0 {
		if err := mayChown(g, &req.InHeader); err != nil {
			return err
		}
	}
	if g.opened {
		return t.killPriv(in, g.fd, &req.InHeader)
	}
	fd, err := unix.Open(procPath(g.fd), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer close_(fd)
	return t.killPriv(in, fd, &req.InHeader)
}

// mayChown refuses who is neither the owner nor privileged, if there is
// anything to take off; the kernel itself checks only changes of owner.
func mayChown(g grip, h *fuse.InHeader) error {
	var st unix.Stat_t
	if err := unix.Fstat(g.fd, &st); err != nil {
		return err
	}
	if h.Uid == st.Uid || withoutPriv(st.Mode, st.Gid, h) == st.Mode || credentialsOf(h).can(unix.CAP_FOWNER) {
		return nil
	}
	return unix.EPERM
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
