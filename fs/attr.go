package fs

import (
	"math/bits"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"tunefs/policy"
)

// decide asks policy about in. Rules depend on the path; without any it is
// the same for all.
func (t *Tree) decide(in *inode) policy.Decision {
	if t.Policy.Static() {
		return t.Policy.Decide("")
	}
	return t.Policy.Decide(t.path(in))
}

// decideAt asks policy about name in parent; an empty one has no path.
func (t *Tree) decideAt(parent *inode, name string) policy.Decision {
	switch {
	case t.Policy.Static() || name == "":
		return t.Policy.Decide("")
	case parent == t.root:
		return t.Policy.Decide(name)
	}
	return t.Policy.Decide(t.path(parent) + "/" + name)
}

// path is where in was last seen below the mountpoint. It is for rules and
// messages only; nothing is opened by it.
func (t *Tree) path(in *inode) string {
	var parts []string
	n := 0
	for depth := 0; in != t.root && depth < maxDepth; depth++ {
		in.mu.Lock()
		if len(in.links) == 0 {
			in.mu.Unlock()
			break
		}
		l := in.links[len(in.links)-1]
		in.mu.Unlock()
		parts = append(parts, l.name)
		n += len(l.name) + 1
		in = l.parent
	}
	buf := make([]byte, 0, n)
	for i := len(parts) - 1; i >= 0; i-- {
		buf = append(buf, parts[i]...)
		if i > 0 {
			buf = append(buf, '/')
		}
	}
	return string(buf)
}

// decidedBit marks a decision as known in inode.decided, below which stand
// log2(size)+1 (0 for native) and above it the layout it was made under.
const decidedBit = 1 << 6

// blksize is the st_blksize to report of in, in bytes; native is what its
// backing object says.
func (t *Tree) blksize(in *inode, native uint32) uint32 {
	if t.Policy.Static() {
		return orNative(t.Policy.Blksize, native)
	}
	layout := uint64(t.layout.Load())
	if d := in.decided.Load(); d&decidedBit != 0 && d>>32 == layout {
		if shift := d & (decidedBit - 1); shift > 0 {
			return 1 << (shift - 1)
		}
		return native
	}
	b := t.decide(in).Blksize
	if in.placed() {
		in.decided.Store(layout<<32 | decidedBit | uint64(bits.Len32(uint32(b))))
	}
	return orNative(b, native)
}

func orNative(b policy.Blksize, native uint32) uint32 {
	if b == policy.Native {
		return native
	}
	return uint32(b)
}

// inoOf is the inode number to show: the backing one, made distinct for
// filesystems mounted below SOURCE, since programs see one st_dev.
func (t *Tree) inoOf(key identity) uint64 {
	if key.dev == t.rootDev {
		return key.ino
	}
	const golden = 0x9E3779B97F4A7C15 // 2^64 divided by the golden ratio spreads the device over the high bits
	return key.ino ^ (key.dev*golden)&^0xFFFFFFFF
}

// fill is the one place where attributes become a reply, so that all replies
// agree on the block size.
func (t *Tree) fill(in *inode, st *unix.Statx_t, a *fuse.Attr) {
	a.Ino = t.inoOf(in.key)
	a.Size = st.Size
	a.Blocks = st.Blocks
	a.Atime, a.Atimensec = uint64(st.Atime.Sec), st.Atime.Nsec
	a.Mtime, a.Mtimensec = uint64(st.Mtime.Sec), st.Mtime.Nsec
	a.Ctime, a.Ctimensec = uint64(st.Ctime.Sec), st.Ctime.Nsec
	a.Mode = uint32(st.Mode)
	a.Nlink = st.Nlink
	a.Uid, a.Gid = st.Uid, st.Gid
	// The protocol has 32 bits for a device number: the kernel's old encoding.
	a.Rdev = st.Rdev_minor&0xff | st.Rdev_major<<8 | st.Rdev_minor&^0xff<<12
	a.Blksize = t.blksize(in, st.Blksize)
}

