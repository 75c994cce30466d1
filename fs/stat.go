package fs

import (
	"golang.org/x/sys/unix"
)

// statMask is what every stat of a backing object asks for: the attributes,
// and the birth time, which tells an object from a later one with its number.
const statMask = unix.STATX_BASIC_STATS | unix.STATX_BTIME

// identity is what a backing object is, as opposed to where it is found. Inode
// numbers are used again after a removal; the birth time (nanoseconds, zero on
// filesystems without one) and the type tell the two objects apart.
type identity struct {
	dev   uint64
	ino   uint64
	btime int64
	typ   uint16
}

func identityOf(st *unix.Statx_t) identity {
	id := identity{
		dev: unix.Mkdev(st.Dev_major, st.Dev_minor),
		ino: st.Ino,
		typ: st.Mode & unix.S_IFMT,
	}
	if st.Mask&unix.STATX_BTIME != 0 {
		id.btime = st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
	}
	return id
}

func (id identity) isDir() bool { return id.typ == unix.S_IFDIR }

// statAt reads the attributes of name in the directory dirfd. It follows no
// symlink and triggers no automount.
func statAt(dirfd int, name string, st *unix.Statx_t) error {
	return retry(func() error {
		return unix.Statx(dirfd, name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, statMask, st)
	})
}

// statFD reads the attributes of the object behind fd, which may be O_PATH.
func statFD(fd int, st *unix.Statx_t) error {
	return retry(func() error {
		return unix.Statx(fd, "", unix.AT_EMPTY_PATH, statMask, st)
	})
}

// retry calls f until it returns something else than EINTR: the runtime's own
// signals interrupt slow calls, and no program asked for that.
func retry(f func() error) error {
	for {
		if err := f(); err != unix.EINTR {
			return err
		}
	}
}

func close_(fd int) {
	// The error of closing a descriptor that nothing was written through
	// says nothing to anybody; written files report theirs in Flush.
	_ = unix.Close(fd)
}
