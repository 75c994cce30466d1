package fs

import (
	"bytes"
	"encoding/binary"
	"sync"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// direntBuffer is how many bytes of entries are read ahead in an open
// directory: what glibc's readdir uses.
const direntBuffer = 32 << 10

// folder is an open directory with its own position.
type folder struct {
	in *inode
	fd int

	mu   sync.Mutex
	buf  []byte // guarded by mu; getdents64(2) records from pos on are unread
	pos  int    // guarded by mu
	next uint64 // guarded by mu; stream offset of the record at pos
}

// OpenDir is part of fuse.RawFileSystem.
func (t *Tree) OpenDir(_ <-chan struct{}, req *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	in := t.inode(req.NodeId)
	if in == nil {
		return fuse.Status(unix.ESTALE)
	}
	d, err := t.directory(in)
	if err != nil {
		return t.status(err)
	}
	defer d.release()
	flags := unix.O_RDONLY | unix.O_DIRECTORY | t.noAtime(req.Flags)
	fd, err := t.openAt(d.fd, ".", flags, 0)
	if err == unix.EACCES {
		// Its own "." takes the right to search it, which listing does not.
		fd, err = t.openAt(unix.AT_FDCWD, procPath(d.fd), flags, 0)
	}
	if err != nil {
		return t.status(err)
	}
	out.Fh = t.folders.add(&folder{in: in, fd: fd})
	return fuse.OK
}

// ReleaseDir is part of fuse.RawFileSystem.
func (t *Tree) ReleaseDir(req *fuse.ReleaseIn) {
	if f := t.folders.remove(req.Fh); f != nil {
		close_(f.fd)
	}
}

// FsyncDir is part of fuse.RawFileSystem.
func (t *Tree) FsyncDir(_ <-chan struct{}, req *fuse.FsyncIn) fuse.Status {
	f := t.folders.get(req.Fh)
	if f == nil {
		return fuse.EBADF
	}
	return t.status(syncFD(f.fd, req.FsyncFlags))
}

// ReadDir is part of fuse.RawFileSystem.
func (t *Tree) ReadDir(_ <-chan struct{}, req *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	f := t.folders.get(req.Fh)
	if f == nil {
		return fuse.EBADF
	}
	return t.status(f.each(req.Offset, func(e fuse.DirEntry) bool {
		return out.AddDirEntry(e)
	}))
}

// ReadDirPlus is part of fuse.RawFileSystem: entries with their attributes.
func (t *Tree) ReadDirPlus(_ <-chan struct{}, req *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	f := t.folders.get(req.Fh)
	if f == nil {
		return fuse.EBADF
	}
	return t.status(f.each(req.Offset, func(e fuse.DirEntry) bool {
		entry := out.AddDirLookupEntry(e)
		if entry == nil {
			return false
		}
		if e.Name == "." || e.Name == ".." {
			return true // the kernel wants no lookup of these counted
		}
		// Without attributes (the object has just gone, say) the entry is
		// still listed, as readdir(3) would.
		var st unix.Statx_t
		since := t.renamesNow()
		if err := statAt(f.fd, e.Name, &st); err == nil {
			t.enter(f.in, f.fd, e.Name, &st, since, entry)
			out.FixMode(uint32(st.Mode))
		}
		return true
	}))
}

// each calls add with the entries from offset on until it has no room left or
// the directory ends.
func (f *folder) each(offset uint64, add func(fuse.DirEntry) bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if offset != f.next {
		if _, err := unix.Seek(f.fd, int64(offset), unix.SEEK_SET); err != nil {
			return err
		}
		f.buf, f.pos, f.next = f.buf[:0], 0, offset
	}
	for {
		if f.pos == len(f.buf) {
			if err := f.more(); err != nil || len(f.buf) == 0 {
				return err
			}
		}
		e, size := parseDirent(f.buf[f.pos:])
		if !add(e) {
			return nil
		}
		f.pos += size
		f.next = e.Off
	}
}

// more needs mu. It reads the next records; none means the end.
func (f *folder) more() error {
	if cap(f.buf) < direntBuffer {
		f.buf = make([]byte, direntBuffer)
	}
	f.buf, f.pos = f.buf[:direntBuffer], 0
	n, err := unix.Getdents(f.fd, f.buf)
	f.buf = f.buf[:max(n, 0)]
	if err == unix.ENOENT {
		return nil // a removed directory is empty
	}
	return err
}

// parseDirent decodes the first record of buf, as getdents(2) lays it out:
// d_ino, d_off, d_reclen, d_type, d_name.
func parseDirent(buf []byte) (e fuse.DirEntry, size int) {
	const nameAt = 19
	size = int(binary.NativeEndian.Uint16(buf[16:]))
	name := buf[nameAt:size]
	if end := bytes.IndexByte(name, 0); end >= 0 {
		name = name[:end]
	}
	return fuse.DirEntry{
		Ino:  binary.NativeEndian.Uint64(buf),
		Off:  binary.NativeEndian.Uint64(buf[8:]),
		Mode: uint32(buf[18]) << 12,
		Name: string(name),
	}, size
}