// attrTimeout is how long the kernel may keep the attributes st of in, which it
// is about to get. While a file is open for writing in passthrough the kernel
// does not tell us of writes through a mapping, so their times would be stale.
func (t *Tree) attrTimeout(in *inode, st *unix.Statx_t) time.Duration {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.opened.unseen() {
		return 0
	}
	in.opened.sent = versionOf(st)
	return t.AttrTimeout
}

func (t *Tree) fillEntry(in *inode, st *unix.Statx_t, out *fuse.EntryOut) {
	t.overlay(in, st, true)
	if t.writeback && in.key.typ == unix.S_IFREG {
		in.belief.first(st)
	}
	out.NodeId = in.id
	out.SetEntryTimeout(t.EntryTimeout)
	out.SetAttrTimeout(t.attrTimeout(in, st))
	t.fill(in, st, &out.Attr)
}

func (t *Tree) fillAttr(in *inode, st *unix.Statx_t, out *fuse.AttrOut) {
	t.overlay(in, st, false)
	out.SetTimeout(t.attrTimeout(in, st))
	t.fill(in, st, &out.Attr)
}

// statOpen reads attributes through the handle fh if valid says there is one,
// else of the inode.
func (t *Tree) statOpen(in *inode, fh uint64, valid bool, st *unix.Statx_t) error {
	if valid && !in.key.isDir() {
		if f := t.files.get(fh); f != nil {
			return statFD(f.fd, st)
		}
	}
	return t.stat(in, st)
}

// GetAttr is part of fuse.RawFileSystem.
func (t *Tree) GetAttr(_ <-chan struct{}, req *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	in := t.inode(req.NodeId)
	if in == nil {
		return fuse.Status(unix.ESTALE)
	}
	var st unix.Statx_t
	if err := t.statOpen(in, req.Fh(), req.Flags()&fuse.FUSE_GETATTR_FH != 0, &st); err != nil {
		return t.status(err)
	}
	t.fillAttr(in, &st, out)
	return fuse.OK
}

// Statx is part of fuse.RawFileSystem. The kernel asks for it when a program
// wants the birth time.
func (t *Tree) Statx(_ <-chan struct{}, req *fuse.StatxIn, out *fuse.StatxOut) fuse.Status {
	in := t.inode(req.NodeId)
	if in == nil {
		return fuse.Status(unix.ESTALE)
	}
	var st unix.Statx_t
	if err := t.statOpen(in, req.Fh, req.GetattrFlags&fuse.FUSE_GETATTR_FH != 0, &st); err != nil {
		return t.status(err)
	}
	t.overlay(in, &st, false)
	out.FromStatx(&st)
	out.Ino = t.inoOf(in.key)
	out.Blksize = t.blksize(in, st.Blksize)
	out.SetTimeout(t.attrTimeout(in, &st))
	return fuse.OK
}

// StatFs is part of fuse.RawFileSystem.
func (t *Tree) StatFs(_ <-chan struct{}, req *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	in := t.inode(req.NodeId)
	if in == nil {
		in = t.root
	}
	g, err := t.grab(in)
	if err != nil {
		return t.status(err)
	}
	defer g.release()
	var sfs unix.Statfs_t
	if err := retry(func() error { return unix.Fstatfs(g.fd, &sfs) }); err != nil {
		return t.status(err)
	}
	out.Blocks, out.Bfree, out.Bavail = sfs.Blocks, sfs.Bfree, sfs.Bavail
	out.Files, out.Ffree = sfs.Files, sfs.Ffree
	out.NameLen = uint32(sfs.Namelen)
	out.Bsize, out.Frsize = uint32(sfs.Bsize), uint32(sfs.Frsize)
	if b := t.StatfsBsize; b != policy.Native {
		t.rescale(out, uint64(b))
	}
	return fuse.OK
}

// rescale reports the space in units of bsize. Programs multiply the counts by
// f_frsize or, wrongly, by f_bsize; with both equal they are right either way.
func (t *Tree) rescale(out *fuse.StatfsOut, bsize uint64) {
	unit := uint64(out.Frsize)
	if unit == 0 {
		unit = uint64(out.Bsize)
	}
	for _, n := range []*uint64{&out.Blocks, &out.Bfree, &out.Bavail} {
		*n = *n * unit / bsize
	}
	out.Bsize, out.Frsize = uint32(bsize), uint32(bsize)
}
