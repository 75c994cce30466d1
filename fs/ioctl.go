package fs

import (
	"encoding/binary"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"tunefs/staging"
)

// The ioctls that are passed on, from linux/fs.h. All others are refused: a
// daemon that runs as root must not carry out what it does not understand.
const (
	fsIocGetFlags   = unix.FS_IOC_GETFLAGS
	fsIocSetFlags   = unix.FS_IOC_SETFLAGS
	fsIocFsGetXattr = 0x801c581f // FS_IOC_FSGETXATTR
	fsIocFsSetXattr = 0x401c5820 // FS_IOC_FSSETXATTR

	flagImmutable  = 0x10 // FS_IMMUTABLE_FL
	flagAppend     = 0x20 // FS_APPEND_FL
	xflagImmutable = 0x8  // FS_XFLAG_IMMUTABLE
	xflagAppend    = 0x10 // FS_XFLAG_APPEND
	fsxattrSize    = 28   // struct fsxattr
)

// Ioctl is part of fuse.RawFileSystem: reading and setting inode flags.
func (t *Tree) Ioctl(_ <-chan struct{}, req *fuse.IoctlIn, in []byte, out *fuse.IoctlOut, buf []byte) fuse.Status {
	if req.Flags&fuse.IOCTL_DIR != 0 {
		f := t.folders.get(req.Fh)
		if f == nil {
			return fuse.EBADF
		}
		return t.status(inodeFlags(f.fd, &req.InHeader, req.Cmd, in, buf))
	}
	f := t.files.get(req.Fh)
	if f == nil {
		return fuse.EBADF
	}
	// A file that becomes immutable takes no flush any more.
	return t.status(t.barrier(f.in, 0, staging.ToEnd, func() error {
		return inodeFlags(f.fd, &req.InHeader, req.Cmd, in, buf)
	}))
}

func inodeFlags(fd int, h *fuse.InHeader, cmd uint32, in, out []byte) error {
	switch cmd {
	case fsIocGetFlags:
		if len(out) < 4 {
			return unix.EINVAL
		}
		flags, err := unix.IoctlGetUint32(fd, fsIocGetFlags)
		binary.NativeEndian.PutUint32(out, flags)
		return err
	case fsIocSetFlags:
		if len(in) < 4 {
			return unix.EINVAL
		}
		want := binary.NativeEndian.Uint32(in)
		have, err := unix.IoctlGetUint32(fd, fsIocGetFlags)
		if err == nil {
			err = maySetFlags(fd, h, have^want, flagImmutable|flagAppend)
		}
		if err != nil {
			return err
		}
		return unix.IoctlSetPointerInt(fd, fsIocSetFlags, int(want))
	case fsIocFsGetXattr:
		if len(out) < fsxattrSize {
			return unix.EINVAL
		}
		return ioctlBuffer(fd, fsIocFsGetXattr, out)
	case fsIocFsSetXattr:
		if len(in) < fsxattrSize {
			return unix.EINVAL
		}
		have := make([]byte, fsxattrSize)
		err := ioctlBuffer(fd, fsIocFsGetXattr, have)
		if err == nil {
			changed := binary.NativeEndian.Uint32(have) ^ binary.NativeEndian.Uint32(in)
			err = maySetFlags(fd, h, changed, xflagImmutable|xflagAppend)
		}
		if err != nil {
			return err
		}
		return ioctlBuffer(fd, fsIocFsSetXattr, in)
	}
	return unix.ENOTTY
}

// maySetFlags checks the caller's own right to change flags, which the backing
// kernel would otherwise take from us: to own the file, and for the privileged
// ones to have CAP_LINUX_IMMUTABLE.
func maySetFlags(fd int, h *fuse.InHeader, changed, privileged uint32) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	owner := h.Uid == st.Uid
	if owner && changed&privileged == 0 {
		return nil
	}
	c := credentialsOf(h)
	if !owner && !c.can(unix.CAP_FOWNER) || changed&privileged != 0 && !c.can(unix.CAP_LINUX_IMMUTABLE) {
		return unix.EPERM
	}
	return nil
}
