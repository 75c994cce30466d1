package staging

// Backing is the file below a File. The methods may be called from several
// goroutines at once. Errors must unwrap to a syscall.Errno where there is one.
// The caller of Open owns the Backing, and keeps it usable until File.Close,
// Drop, or the function given to CloseLater.
type Backing interface {
	// WriteDirect writes p at off past the page cache. The address of p, off
	// and len(p) are multiples of what Align says. It may write less; it
	// keeps nothing of p.
	WriteDirect(p []byte, off int64) (int, error)
	// WriteBuffered writes p at off, any size to any place, coherently with
	// ReadAt. It may write less; it keeps nothing of p.
	WriteBuffered(p []byte, off int64) (int, error)
	// ReadAt reads what was written. Fewer bytes than asked for, without an
	// error, mean the end of the file.
	ReadAt(p []byte, off int64) (int, error)
	// Align says what WriteDirect wants. It is first asked when an extent is
	// large enough to go that way, and may take its time to find out. It has
	// to answer the same ever after.
	Align() Alignment
	// Sync makes what was written durable; dataOnly leaves out attributes
	// that reading it back does not need.
	Sync(dataOnly bool) error
}

// DirectReader is a Backing that can be read past the page cache. Without it,
// Config.ReadAhead means nothing for a file.
type DirectReader interface {
	Backing
	// ReadDirect reads what was written, in either way, under the terms of
	// WriteDirect. Fewer bytes than asked for, without an error, mean the end
	// of the file if they are no multiple of Alignment.Offset, or none at all.
	// After an error the file is not read ahead any more; nobody is told.
	ReadDirect(p []byte, off int64) (int, error)
	// Cached reports whether most of the n bytes at off are in the page cache,
	// and so better read from there. False if that is not known.
	Cached(off, n int64) bool
	// Size is the file's, or 0 if that is not known.
	Size() int64
}

// Alignment is what direct reads and writes want, in bytes, powers of two. With
// a zero Offset there is no direct path and WriteDirect is never called.
type Alignment struct {
	Memory int64 // of the buffer's address; more than PageSize counts as no direct path
	Offset int64 // of place and length in the file
}

// PageSize is the unit of the budget and the least alignment of direct extents,
// in bytes. It has to be that of the system's page cache; New sees to it.
const PageSize = 4096

// grid is the alignment at which runs are split, or 0 when a window of size
// bytes cannot be written directly.
func (a Alignment) grid(size int64) int64 {
	if a.Offset <= 0 || a.Memory > PageSize || a.Offset > size {
		return 0
	}
	return max(a.Offset, PageSize)
}
