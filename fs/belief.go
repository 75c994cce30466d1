package fs

import (
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// belief is the size and mtime that the kernel goes by for a file whose writes
// it gathers: it takes them from the first reply about the inode, and from its
// own writes ever after, whatever else we reply. So a file that others change
// in SOURCE has to become another inode for the kernel to see that.
type belief struct {
	set   atomic.Bool
	size  atomic.Int64 // bytes
	mtime atomic.Int64 // nanoseconds since 1970

	// times, if not nil, is the mtime that the kernel has set while the file
	// was open for writing. It may send data that is older than that later.
	times atomic.Pointer[[2]unix.Timespec]

	refused atomic.Bool // an open was, for the kernel to look the file up afresh
}

func nanoseconds(sec int64, nsec uint32) int64 { return sec*1e9 + int64(nsec) }

// first notes attributes that the kernel is about to get; later ones are
// nothing to it.
func (b *belief) first(st *unix.Statx_t) {
	if !b.set.Load() {
		b.size.Store(int64(st.Size))
		b.mtime.Store(nanoseconds(st.Mtime.Sec, st.Mtime.Nsec))
		b.set.Store(true)
	}
}

// settle notes that what the kernel has done to the file, which it knows, has
// left the mtime of st: on some filesystems not quite the one it asked for.
func (b *belief) settle(st *unix.Statx_t) { b.mtime.Store(nanoseconds(st.Mtime.Sec, st.Mtime.Nsec)) }

// grow notes that the kernel knows of bytes up to end.
func (b *belief) grow(end int64) {
	for {
		size := b.size.Load()
		if end <= size || b.size.CompareAndSwap(size, end) {
			return
		}
	}
}

// keep notes the mtime that the file is about to get.
func (b *belief) keep(mtime unix.Timespec) {
	switch mtime.Nsec {
	case unix.UTIME_OMIT:
	case unix.UTIME_NOW:
		b.times.Store(nil)
	default:
		b.times.Store(&[2]unix.Timespec{{Nsec: unix.UTIME_OMIT}, mtime})
	}
}

// restore undoes what writing to fd has done to the mtime.
func (b *belief) restore(fd int) {
	if times := b.times.Load(); times != nil {
		// What could be set before can be set again; if the file has changed
		// hands since, its new owner's writes may as well move the time.
		_ = unix.UtimesNanoAt(fd, "", times[:], unix.AT_EMPTY_PATH)
	}
}

func (b *belief) agrees(st *unix.Statx_t) bool {
	return b.size.Load() == int64(st.Size) && b.mtime.Load() == nanoseconds(st.Mtime.Sec, st.Mtime.Nsec)
}

// stale reports whether somebody has changed the file in, whose attributes are
// st, without the kernel knowing. While the mount writes to it, nobody can say.
func (t *Tree) stale(in *inode, st *unix.Statx_t) bool {
	return in.belief.set.Load() && in.stage.Load() == nil && !in.belief.agrees(st) && !in.isWritten()
}

// current is in, which has been found as name with the attributes st, or an
// inode in its place if the kernel knows too little of its file. It takes the
// caller's reference and returns one.
func (t *Tree) current(in *inode, dirfd int, name string, st *unix.Statx_t) *inode {
	if !t.stale(in, st) {
		return in
	}
	// st may be from before a write through us that has ended since.
	if statAt(dirfd, name, st) != nil || identityOf(st) != in.key || !t.stale(in, st) {
		return in
	}
	fresh := t.inodes.replace(in)
	t.forget(in, 1)
	return fresh
}
