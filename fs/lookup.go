package fs

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// enter makes the object with attributes st, seen as name in parent, which is
// open as dirfd, known to the kernel: it counts one lookup and fills the reply.
func (t *Tree) enter(parent *inode, dirfd int, name string, st *unix.Statx_t, since renames, out *fuse.EntryOut) {
	in := t.current(t.inodes.ref(identityOf(st)), dirfd, name, st)
	t.found(in, parent, name, st, since)
	t.fillEntry(in, st, out)
}

// Lookup is part of fuse.RawFileSystem.
func (t *Tree) Lookup(_ <-chan struct{}, req *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	parent := t.inode(req.NodeId)
	if parent == nil {
		return fuse.Status(unix.ESTALE)
	}
	d, err := t.directory(parent)
	if err != nil {
		return t.status(err)
	}
	defer d.release()
	return t.status(t.lookupIn(parent, d.fd, name, out))
}

func (t *Tree) lookupIn(parent *inode, dirfd int, name string, out *fuse.EntryOut) error {
	var st unix.Statx_t
	since := t.renamesNow()
	if err := statAt(dirfd, name, &st); err != nil {
		return missing(dirfd, err)
	}
	t.enter(parent, dirfd, name, &st, since, out)
	return nil
}

// missing makes ESTALE of ENOENT if the directory itself was removed behind our
// back: then the kernel looks for what has taken its place.
func missing(dirfd int, err error) error {
	var st unix.Statx_t
	if err == unix.ENOENT && statFD(dirfd, &st) == nil && st.Nlink == 0 {
		return unix.ESTALE
	}
	return err
}

// Forget is part of fuse.RawFileSystem.
func (t *Tree) Forget(node, n uint64) {
	if in := t.inode(node); in != nil {
		t.forget(in, n)
		t.dropUnreachable(in)
	}
}

// Readlink is part of fuse.RawFileSystem.
func (t *Tree) Readlink(_ <-chan struct{}, req *fuse.InHeader) ([]byte, fuse.Status) {
	in := t.inode(req.NodeId)
	if in == nil {
		return nil, fuse.Status(unix.ESTALE)
	}
	g, err := t.grab(in)
	if err != nil {
		return nil, t.status(err)
	}
	defer g.release()
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(g.fd, "", buf)
	if err != nil {
		return nil, t.status(err)
	}
	return buf[:n], fuse.OK
}
