package fs

import (
	"strconv"

	"golang.org/x/sys/unix"
)

// maxDepth ends a walk up the remembered parents. Names that changed behind
// our back could form a ring; no filesystem is this deep.
const maxDepth = 1 << 17

// grip is a borrowed descriptor of an inode. It must be released.
type grip struct {
	fd     int
	opened bool // a real open file; otherwise O_PATH, good for *at calls and /proc only
	dir    *dirFD
	file   *file
	owned  bool
}

func (g grip) release() {
	switch {
	case g.dir != nil:
		g.dir.release()
	case g.file != nil:
		g.file.release()
	case g.owned:
		close_(g.fd)
	}
}

// procPath names the object behind fd for calls that take no descriptor. The
// kernel resolves it to the object itself, also when that is a symlink.
func procPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// openAt is openat(2). When descriptors have run out it closes cached ones, and
// where the atime cannot be left alone it does without, and tries again.
func (t *Tree) openAt(dirfd int, name string, flags int, mode uint32) (fd int, err error) {
	for range 3 {
		err = retry(func() error {
			fd, err = unix.Openat(dirfd, name, flags|unix.O_CLOEXEC, mode)
			return err
		})
		switch {
		case err == unix.EPERM && flags&unix.O_NOATIME != 0:
			// Only the owner may ask for that; the kernel has checked a
			// program that did, so it is the mount that wants it.
			flags &^= unix.O_NOATIME
		case (err == unix.EMFILE || err == unix.ENFILE) && t.dirs.shrink():
		default:
			return fd, err
		}
	}
	return fd, err
}

// settled calls f, and once more with all names at rest if it fails: a rename
// that was under way may have moved what f looked for.
//
// The caller must not hold t.moving.
func (t *Tree) settled(f func() error) error {
	err := f()
	if err != unix.ESTALE {
		return err
	}
	t.moving.Lock()
	defer t.moving.Unlock()
	return f()
}

// directory returns a descriptor of the directory in, with a reference that
// the caller releases.
func (t *Tree) directory(in *inode) (*dirFD, error) {
	if d := in.dir.Load(); d != nil && d.acquire() {
		return d, nil
	}
	if !in.key.isDir() {
		return nil, unix.ENOTDIR
	}
	var d *dirFD
	err := t.settled(func() (err error) {
		d, err = t.findDirectory(in, 0)
		return err
	})
	return d, err
}

// findDirectory opens in through its parents, as far up as no descriptor is
// cached. ESTALE says that it is not where it was seen.
func (t *Tree) findDirectory(in *inode, depth int) (*dirFD, error) {
	if d := in.dir.Load(); d != nil && d.acquire() {
		return d, nil
	}
	if depth > maxDepth {
		return nil, unix.ESTALE
	}
	in.mu.Lock()
	pin := in.pin
	in.mu.Unlock()
	if pin >= 0 {
		// A removed directory: nothing below it to be cached for.
		fd, err := unix.FcntlInt(uintptr(pin), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		return t.cacheDirectory(in, fd), nil
	}
	var buf [maxLinks]link
	for _, l := range in.names(buf[:0]) {
		parent, err := t.findDirectory(l.parent, depth+1)
		if err != nil {
			continue
		}
		fd, err := t.openVerified(parent.fd, l.name, unix.O_PATH|unix.O_DIRECTORY, in.key)
		parent.release()
		if err == nil {
			return t.cacheDirectory(in, fd), nil
		}
		if err != unix.ESTALE {
			return nil, err
		}
	}
	return nil, unix.ESTALE
}

// cacheDirectory makes fd the descriptor of in, unless another request was
// faster, and returns the one in force with a reference for the caller.
func (t *Tree) cacheDirectory(in *inode, fd int) *dirFD {
	in.mu.Lock()
	if d := in.dir.Load(); d != nil && d.acquire() {
		in.mu.Unlock()
		close_(fd)
		return d
	}
	d := &dirFD{fd: fd, in: in, slot: -1}
	d.refs.start(2) // the cache's and the caller's
	d.hot.Store(true)
	in.dir.Store(d)
	in.mu.Unlock()
	t.dirs.add(d)
	return d
}

// openVerified opens name in dirfd if that is still the object key, else it
// says ESTALE.
func (t *Tree) openVerified(dirfd int, name string, flags int, key identity) (int, error) {
	fd, err := t.openAt(dirfd, name, flags|unix.O_NOFOLLOW, 0)
	switch err {
	case nil:
	case unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.ENXIO:
		return -1, unix.ESTALE // gone, or replaced by something of another type
	default:
		return -1, err
	}
	var st unix.Statx_t
	if err := statFD(fd, &st); err != nil {
		close_(fd)
		return -1, err
	}
	if identityOf(&st) != key {
		close_(fd)
		return -1, unix.ESTALE
	}
	return fd, nil
}

// grab returns a descriptor of in: of an open file, of the cache, or one
// opened for the purpose.
func (t *Tree) grab(in *inode) (grip, error) {
	if in.key.isDir() {
		d, err := t.directory(in)
		if err != nil {
			return grip{}, err
		}
		return grip{fd: d.fd, dir: d}, nil
	}
	var g grip
	err := t.settled(func() (err error) {
		g, err = t.find(in)
		return err
	})
	return g, err
}

// held returns a descriptor of a file that is open or pinned.
func (in *inode) held() (grip, bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if n := len(in.handles); n > 0 {
		f := in.handles[n-1]
		f.refs.take()
		return grip{fd: f.fd, opened: true, file: f}, true
	}
	if in.pin >= 0 {
		// The kernel does not forget an inode with a request under way.
		return grip{fd: in.pin}, true
	}
	return grip{}, false
}

func (t *Tree) find(in *inode) (grip, error) {
	if g, ok := in.held(); ok {
		return g, nil
	}
	fd := -1
	err := t.eachPlace(in, func(dirfd int, name string) (err error) {
		fd, err = t.openVerified(dirfd, name, unix.O_PATH, in.key)
		return err
	})
	return grip{fd: fd, owned: true}, err
}

// eachPlace calls f with the places where in was seen until one leads to it.
func (t *Tree) eachPlace(in *inode, f func(dirfd int, name string) error) error {
	var buf [maxLinks]link
	result := error(unix.ESTALE)
	for _, l := range in.names(buf[:0]) {
		parent, err := t.findDirectory(l.parent, 0)
		if err == nil {
			err = f(parent.fd, l.name)
			parent.release()
		}
		switch err {
		case unix.ESTALE:
		case unix.EACCES:
			result = err // of this place; another may be open to us
		default:
			return err
		}
	}
	return result
}

// stat reads the attributes of in.
func (t *Tree) stat(in *inode, st *unix.Statx_t) error {
	if in.key.isDir() {
		d, err := t.directory(in)
		if err != nil {
			return err
		}
		defer d.release()
		return statFD(d.fd, st)
	}
	return t.settled(func() error {
		if g, ok := in.held(); ok {
			defer g.release()
			return statFD(g.fd, st)
		}
		return t.eachPlace(in, func(dirfd int, name string) error {
			err := statAt(dirfd, name, st)
			if err == unix.ENOENT || err == unix.ENOTDIR || err == nil && identityOf(st) != in.key {
				return unix.ESTALE
			}
			return err
		})
	})
}
