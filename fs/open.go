package fs

import (
	"sync/atomic"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"tunefs/policy"
)

// file is an open regular file. The kernel holds one reference through its
// handle; requests that reach the inode through it hold others for a while.
type file struct {
	in      *inode
	fd      int
	access  uint32       // O_RDONLY, O_WRONLY or O_RDWR
	stage   *stage       // what it is a member of; nil if it is not staged
	gathers bool         // the kernel gathers what is written
	wrote   atomic.Bool  // something was written through the daemon
	direct  atomic.Int32 // a second descriptor, with O_DIRECT, or noDirect; opened when first asked for
	refs    counted      // the descriptors are closed with the last
	slot    int          // place in in.handles; guarded by in.mu
}

func (f *file) writes() bool { return f.access != unix.O_RDONLY }

func (f *file) release() {
	if !f.refs.drop() {
		return
	}
	close_(f.fd)
	if fd := f.direct.Load(); fd > 0 {
		close_(int(fd))
	}
}

// opened is what the open handles of an inode have in common. The kernel wants
// one I/O mode, and one backing file, for all handles of an inode at a time.
type opened struct {
	count   int
	writers int // that may write
	mappers int // that may write through a mapping: the O_RDWR ones
	io      policy.IO
	backing int32   // lent to the kernel while io is Passthrough
	cached  version // of the pages that the kernel may have in its cache
	sent    version // of the attributes that the kernel may have in its cache
}

// version tells one state of a file's contents from another.
type version struct {
	size  uint64
	mtime unix.StatxTimestamp
	ctime unix.StatxTimestamp
}

func versionOf(st *unix.Statx_t) version { return version{st.Size, st.Mtime, st.Ctime} }

// openFlags are the flags that a backing file is opened with for a program's.
// O_APPEND and O_DIRECT stay out, since a program can change them later with
// fcntl(2): each write request says what holds at that moment. O_NONBLOCK keeps
// us from waiting for the other end of a fifo that was swapped in, and does
// nothing on regular files.
func (t *Tree) openFlags(flags uint32, io policy.IO) int {
	keep := int(flags) & (unix.O_ACCMODE | unix.O_SYNC | unix.O_DSYNC)
	if t.writeback && keep&unix.O_ACCMODE == unix.O_WRONLY {
		keep = keep&^unix.O_ACCMODE | unix.O_RDWR // the kernel reads what is left of a page that is written in part
	}
	if io == policy.Staged {
		keep &^= unix.O_SYNC | unix.O_DSYNC // the kernel asks for a sync after each write
	}
	return keep | unix.O_NOFOLLOW | unix.O_NONBLOCK | t.noAtime(flags)
}

// noAtime is O_NOATIME where the program or the mount asks for it: our reads
// of the backing file stand for the program's.
func (t *Tree) noAtime(flags uint32) int {
	if t.NoAtime {
		return unix.O_NOATIME
	}
	return int(flags) & unix.O_NOATIME
}

// Open is part of fuse.RawFileSystem.
func (t *Tree) Open(_ <-chan struct{}, req *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	in := t.inode(req.NodeId)
	if in == nil {
		return fuse.Status(unix.ESTALE)
	}
	io := t.decide(in).IO
	fd, err := t.openFor(in, req.Flags, io)
	if err != nil {
		return t.status(err)
	}
	var st unix.Statx_t
	if err := t.prepareOpen(in, req, fd, &st); err != nil {
		close_(fd)
		return t.status(err)
	}
	if req.Flags&unix.O_TRUNC != 0 {
		in.belief.restore(fd)
	} else if in.stale(&st) && !in.belief.refused.Swap(true) {
		// The kernel looks the name up afresh, unless it has none to look up.
		close_(fd)
		return fuse.Status(unix.ESTALE)
	}
	if err := t.handle(in, fd, io, req.Flags, &st, out); err != nil {
		return t.status(err)
	}
	if t.AttrTimeout > 0 && !t.writeback && in.outdated(&st) {
		t.kernel.InodeNotify(in.id, -1, 0)
	}
	return fuse.OK
}

// prepareOpen does what the open itself is to do to the file, and stats it.
func (t *Tree) prepareOpen(in *inode, req *fuse.OpenIn, fd int, st *unix.Statx_t) error {
	if req.Mode&fuse.OPEN_KILL_SUIDGID != 0 {
		if err := t.killPriv(in, fd, &req.InHeader); err != nil {
			return err
		}
	}
	if req.Flags&unix.O_TRUNC != 0 {
		in.belief.size.Store(0)
		if err := t.truncate(in, 0, func() error { return empty(fd) }); err != nil {
			return err
		}
	}
	return statFD(fd, st)
}

