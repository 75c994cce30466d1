package gds

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"tunefs/staging"
)

// Engine opens files. Make one per mount; its methods may be called from
// several goroutines at once.
type Engine struct {
	choice Choice
	log    onceLog
	count  Counters
}

// New makes an engine. log gets, once each, the reasons why files don't use the
// backend that choice would give them.
func New(choice Choice, log *slog.Logger) *Engine {
	return &Engine{choice: choice, log: onceLog{log: log}}
}

// Choice is what the engine was made with.
func (e *Engine) Choice() Choice { return e.choice }

// Counters are those of all files of the engine.
func (e *Engine) Counters() *Counters { return &e.count }

// Open makes a File of the regular file behind fd, which has to be open for
// reading and writing, or for reading alone, without O_APPEND and O_DIRECT. A
// File of one that is open for reading cannot write (EBADF), ever. fd stays the
// caller's, who keeps it open until after Close. Open makes no system call
// unless direct I/O is required: then its error says why it is not possible.
func (e *Engine) Open(fd int) (*File, error) {
	f := &File{engine: e, fd: fd}
	f.backend = sync.OnceValues(f.choose)
	if e.choice == Direct {
		if _, err := f.backend(); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// Probe says whether files in the directory behind dirfd can be written
// directly, for messages at the start; nil means they can. It makes a file
// without a name there for the question; where the filesystem has none of
// those, or is mounted read-only, its answer is an error as well.
func Probe(dirfd int) error {
	var fd int
	err := retry(func() (err error) {
		fd, err = unix.Openat(dirfd, ".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
		return err
	})
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	d, err := openDirect(fd)
	if err != nil {
		return err
	}
	return d.close()
}

// File is a file that staging writes to and reads. Its methods may be called
// from several goroutines at once, but Close only after all others have
// returned.
type File struct {
	engine  *Engine
	fd      int
	backend func() (backend, error) // opens it at the first call; (nil, why) for none
	opened  atomic.Bool             // backend was called
	refused atomic.Bool             // the backend takes no extents of this file
}

var (
	_ staging.Backing      = (*File)(nil)
	_ staging.DirectReader = (*File)(nil)
)

// choose opens the file's backend.
func (f *File) choose() (backend, error) {
	f.opened.Store(true)
	if f.engine.choice == Buffered {
		return nil, nil
	}
	d, err := openDirect(f.fd)
	if err != nil {
		if f.engine.choice == Auto {
			f.engine.log.warn("direct I/O is not possible; such files go through the page cache", err)
		}
		return nil, err
	}
	return d, nil
}

// Align is part of staging.Backing. The first call opens the file once more.
func (f *File) Align() staging.Alignment {
	if b, _ := f.backend(); b != nil {
		return b.align()
	}
	return staging.Alignment{}
}

// Backend names the way that large aligned extents go, and says why if it is
// not the one that was chosen.
func (f *File) Backend() (name, reason string) {
	b, err := f.backend()
	switch {
	case b != nil && !f.refused.Load():
		return wayNames[b.way()], ""
	case b != nil:
		return wayNames[wayBuffered], "the filesystem refused a direct write"
	case err != nil:
		return wayNames[wayBuffered], err.Error()
	}
	return wayNames[wayBuffered], ""
}

// WriteDirect is part of staging.Backing. Once the filesystem has refused an
// extent for its shape (EINVAL), all of the file go through the page cache.
func (f *File) WriteDirect(p []byte, off int64) (int, error) {
	b, _ := f.backend()
	if b == nil || f.refused.Load() {
		return f.WriteBuffered(p, off)
	}
	var n int
	err := retry(func() (err error) {
		n, err = b.write(p, off)
		return err
	})
	if errors.Is(err, unix.EINVAL) {
		if !f.refused.Swap(true) {
			f.engine.count.fallbacks.Add(1)
			f.engine.log.warn("a direct write was refused; such files are written through the page cache from now on", err)
		}
		return f.WriteBuffered(p, off)
	}
	count(&f.engine.count.written[b.way()], n)
	return max(n, 0), err
}

// WriteBuffered is part of staging.Backing.
func (f *File) WriteBuffered(p []byte, off int64) (n int, err error) {
	err = retry(func() (err error) {
		n, err = unix.Pwrite(f.fd, p, off)
		return err
	})
	count(&f.engine.count.written[wayBuffered], n)
	return max(n, 0), err
}

// ReadAt is part of staging.Backing.
func (f *File) ReadAt(p []byte, off int64) (n int, err error) {
	for n < len(p) {
		m, err := unix.Pread(f.fd, p[n:], off+int64(n))
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return n, err
		case m == 0:
			return n, nil
		}
		n += m
	}
	return n, nil
}

// ReadDirect is part of staging.DirectReader. It has no other way to fall back
// on: ENOTSUP says that there is no direct one, EBADF that the file's mode
// forbids to read it by now, EINVAL that the filesystem refuses such extents.
func (f *File) ReadDirect(p []byte, off int64) (n int, err error) {
	b, _ := f.backend()
	if b == nil {
		return 0, unix.ENOTSUP
	}
	err = retry(func() (err error) {
		n, err = b.read(p, off)
		return err
	})
	count(&f.engine.count.read[b.way()], n)
	return max(n, 0), err
}

// Cached is part of staging.DirectReader. Where the kernel does not say, it is
// false: before Linux 6.5, and for files of others that one may not write.
func (f *File) Cached(off, n int64) bool {
	var cached unix.Cachestat_t
	r := unix.CachestatRange{Off: uint64(off), Len: uint64(n)}
	if err := unix.Cachestat(uint(f.fd), &r, &cached, 0); err != nil {
		return false
	}
	return int64(cached.Cache)*int64(unix.Getpagesize()) > n/2
}

// Size is part of staging.DirectReader.
func (f *File) Size() int64 {
	var st unix.Stat_t
	if err := retry(func() error { return unix.Fstat(f.fd, &st) }); err != nil {
		return 0
	}
	return st.Size
}

// Sync is part of staging.Backing. It covers both ways: they write one inode.
func (f *File) Sync(dataOnly bool) error {
	if dataOnly {
		return retry(func() error { return unix.Fdatasync(f.fd) })
	}
	return retry(func() error { return unix.Fsync(f.fd) })
}

// Close gives back what the File opened. The caller's descriptor stays open.
func (f *File) Close() error {
	if !f.opened.Load() {
		return nil
	}
	if b, _ := f.backend(); b != nil {
		return b.close()
	}
	return nil
}

func retry(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}
