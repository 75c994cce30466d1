package fs

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"tunefs/policy"
)

// make creates name in the directory node by a call on its descriptor, as the
// caller, and tells the kernel what it became.
func (t *Tree) make(h *fuse.InHeader, name string, out *fuse.EntryOut, call func(dirfd int) error) fuse.Status {
	parent := t.inode(h.NodeId)
	if parent == nil {
		return fuse.Status(unix.ESTALE)
	}
	d, err := t.directory(parent)
	if err != nil {
		return t.status(err)
	}
	defer d.release()
	if err := t.asCaller(h, func() error { return call(d.fd) }); err != nil {
		return t.status(missing(d.fd, err))
	}
	return t.status(t.lookupIn(parent, d.fd, name, out))
}

// Mknod is part of fuse.RawFileSystem.
func (t *Tree) Mknod(_ <-chan struct{}, req *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	return t.make(&req.InHeader, name, out, func(dirfd int) error {
		// The protocol's device number is the kernel's old encoding, which
		// for all it can hold is mknod(2)'s as well.
		return unix.Mknodat(dirfd, name, createMode(dirfd, req.Mode, req.Umask), int(req.Rdev))
	})
}

// Mkdir is part of fuse.RawFileSystem.
func (t *Tree) Mkdir(_ <-chan struct{}, req *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	return t.make(&req.InHeader, name, out, func(dirfd int) error {
		return unix.Mkdirat(dirfd, name, createMode(dirfd, req.Mode, req.Umask))
	})
}

// Symlink is part of fuse.RawFileSystem.
func (t *Tree) Symlink(_ <-chan struct{}, req *fuse.InHeader, target, name string, out *fuse.EntryOut) fuse.Status {
	return t.make(req, name, out, func(dirfd int) error {
		return unix.Symlinkat(target, dirfd, name)
	})
}

// Link is part of fuse.RawFileSystem.
func (t *Tree) Link(_ <-chan struct{}, req *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	in, parent := t.inode(req.Oldnodeid), t.inode(req.NodeId)
	if in == nil || parent == nil {
		return fuse.Status(unix.ESTALE)
	}
	d, err := t.directory(parent)
	if err != nil {
		return t.status(err)
	}
	defer d.release()
	g, err := t.grab(in)
	if err != nil {
		return t.status(err)
	}
	defer g.release()
	if err := linkFD(g.fd, d.fd, name); err != nil {
		return t.status(err)
	}
	var st unix.Statx_t
	if err := statFD(g.fd, &st); err != nil {
		return t.status(err)
	}
	t.enter(parent, d.fd, name, &st, busy, out)
	return fuse.OK
}

// linkFD gives the object behind fd one more name. Without the privilege for
// AT_EMPTY_PATH the way round is /proc.
func linkFD(fd, dirfd int, name string) error {
	err := unix.Linkat(fd, "", dirfd, name, unix.AT_EMPTY_PATH)
	if err == unix.ENOENT {
		err = unix.Linkat(unix.AT_FDCWD, procPath(fd), dirfd, name, unix.AT_SYMLINK_FOLLOW)
	}
	return err
}

// Create is part of fuse.RawFileSystem: it makes and opens a regular file.
func (t *Tree) Create(_ <-chan struct{}, req *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	parent := t.inode(req.NodeId)
	if parent == nil {
		return fuse.Status(unix.ESTALE)
	}
	d, err := t.directory(parent)
	if err != nil {
		return t.status(err)
	}
	defer d.release()
	fd, io := -1, t.decideAt(parent, name).IO
	err = t.asCaller(&req.InHeader, func() (err error) {
		flags := t.openFlags(req.Flags, io) | unix.O_CREAT | unix.O_EXCL
		fd, err = t.openAt(d.fd, name, flags, createMode(d.fd, req.Mode, req.Umask))
		return err
	})
	if err == unix.EEXIST && req.Flags&unix.O_EXCL == 0 {
		// Something has appeared there since the kernel looked. Whether the
		// caller may open that, only the kernel can say, when it looks again.
		err = unix.ESTALE
	}
	if err != nil {
		return t.status(missing(d.fd, err))
	}
	return t.finishCreate(req, parent, name, fd, io, out)
}

// finishCreate takes fd over.
func (t *Tree) finishCreate(req *fuse.CreateIn, parent *inode, name string, fd int, io policy.IO, out *fuse.CreateOut) fuse.Status {
	var st unix.Statx_t
	if err := statFD(fd, &st); err != nil {
		close_(fd)
		return t.status(err)
	}
	in := t.inodes.ref(identityOf(&st))
	if name != "" {
		t.found(in, parent, name, &st, busy)
	}
	if err := t.handle(in, fd, io, req.Flags, &st, &out.OpenOut); err != nil {
		t.forget(in, 1)
		return t.status(err)
	}
	t.fillEntry(in, &st, &out.EntryOut)
	return fuse.OK
}

// Tmpfile is part of fuse.RawFileSystem: it opens a file without a name.
func (t *Tree) Tmpfile(_ <-chan struct{}, req *fuse.CreateIn, out *fuse.CreateOut) fuse.Status {
	parent := t.inode(req.NodeId)
	if parent == nil {
		return fuse.Status(unix.ESTALE)
	}
	d, err := t.directory(parent)
	if err != nil {
		return t.status(err)
	}
	defer d.release()
	fd, io := -1, t.decideAt(parent, "").IO
	err = t.asCaller(&req.InHeader, func() (err error) {
		flags := t.openFlags(req.Flags, io)&^unix.O_NOFOLLOW | unix.O_TMPFILE | int(req.Flags)&unix.O_EXCL
		fd, err = t.openAt(d.fd, ".", flags, createMode(d.fd, req.Mode, req.Umask))
		return err
	})
	if err != nil {
		return t.status(err)
	}
	return t.finishCreate(req, parent, "", fd, io, out)
}