// empty truncates an open file to nothing, also one that is open for reading
// only: Linux lets programs do that at open(2).
func empty(fd int) error {
	return retry(func() error { return unix.Truncate(procPath(fd), 0) })
}

// openFor opens the backing file of in with the flags of a program's open.
func (t *Tree) openFor(in *inode, flags uint32, io policy.IO) (int, error) {
	wanted := t.openFlags(flags, io)
	fd, err := t.open(in, wanted)
	if err == unix.EPERM && flags&unix.O_APPEND != 0 {
		// A file that can only be appended to.
		fd, err = t.open(in, wanted|unix.O_APPEND)
	}
	if err == unix.EACCES && t.writeback && flags&unix.O_ACCMODE == unix.O_WRONLY {
		fd, err = t.open(in, wanted&^unix.O_ACCMODE|unix.O_WRONLY) // one that we may not read
	}
	if err == unix.EAGAIN && flags&unix.O_NONBLOCK == 0 {
		return t.awaitLease(in, wanted)
	}
	if err == unix.EACCES && !t.asRoot {
		// The kernel opens files on its own for a program that has them open
		// already, to set their flags, when it may no longer open them.
		if f := in.like(flags & unix.O_ACCMODE); f != nil {
			defer f.release()
			return unix.FcntlInt(uintptr(f.fd), unix.F_DUPFD_CLOEXEC, 0)
		}
	}
	return fd, err
}

// awaitLease opens a file that somebody has a lease on (a file server, say), as
// soon as that is given up. It is the file for certain, not a fifo to wait at.
func (t *Tree) awaitLease(in *inode, flags int) (int, error) {
	g, err := t.grab(in)
	if err != nil {
		return -1, err
	}
	defer g.release()
	return t.openAt(unix.AT_FDCWD, procPath(g.fd), flags&^(unix.O_NOFOLLOW|unix.O_NONBLOCK), 0)
}

// like returns an open file of in, with a reference for the caller, that may do
// what access says, or nil.
func (in *inode) like(access uint32) *file {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, f := range in.handles {
		if f.access == access || f.access == unix.O_RDWR {
			f.refs.take()
			return f
		}
	}
	return nil
}

// open opens the backing file of in for real.
func (t *Tree) open(in *inode, flags int) (int, error) {
	fd := -1
	err := t.settled(func() error {
		err := t.eachPlace(in, func(dirfd int, name string) (err error) {
			fd, err = t.openVerified(dirfd, name, flags, in.key)
			return err
		})
		if err != unix.ESTALE && err != unix.EACCES {
			return err
		}
		// A file that was unlinked through us, or never had a name, or lies in
		// a folder that is closed to us now, and is still held. If it has names
		// that are wrong, the kernel is to look them up afresh.
		g, ok := in.held()
		if !ok || err == unix.ESTALE && in.placed() {
			g.release()
			return err
		}
		defer g.release()
		fd, err = t.openAt(unix.AT_FDCWD, procPath(g.fd), flags&^unix.O_NOFOLLOW, 0)
		return err
	})
	return fd, err
}

// handle makes an open descriptor, which it takes over, a handle of in, and
// tells the kernel how to do I/O on it, the mode wanted if it can be.
func (t *Tree) handle(in *inode, fd int, wanted policy.IO, flags uint32, st *unix.Statx_t, out *fuse.OpenOut) error {
	f := &file{in: in, fd: fd, access: flags & unix.O_ACCMODE}
	f.refs.start(1)
	if t.writeback && f.writes() && !suitsPages(fd) {
		wanted = policy.Direct
	}
	f.gathers = t.writeback && wanted != policy.Direct
	// While the mount writes a file, the kernel's pages are newer than its
	// backing file, which changes with every flush.
	ours := t.writeback && in.ours()
	if t.stages(f, wanted) {
		if err := t.joinStage(f); err != nil && f.writes() {
			f.release()
			return err
		} // else it is read without
	}

	in.mu.Lock()
	o := &in.opened
	if o.count == 0 {
		o.io = wanted
		if o.io == policy.Passthrough {
			o.backing = t.lend(fd)
			if o.backing == 0 {
				o.io = policy.Cached
			}
		}
	}
	o.tally(f, 1)
	f.slot = len(in.handles)
	in.handles = append(in.handles, f)
	mode := o.io
	if t.writeback {
		mode = wanted // each handle has its own
	}
	switch mode {
	case policy.Passthrough:
		out.OpenFlags = fuse.FOPEN_PASSTHROUGH
		out.BackingID = o.backing
		if flags&(unix.O_APPEND|unix.O_DIRECT) != 0 {
			// The kernel's own backing file has these flags for good. Reads and
			// writes of such a handle come to us, mappings stay passed through.
			out.OpenFlags |= fuse.FOPEN_DIRECT_IO | fuse.FOPEN_PARALLEL_DIRECT_WRITES
		}
	case policy.Direct:
		out.OpenFlags = fuse.FOPEN_DIRECT_IO | fuse.FOPEN_PARALLEL_DIRECT_WRITES
	default:
		// Cached pages outlive a close as long as nobody else has changed the
		// file.
		if v := versionOf(st); ours || o.cached == v {
			out.OpenFlags = fuse.FOPEN_KEEP_CACHE
		} else {
			o.cached = v
		}
	}
	in.mu.Unlock()

	if !t.flush && f.stage == nil || !f.writes() {
		out.OpenFlags |= fuse.FOPEN_NOFLUSH
	}
	out.Fh = t.files.add(f)
	return nil
}

