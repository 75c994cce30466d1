package fs

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"tunefs/observe"
	"tunefs/policy"
)

// Kernel is what a tree asks of whatever carries its requests. All calls may
// be made from within requests and concurrently.
type Kernel interface {
	// InodeNotify drops what the kernel caches of a node: attributes, and
	// pages from off on unless off is negative.
	InodeNotify(node uint64, off, length int64) fuse.Status
	// RegisterBackingFd lends a descriptor to the kernel for passthrough.
	RegisterBackingFd(*fuse.BackingMap) (int32, syscall.Errno)
	UnregisterBackingFd(id int32) syscall.Errno
}

// Settings are what a Tree needs to know besides its SOURCE.
type Settings struct {
	Policy       policy.Policy     // IO must not be Auto
	StatfsBsize  policy.Blksize    // Native: as the backing filesystem says
	AttrTimeout  time.Duration     // how long the kernel may keep attributes
	EntryTimeout time.Duration     // how long the kernel may keep names
	NoAtime      bool              // reading leaves the backing objects' atime alone
	Log          *slog.Logger      // not nil
	Requests     *observe.Requests // sizes of read and write requests; may be nil
	Staging      Staging           // for Policy.IO of Staged
}

// Tree serves one directory as a [fuse.RawFileSystem]. Its methods are called
// by the carrier of requests, many at once.
type Tree struct {
	fuse.RawFileSystem // answers ENOSYS to what we do not serve

	Settings
	kernel Kernel
	source string

	root    *inode
	rootDev uint64
	inodes  *registry
	dirs    dirCache
	pins    atomic.Int64
	maxPins int64
	files   idTable[file]
	folders idTable[folder]

	asRoot    bool // we may become the caller
	flush     bool // close on the backing filesystem has something to report
	writeback bool // the kernel gathers writes in its page cache, and knows sizes and mtimes better than the backing file

	lost atomic.Int64 // bytes that were staged and could not be written

	// moving is held for reading while names change, and for writing by those
	// who could not find an inode and want the names at rest.
	moving sync.RWMutex
	// A lookup that meets a rename must not take what it saw for all there is.
	renamesBegun, renamesEnded atomic.Uint64
	// layout counts changes of paths that a rule could depend on.
	layout atomic.Uint32

	warned onces
}

// NewTree opens the directory source, which stays open until Close.
func NewTree(source string, s Settings) (*Tree, error) {
	abs, err := filepath.Abs(source)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Open(abs, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", source, err)
	}
	t := &Tree{
		RawFileSystem: fuse.NewDefaultRawFileSystem(),
		Settings:      s,
		source:        abs,
		inodes:        newRegistry(),
		asRoot:        os.Geteuid() == 0,
		writeback:     s.Policy.IO == policy.Staged,
	}
	if t.NoAtime && t.asRoot {
		fd = withoutAtime(fd)
	}
	var st unix.Statx_t
	if err := statFD(fd, &st); err != nil {
		close_(fd)
		return nil, fmt.Errorf("stat %s: %w", source, err)
	}
	t.flush = reportsOnClose(fd)
	key := identityOf(&st)
	t.rootDev = key.dev
	t.root = t.inodes.ref(key)
	d := &dirFD{fd: fd, in: t.root, slot: -1}
	d.refs.start(1) // never in the cache, so never evicted
	t.root.dir.Store(d)
	t.dirs.limit, t.maxPins = descriptorBudget()
	return t, nil
}

// withoutAtime returns, in the place of the directory fd, one of a private copy
// of its mount on which nothing that is read changes an atime: passthrough and
// readlink(2) leave no other way to say so. If the kernel cannot (it came with
// Linux 5.12), fd stays.
func withoutAtime(fd int) int {
	copied, err := unix.OpenTree(fd, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE|unix.AT_EMPTY_PATH)
	if err != nil {
		return fd
	}
	noatime := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOATIME, Attr_clr: unix.MOUNT_ATTR__ATIME}
	if err := unix.MountSetattr(copied, "", unix.AT_RECURSIVE|unix.AT_EMPTY_PATH, &noatime); err != nil {
		close_(copied)
		return fd
	}
	close_(fd)
	return copied
}

// Close flushes what is staged and gives back the descriptors of the tree. No
// request may be under way.
func (t *Tree) Close() {
	t.endStaging()
	for t.dirs.shrink() {
	}
	if d := t.root.dir.Swap(nil); d != nil {
		d.release()
	}
}

// String is part of fuse.RawFileSystem.
func (t *Tree) String() string { return "tunefs" }

// Init is part of fuse.RawFileSystem: the carrier is ready.
func (t *Tree) Init(s *fuse.Server) {
	if t.kernel == nil {
		t.kernel = s
	}
}

// descriptorBudget divides what RLIMIT_NOFILE allows: a quarter for cached
// directories and a quarter for removed objects that are still in use; the rest
// is for files that programs hold open and for the daemon.
func descriptorBudget() (dirs int, pins int64) {
	const least, most = 64, 1 << 14
	quarter := uint64(least)
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err == nil {
		quarter = min(max(lim.Cur/4, least), most)
	}
	return int(quarter), int64(quarter)
}

// reportsOnClose says whether the filesystem of fd can fail a close. Those
// listed cannot, so the kernel need not ask us to flush.
func reportsOnClose(fd int) bool {
	var sfs unix.Statfs_t
	if err := unix.Fstatfs(fd, &sfs); err != nil {
		return true
	}
	switch sfs.Type {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.TMPFS_MAGIC, unix.F2FS_SUPER_MAGIC:
		return false
	}
	return true
}

// inode returns what the kernel means by a node id.
func (t *Tree) inode(node uint64) *inode {
	if node == fuse.FUSE_ROOT_ID {
		return t.root
	}
	return t.inodes.ids.get(node)
}

// status turns the error of an operation into what the kernel gets. An error
// that is no errno is ours to explain, so it is logged and becomes EIO.
func (t *Tree) status(err error) fuse.Status {
	if err == nil {
		return fuse.OK
	}
	if errno, ok := err.(syscall.Errno); ok {
		return fuse.Status(errno)
	}
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		return fuse.Status(errno)
	}
	t.Log.Error("unexpected error", "err", err)
	return fuse.EIO
}

// onces remembers which messages were logged.
type onces struct{ m sync.Map }

// first reports whether key was not seen before.
func (o *onces) first(key string) bool {
	_, seen := o.m.LoadOrStore(key, struct{}{})
	return !seen
}
