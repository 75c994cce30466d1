package fs

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// Read is part of fuse.RawFileSystem.
func (t *Tree) Read(_ <-chan struct{}, req *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	f := t.files.get(req.Fh)
	if f == nil {
		return nil, fuse.EBADF
	}
	t.Requests.Read(int(req.Size))
	n, err := pread(f.fdFor(req.Flags, buf, req.Offset), buf, int64(req.Offset))
	if err == unix.EINVAL {
		n, err = pread(f.fd, buf, int64(req.Offset)) // O_DIRECT wants more alignment here
	}
	if err != nil {
		return nil, t.status(err)
	}
	return fuse.ReadResultData(buf[:n]), fuse.OK
}

// pread fills buf as far as the file goes.
func pread(fd int, buf []byte, off int64) (n int, err error) {
	for n < len(buf) {
		m, err := unix.Pread(fd, buf[n:], off+int64(n))
		if err == unix.EINTR {
			continue
		}
		if err != nil && n == 0 {
			return 0, err
		}
		if m <= 0 {
			break
		}
		n += m
	}
	return n, nil
}

// Write is part of fuse.RawFileSystem.
func (t *Tree) Write(_ <-chan struct{}, req *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	f := t.files.get(req.Fh)
	if f == nil {
		return 0, fuse.EBADF
	}
	t.Requests.Write(len(data))
	if req.WriteFlags&fuse.WRITE_KILL_SUIDGID != 0 {
		if err := t.killPriv(f.in, f.fd, &req.InHeader); err != nil {
			return 0, t.status(err)
		}
	}
	if !f.wrote.Load() {
		f.wrote.Store(true)
	}
	// Pages that the kernel writes back have their place, whatever the flags
	// of the handle they come through.
	appends := req.Flags&unix.O_APPEND != 0 && req.WriteFlags&fuse.WRITE_CACHE == 0
	n, err := pwrite(f.fdFor(req.Flags, data, req.Offset), data, int64(req.Offset), appends)
	if err == unix.EINVAL {
		n, err = pwrite(f.fd, data, int64(req.Offset), appends)
	}
	return uint32(n), t.status(err)
}

// pwrite writes all of data, or says how much it could and, if that is
// nothing, why not.
func pwrite(fd int, data []byte, off int64, appends bool) (n int, err error) {
	for n < len(data) {
		var m int
		if appends {
			m, err = unix.Pwritev2(fd, [][]byte{data[n:]}, off+int64(n), unix.RWF_APPEND)
		} else {
			m, err = unix.Pwrite(fd, data[n:], off+int64(n))
		}
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			if n > 0 {
				return n, nil // the next call meets the error again
			}
			return 0, err
		}
		n += m
	}
	return n, nil
}

// Flush is part of fuse.RawFileSystem: a program closes a descriptor. Network
// filesystems report failed writes at close; a duplicate's close asks them.
func (t *Tree) Flush(_ <-chan struct{}, req *fuse.FlushIn) fuse.Status {
	f := t.files.get(req.Fh)
	if f == nil {
		return fuse.EBADF
	}
	if !t.flush || !f.writes() {
		return fuse.OK
	}
	fd, err := unix.FcntlInt(uintptr(f.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return t.status(err)
	}
	return t.status(unix.Close(fd))
}

// Fsync is part of fuse.RawFileSystem.
func (t *Tree) Fsync(_ <-chan struct{}, req *fuse.FsyncIn) fuse.Status {
	f := t.files.get(req.Fh)
	if f == nil {
		return fuse.EBADF
	}
	return t.status(syncFD(f.fd, req.FsyncFlags))
}

// syncFD makes what was written to fd durable; the protocol's flag says
// whether the data alone will do.
func syncFD(fd int, flags uint32) error {
	const dataOnly = 1 << 0 // FUSE_FSYNC_FDATASYNC
	if flags&dataOnly != 0 {
		return retry(func() error { return unix.Fdatasync(fd) })
	}
	return retry(func() error { return unix.Fsync(fd) })
}

// Fallocate is part of fuse.RawFileSystem.
func (t *Tree) Fallocate(_ <-chan struct{}, req *fuse.FallocateIn) fuse.Status {
	f := t.files.get(req.Fh)
	if f == nil {
		return fuse.EBADF
	}
	f.wrote.Store(true)
	return t.status(retry(func() error {
		return unix.Fallocate(f.fd, req.Mode, int64(req.Offset), int64(req.Length))
	}))
}

// Lseek is part of fuse.RawFileSystem. The kernel asks only for SEEK_DATA and
// SEEK_HOLE; nothing else uses the descriptor's position.
func (t *Tree) Lseek(_ <-chan struct{}, req *fuse.LseekIn, out *fuse.LseekOut) fuse.Status {
	f := t.files.get(req.Fh)
	if f == nil {
		return fuse.EBADF
	}
	off, err := unix.Seek(f.fd, int64(req.Offset), int(req.Whence))
	if err != nil {
		return t.status(err)
	}
	out.Offset = uint64(off)
	return fuse.OK
}

// CopyFileRange is part of fuse.RawFileSystem. Where the backing filesystem
// can, it shares the extents instead of copying.
func (t *Tree) CopyFileRange(_ <-chan struct{}, req *fuse.CopyFileRangeIn) (uint32, fuse.Status) {
	from, to := t.files.get(req.FhIn), t.files.get(req.FhOut)
	if from == nil || to == nil {
		return 0, fuse.EBADF
	}
	to.wrote.Store(true)
	const most = 1<<31 - 4096 // the reply has 32 bits; keep it whole pages
	offIn, offOut := int64(req.OffIn), int64(req.OffOut)
	n, err := unix.CopyFileRange(from.fd, &offIn, to.fd, &offOut, int(min(req.Len, most)), int(req.Flags))
	return uint32(max(n, 0)), t.status(err)
}
