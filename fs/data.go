package fs

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"tunefs/staging"
)

// Read is part of fuse.RawFileSystem.
func (t *Tree) Read(_ <-chan struct{}, req *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	f := t.files.get(req.Fh)
	if f == nil {
		return nil, fuse.EBADF
	}
	t.Requests.Read(int(req.Size))
	if s := f.in.staged(); s != nil {
		defer s.release(t)
		if req.Flags&unix.O_DIRECT == 0 || s.Affects(int64(req.Offset)) {
			n, err := s.ReadAt(buf, int64(req.Offset))
			return fuse.ReadResultData(buf[:n]), t.status(err)
		}
	}
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
	if f.stage != nil {
		past := req.Flags&unix.O_DIRECT != 0 && req.WriteFlags&fuse.WRITE_CACHE == 0
		n, err := f.stage.write(data, int64(req.Offset), past)
		t.wrote(f.in, req, n, len(data), err)
		return uint32(n), t.status(err)
	}
	n, err := t.writeBacking(f, req, data)
	if n < len(data) && err == nil && req.WriteFlags&fuse.WRITE_CACHE != 0 {
		// The kernel takes what it writes back for written, unless it is told
		// of an error.
		_, err = pwrite(f.fd, data[n:], int64(req.Offset)+int64(n), false)
	}
	t.wrote(f.in, req, n, len(data), err)
	if f.gathers {
		f.in.belief.restore(f.fd)
	}
	return uint32(n), t.status(err)
}

// wrote notes what came of a WRITE of which n bytes were done. Pages that the
// kernel writes back it has told programs of already, and after an error it
// tells one, but does not keep them.
func (t *Tree) wrote(in *inode, req *fuse.WriteIn, n, of int, err error) {
	end := int64(req.Offset) + int64(n)
	if err != nil && req.WriteFlags&fuse.WRITE_CACHE != 0 {
		t.lose(in, end, int64(of-n), err)
		end = int64(req.Offset) + int64(of)
	}
	in.belief.grow(end)
}

// writeBacking writes to the backing file itself, after what is staged by
// other handles.
func (t *Tree) writeBacking(f *file, req *fuse.WriteIn, data []byte) (n int, err error) {
	off, length := int64(req.Offset), int64(len(data))
	// Pages that the kernel writes back have their place, whatever the flags
	// of the handle they come through; and where it may have some it alone
	// knows the end.
	appends := req.Flags&unix.O_APPEND != 0 && req.WriteFlags&fuse.WRITE_CACHE == 0 && !f.gathers
	place := off
	if appends {
		place, length = 0, staging.ToEnd
	}
	err = t.barrier(f.in, place, length, func() (err error) {
		n, err = pwrite(f.fdFor(req.Flags, data, req.Offset), data, off, appends)
		if err == unix.EINVAL {
			n, err = pwrite(f.fd, data, off, appends)
		}
		return err
	})
	return n, err
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
	if f.stage != nil && f.writes() {
		if err := t.flushStage(f.stage); err != nil {
			return t.status(err)
		}
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
	if s := f.in.staged(); s != nil {
		defer s.release(t)
		return t.status(s.Sync(req.FsyncFlags&dataOnly != 0, patient))
	}
	return t.status(syncFD(f.fd, req.FsyncFlags))
}

// dataOnly in the flags of a sync says that the data alone will do.
const dataOnly = 1 << 0 // FUSE_FSYNC_FDATASYNC

// syncFD makes what was written to fd durable.
func syncFD(fd int, flags uint32) error {
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
	err := t.barrier(f.in, int64(req.Offset), int64(req.Length), func() error {
		return retry(func() error {
			return unix.Fallocate(f.fd, req.Mode, int64(req.Offset), int64(req.Length))
		})
	})
	if err == nil && req.Mode&unix.FALLOC_FL_KEEP_SIZE == 0 {
		f.in.belief.grow(int64(req.Offset + req.Length))
	}
	if f.gathers {
		f.in.belief.restore(f.fd)
	}
	return t.status(err)
}

// Lseek is part of fuse.RawFileSystem. The kernel asks only for SEEK_DATA and
// SEEK_HOLE; nothing else uses the descriptor's position.
func (t *Tree) Lseek(_ <-chan struct{}, req *fuse.LseekIn, out *fuse.LseekOut) fuse.Status {
	f := t.files.get(req.Fh)
	if f == nil {
		return fuse.EBADF
	}
	t.fetchDirty(f.in)
	return t.status(t.barrier(f.in, 0, staging.ToEnd, func() error {
		off, err := unix.Seek(f.fd, int64(req.Offset), int(req.Whence))
		out.Offset = uint64(off)
		return err
	}))
}

// fetchDirty has the kernel write back what it has gathered of a file, for
// requests before which it does not do so by itself.
func (t *Tree) fetchDirty(in *inode) {
	if t.writeback && in.isWritten() {
		t.kernel.InodeNotify(in.id, 0, 0)
	}
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
	offIn, offOut, length := int64(req.OffIn), int64(req.OffOut), int64(min(req.Len, most))
	// No barrier for the one: two of them could wait for each other. All that
	// follows is flushed, for the file to be as long as it seems.
	if s := from.in.staged(); s != nil {
		defer s.release(t)
		if err := s.Flush(offIn, staging.ToEnd, patient); err != nil {
			return 0, t.status(err)
		}
	}
	n := 0
	err := t.barrier(to.in, offOut, length, func() (err error) {
		n, err = unix.CopyFileRange(from.fd, &offIn, to.fd, &offOut, int(length), int(req.Flags))
		return err
	})
	if n > 0 {
		to.in.belief.grow(int64(req.OffOut) + int64(n))
	}
	if to.gathers {
		to.in.belief.restore(to.fd)
	}
	return uint32(max(n, 0)), t.status(err)
}
