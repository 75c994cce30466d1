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

// settle takes the mtime of the file, open as fd, for the kernel's: it cannot
// be given that.
func (b *belief) settle(fd int) {
	var st unix.Statx_t
	if statFD(fd, &st) == nil {
		b.mtime.Store(nanoseconds(st.Mtime.Sec, st.Mtime.Nsec))
	}
}

// grow notes that the kernel knows of bytes up to end.
func (b *belief) grow(end int64) {
	for b.set.Load() {
		size := b.size.Load()
		if end <= size || b.size.CompareAndSwap(size, end) {
			return
		}
	}
}

// restore undoes what writing to fd has done to the mtime: the kernel has
// stamped those bytes itself, and sends a new time, before or after them, unless
// it takes them for as old as the last.
func (b *belief) restore(fd int) {
	for b.set.Load() {
		mtime := b.mtime.Load()
		err := unix.UtimesNanoAt(fd, "", []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(mtime)}, unix.AT_EMPTY_PATH)
		if err != nil {
			b.settle(fd) // not ours to set
			return
		}
		if b.mtime.Load() == mtime {
			return // else the kernel has sent one meanwhile
		}
	}
}

func (b *belief) agrees(st *unix.Statx_t) bool {
	return b.size.Load() == int64(st.Size) && stored(b.mtime.Load(), nanoseconds(st.Mtime.Sec, st.Mtime.Nsec))
}

// stored reports whether a filesystem that was given the time wanted may show
// it as got: not all have nanoseconds.
func stored(wanted, got int64) bool {
	for _, unit := range []int64{1, 100, 1e3, 1e6, 1e9, 2e9} {
		if wanted-wanted%unit == got {
			return true
		}
	}
	return false
}

// stale reports whether somebody has changed the file in, whose attributes are
// st, without the kernel knowing. While the mount writes to it, nobody can say.
func (in *inode) stale(st *unix.Statx_t) bool {
	return in.belief.set.Load() && !in.belief.agrees(st) && !in.ours()
}

// current is in, which has been found as name with the attributes st, or an
// inode in its place if the kernel knows too little of its file. It takes the
// caller's reference and returns one.
func (t *Tree) current(in *inode, dirfd int, name string, st *unix.Statx_t) *inode {
	if !in.stale(st) {
		return in
	}
	// st may be from before a write through us that has ended since.
	if statAt(dirfd, name, st) != nil || identityOf(st) != in.key || !in.stale(st) {
		return in
	}
	fresh := t.inodes.replace(in)
	t.forget(in, 1)
	return fresh
}
