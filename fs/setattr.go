package fs

import (
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// SetAttr is part of fuse.RawFileSystem.
func (t *Tree) SetAttr(_ <-chan struct{}, req *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	in := t.inode(req.NodeId)
	if in == nil {
		return fuse.Status(unix.ESTALE)
	}
	g, err := t.gripFor(in, req)
	if err != nil {
		return t.status(err)
	}
	defer g.release()
	// Owner before mode, since a change of owner clears setuid; times last,
	// since a change of size sets them.
	for _, set := range []func(*inode, grip, *fuse.SetAttrIn) error{t.setOwner, t.setMode, t.setSize, t.setTimes} {
		if err := set(in, g, req); err != nil {
			return t.status(err)
		}
	}
	const noChange = fuse.FATTR_FH | fuse.FATTR_LOCKOWNER | fuse.FATTR_KILL_SUIDGID | fuse.FATTR_CTIME
	if req.Valid&^noChange == 0 {
		if err := t.changeNothing(in, g, &req.InHeader); err != nil {
			return t.status(err)
		}
	}
	var st unix.Statx_t
	if err := statFD(g.fd, &st); err != nil {
		return t.status(err)
	}
	t.fillAttr(in, &st, out)
	return fuse.OK
}

// gripFor prefers the handle that the request names: with ftruncate(2) it is
// the one that may write.
func (t *Tree) gripFor(in *inode, req *fuse.SetAttrIn) (grip, error) {
	if fh, ok := req.GetFh(); ok && !in.key.isDir() {
		if f := t.files.get(fh); f != nil {
			f.refs.take()
			return grip{fd: f.fd, opened: true, file: f}, nil
		}
	}
	return t.grab(in)
}

func (t *Tree) setOwner(in *inode, g grip, req *fuse.SetAttrIn) error {
	uid, hasUID := req.GetUID()
	gid, hasGID := req.GetGID()
	if !hasUID && !hasGID {
		return nil
	}
	var before unix.Stat_t
	if err := unix.Fstat(g.fd, &before); err != nil {
		return err
	}
	if err := unix.Fchownat(g.fd, "", int(int32(uid)), int(int32(gid)), unix.AT_EMPTY_PATH); err != nil {
		return err
	}
	// Everything else that a change of owner takes off, the backing kernel
	// does; but a member of the group may keep this one, and that it can't see.
	const locking = unix.S_ISGID | unix.S_IXGRP
	if !t.asRoot || in.key.isDir() || before.Mode&locking != unix.S_ISGID {
		return nil
	}
	return dropSetgid(&req.InHeader, before.Mode&^unix.S_ISUID, before.Gid, func(mode uint32) error { return chmodGrip(g, mode) })
}

func (t *Tree) setMode(in *inode, g grip, req *fuse.SetAttrIn) error {
	mode, ok := req.GetMode()
	if !ok {
		return nil
	}
	if mode&(unix.S_ISUID|unix.S_ISGID) != 0 {
		if err := t.settle(in); err != nil {
			return err
		}
	}
	return chmodGrip(g, mode)
}

func chmodGrip(g grip, mode uint32) error {
	if g.opened {
		return unix.Fchmod(g.fd, mode)
	}
	return unix.Chmod(procPath(g.fd), mode)
}

func (t *Tree) setSize(in *inode, g grip, req *fuse.SetAttrIn) error {
	size, ok := req.GetSize()
	if !ok {
		return nil
	}
	fd := g.fd
	if g.file != nil && g.file.writes() {
		g.file.wrote.Store(true)
	} else {
		var err error
		if fd, err = unix.Open(procPath(g.fd), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err != nil {
			return err
		}
		defer close_(fd)
	}
	if req.Valid&fuse.FATTR_KILL_SUIDGID != 0 {
		if err := t.killPriv(in, fd, &req.InHeader); err != nil {
			return err
		}
	}
	err := t.truncate(in, int64(size), func() error {
		return retry(func() error { return unix.Ftruncate(fd, int64(size)) })
	})
	if err == nil {
		in.belief.size.Store(int64(size))
		if t.writeback && req.Valid&fuse.FATTR_MTIME == 0 {
			in.belief.restore(fd)
		}
	}
	return err
}

// truncate calls do, which gives the backing file of in this size, and drops
// what is staged beyond.
func (t *Tree) truncate(in *inode, size int64, do func() error) error {
	s := in.staged()
	if s == nil {
		return do()
	}
	defer s.release(t)
	return s.Truncate(size, patient, do)
}

func (t *Tree) setTimes(in *inode, g grip, req *fuse.SetAttrIn) error {
	if req.Valid&(fuse.FATTR_ATIME|fuse.FATTR_MTIME) == 0 {
		return nil
	}
	times := [2]unix.Timespec{
		timespec(req.Valid, fuse.FATTR_ATIME, fuse.FATTR_ATIME_NOW, req.Atime, req.Atimensec),
		timespec(req.Valid, fuse.FATTR_MTIME, fuse.FATTR_MTIME_NOW, req.Mtime, req.Mtimensec),
	}
	known := in.belief.mtime.Load()
	switch mtime := times[1]; mtime.Nsec { // before the call, for flushes at work
	case unix.UTIME_OMIT:
	case unix.UTIME_NOW:
		in.belief.mtime.Store(time.Now().UnixNano())
	default:
		in.belief.mtime.Store(mtime.Nano())
	}
	err := unix.UtimesNanoAt(g.fd, "", times[:], unix.AT_EMPTY_PATH)
	if err == unix.EPERM && t.writeback && in.isWritten() {
		// The kernel writes back the time of the last write, and only the
		// owner may set one. This is as near as a mere writer can come.
		err = unix.UtimesNanoAt(g.fd, "", []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Nsec: unix.UTIME_NOW}}, unix.AT_EMPTY_PATH)
		in.belief.settle(g.fd)
	} else if err != nil {
		in.belief.mtime.Store(known)
	}
	return err
}

// isWritten reports whether in is open for writing.
func (in *inode) isWritten() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.opened.writers > 0
}

func timespec(valid, set, now uint32, sec uint64, nsec uint32) unix.Timespec {
	switch {
	case valid&set == 0:
		return unix.Timespec{Nsec: unix.UTIME_OMIT}
	case valid&now != 0:
		return unix.Timespec{Nsec: unix.UTIME_NOW}
	}
	return unix.Timespec{Sec: int64(sec), Nsec: int64(nsec)}
}
