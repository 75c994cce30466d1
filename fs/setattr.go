package fs

import (
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
	for _, set := range []func(grip, *fuse.SetAttrIn) error{setOwner, setMode, setSize, setTimes} {
		if err := set(g, req); err != nil {
			return t.status(err)
		}
	}
	const noChange = fuse.FATTR_FH | fuse.FATTR_LOCKOWNER | fuse.FATTR_KILL_SUIDGID
	if req.Valid&^noChange == 0 && in.key.typ == unix.S_IFREG {
		// A request that changes nothing is how the kernel, before it writes
		// in passthrough for somebody without the right to keep them, asks us
		// to clear setuid and the like.
		if err := killPrivAt(g, req); err != nil {
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
			f.refs.Add(1)
			return grip{fd: f.fd, opened: true, file: f}, nil
		}
	}
	return t.grab(in)
}

func setOwner(g grip, req *fuse.SetAttrIn) error {
	uid, hasUID := req.GetUID()
	gid, hasGID := req.GetGID()
	if !hasUID && !hasGID {
		return nil
	}
	return unix.Fchownat(g.fd, "", int(int32(uid)), int(int32(gid)), unix.AT_EMPTY_PATH)
}

func setMode(g grip, req *fuse.SetAttrIn) error {
	mode, ok := req.GetMode()
	if !ok {
		return nil
	}
	if g.opened {
		return unix.Fchmod(g.fd, mode)
	}
	return unix.Chmod(procPath(g.fd), mode)
}

func setSize(g grip, req *fuse.SetAttrIn) error {
	size, ok := req.GetSize()
	if !ok {
		return nil
	}
	if g.file != nil && g.file.writes {
		if err := dropPriv(g.fd, req); err != nil {
			return err
		}
		g.file.wrote.Store(true)
		return retry(func() error { return unix.Ftruncate(g.fd, int64(size)) })
	}
	fd, err := unix.Open(procPath(g.fd), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer close_(fd)
	if err := dropPriv(fd, req); err != nil {
		return err
	}
	return retry(func() error { return unix.Ftruncate(fd, int64(size)) })
}

// dropPriv clears setuid and the like where the kernel says that the truncating
// program has no right to keep them.
func dropPriv(fd int, req *fuse.SetAttrIn) error {
	if req.Valid&fuse.FATTR_KILL_SUIDGID == 0 {
		return nil
	}
	return killPriv(fd, &req.InHeader)
}

func setTimes(g grip, req *fuse.SetAttrIn) error {
	const any = fuse.FATTR_ATIME | fuse.FATTR_MTIME
	if req.Valid&any == 0 {
		return nil
	}
	times := [2]unix.Timespec{
		timespec(req.Valid, fuse.FATTR_ATIME, fuse.FATTR_ATIME_NOW, req.Atime, req.Atimensec),
		timespec(req.Valid, fuse.FATTR_MTIME, fuse.FATTR_MTIME_NOW, req.Mtime, req.Mtimensec),
	}
	return unix.UtimesNanoAt(g.fd, "", times[:], unix.AT_EMPTY_PATH)
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

// killPrivAt is killPriv for an object that may not be open.
func killPrivAt(g grip, req *fuse.SetAttrIn) error {
	if g.opened {
		return killPriv(g.fd, &req.InHeader)
	}
	fd, err := unix.Open(procPath(g.fd), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer close_(fd)
	return killPriv(fd, &req.InHeader)
}