// suitsPages reports whether a descriptor suits pages that the kernel writes
// back: not one that cannot read the rest of such a page, or only append.
func suitsPages(fd int) bool {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	return err == nil && flags&unix.O_ACCMODE == unix.O_RDWR && flags&unix.O_APPEND == 0
}

// lend registers fd with the kernel for passthrough. Zero, which is no valid
// id, says that the kernel refused; why is logged once.
func (t *Tree) lend(fd int) int32 {
	id, errno := t.kernel.RegisterBackingFd(&fuse.BackingMap{Fd: int32(fd)})
	if errno == 0 {
		return id
	}
	if t.warned.first("passthrough " + errno.Error()) {
		t.Log.Warn("the kernel refuses passthrough for a file; such files use its page cache through tunefs instead", "err", errno)
	}
	return 0
}

// Release is part of fuse.RawFileSystem.
func (t *Tree) Release(_ <-chan struct{}, req *fuse.ReleaseIn) {
	f := t.files.remove(req.Fh)
	if f == nil {
		return
	}
	if f.wrote.Load() && f.stage == nil { // else its end does that
		f.in.cacheIs(f.fd)
	}
	backing, nameless := f.in.dropHandle(f)
	if backing != 0 {
		t.kernel.UnregisterBackingFd(backing)
	}
	if nameless {
		// An O_TMPFILE that an O_PATH descriptor may still stand for.
		if fd, err := unix.FcntlInt(uintptr(f.fd), unix.F_DUPFD_CLOEXEC, 0); err == nil {
			t.setPin(f.in, fd)
		}
	}
	if f.stage != nil {
		if f.wrote.Load() {
			f.stage.wrote.Store(true)
		}
		t.leaveStage(f.stage)
	}
	f.release()
}

// cacheIs notes that what the kernel has cached of in is what is in its file,
// open as fd, now.
func (in *inode) cacheIs(fd int) {
	var st unix.Statx_t
	if statFD(fd, &st) != nil {
		return
	}
	in.mu.Lock()
	in.opened.cached = versionOf(&st)
	in.mu.Unlock()
}

// dropHandle takes f off in. With the last handle it returns the backing id
// that is to be given back, or zero, and whether nothing is left to reach the
// file by.
func (in *inode) dropHandle(f *file) (backing int32, nameless bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	last := len(in.handles) - 1
	in.handles[f.slot] = in.handles[last]
	in.handles[f.slot].slot = f.slot
	in.handles[last] = nil
	in.handles = in.handles[:last]
	o := &in.opened
	o.tally(f, -1)
	if o.count > 0 {
		return 0, false
	}
	backing, o.backing = o.backing, 0
	return backing, len(in.links) == 0 && in.pin < 0
}

// outdated reports whether the kernel, at an open that found the attributes st,
// may trust others from before.
func (in *inode) outdated(st *unix.Statx_t) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.opened.unseen() || in.opened.sent != versionOf(st)
}

// tally counts f in, or out with n of -1.
func (o *opened) tally(f *file, n int) {
	o.count += n
	if f.writes() {
		o.writers += n
	}
	if f.access == unix.O_RDWR {
		o.mappers += n
	}
}

// unseen reports whether the kernel may write to the backing file without
// telling us: through a mapping of a file in passthrough.
func (o *opened) unseen() bool { return o.io == policy.Passthrough && o.mappers > 0 }
