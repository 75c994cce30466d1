package fs

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"tunefs/observe"
	"tunefs/policy"
)

// Options are the settings of a mount.
type Options struct {
	Policy       policy.Policy
	StatfsBsize  policy.Blksize    // f_bsize in bytes; Native: as the backing filesystem says
	AttrTimeout  time.Duration     // how long the kernel may keep attributes
	EntryTimeout time.Duration     // how long the kernel may keep names
	MaxWrite     int               // largest payload of a request in bytes; 0 is 1 MiB
	Readahead    int               // bytes; 0 is the kernel's default, 128 KiB, or for root in staged mode 1 MiB; more needs root
	AllowOther   bool              // also for other users than the one who mounts
	MountOptions []string          // ro, noexec, suid, dev, noatime, ... as mount(8) calls them; nosuid and nodev are the default
	Log          *slog.Logger      // nil logs nothing
	Requests     *observe.Requests // counts read and write requests; may be nil
	Staging      Staging           // for Policy.IO of Staged
}

// defaultMaxWrite is what one request carries unless fs.fuse.max_pages_limit
// is raised: 256 pages.
const defaultMaxWrite = 1 << 20

// stagedReadahead is what suits the large requests of staged mode: measured, a
// cold sequential read gains up to a fifth by it, and nothing by more.
const stagedReadahead = 1 << 20

// Mounted is a served mount.
type Mounted struct {
	mountpoint string
	server     *fuse.Server
	tree       *Tree
	reason     string
	gone       chan struct{}
	done       chan struct{}
}

// Mount shows source at mountpoint and serves it until it is unmounted. It
// returns once the kernel has accepted the mount. On an error nothing stays
// mounted.
//
// The process must not itself use files below the mountpoint: it could wait
// for its own answer. Its umask becomes 0, since new objects get the modes of
// the programs that make them.
func Mount(source, mountpoint string, o Options) (*Mounted, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	mountpoint, err := filepath.Abs(mountpoint)
	if err != nil {
		return nil, err
	}
	tree, err := NewTree(source, Settings{
		Policy:       o.Policy,
		StatfsBsize:  o.StatfsBsize,
		AttrTimeout:  o.AttrTimeout,
		EntryTimeout: o.EntryTimeout,
		NoAtime:      slices.Contains(o.MountOptions, "noatime"),
		Log:          o.Log,
		Requests:     o.Requests,
		Staging:      o.Staging,
	})
	if err != nil {
		return nil, err
	}
	unix.Umask(0)
	wanted := o.Readahead
	if wanted == 0 && tree.writeback && tree.asRoot {
		o.Readahead = stagedReadahead
	}
	server, err := fuse.NewServer(tree, mountpoint, mountOptions(tree, &o))
	if err != nil {
		tree.Close()
		return nil, fmt.Errorf("mount %s on %s: %w", source, mountpoint, err)
	}
	m := &Mounted{mountpoint: mountpoint, server: server, tree: tree, gone: make(chan struct{}), done: make(chan struct{})}
	err = m.chooseIO(o.Policy.IO)
	go m.serve()
	if err == nil && o.Readahead > 0 {
		if err = setReadahead(mountpoint, o.Readahead); wanted == 0 {
			err = nil // nobody asked for it
		}
	}
	if err != nil {
		return nil, errors.Join(err, m.Detach())
	}
	return m, nil
}

func (m *Mounted) serve() {
	m.server.Serve()
	close(m.gone)
	m.tree.Close()
	close(m.done)
}

// mountOptions are what go-fuse needs to know of a mount.
func mountOptions(t *Tree, o *Options) *fuse.MountOptions {
	mo := &fuse.MountOptions{
		AllowOther:           o.AllowOther,
		FsName:               t.source,
		Name:                 "tunefs",
		MaxWrite:             o.MaxWrite,
		MaxReadAhead:         o.Readahead,
		MaxBackground:        64, // requests that the kernel keeps under way on its own, readahead for one
		EnableAcl:            true,
		EnableSymlinkCaching: true, // a symlink's target never changes; a new target is a new inode
		MaxStackDepth:        stackDepth(t),
		DisableSplice:        true, // measured: a copy costs less than the calls for a pipe, at 1 MiB as much
		Logger:               slog.NewLogLogger(o.Log.Handler(), slog.LevelInfo),
		PanicHandler: func(v any) fuse.Status {
			o.Log.Error("panic while serving a request", "panic", v, "stack", string(debug.Stack()))
			return fuse.EIO
		},
		ExtraCapabilities: fuse.CAP_ATOMIC_O_TRUNC | fuse.CAP_DONT_MASK | fuse.CAP_HANDLE_KILLPRIV_V2 |
			fuse.CAP_READDIRPLUS_AUTO | fuse.CAP_ASYNC_DIO | fuse.CAP_DIRECT_IO_ALLOW_MMAP | fuse.CAP_IOCTL_DIR,
	}
	if mo.MaxWrite == 0 {
		mo.MaxWrite = defaultMaxWrite
	}
	if t.writeback {
		mo.ExtraCapabilities |= fuse.CAP_WRITEBACK_CACHE
	}
	if !mayPassthrough(o.Policy.IO) {
		mo.DisabledCapabilities |= fuse.CAP_PASSTHROUGH
	}
	mo.Options = append(mo.Options, "default_permissions")
	mo.DirectMountFlags, mo.Options = mountFlags(o.MountOptions, mo.Options, t.asRoot)
	mo.DirectMountStrict = t.asRoot
	return mo
}

func mayPassthrough(io policy.IO) bool { return io == policy.Auto || io == policy.Passthrough }

// mountWords are mount(8)'s options that are bits of mount(2).
var mountWords = map[string]struct {
	set   bool
	flags uintptr
}{
	"ro": {true, unix.MS_RDONLY}, "rw": {false, unix.MS_RDONLY},
	"nosuid": {true, unix.MS_NOSUID}, "suid": {false, unix.MS_NOSUID},
	"nodev": {true, unix.MS_NODEV}, "dev": {false, unix.MS_NODEV},
	"noexec": {true, unix.MS_NOEXEC}, "exec": {false, unix.MS_NOEXEC},
	"sync": {true, unix.MS_SYNCHRONOUS}, "async": {false, unix.MS_SYNCHRONOUS},
	"dirsync": {true, unix.MS_DIRSYNC},
	"noatime": {true, unix.MS_NOATIME}, "atime": {false, unix.MS_NOATIME},
	"nodiratime": {true, unix.MS_NODIRATIME}, "diratime": {false, unix.MS_NODIRATIME},
	"relatime": {true, unix.MS_RELATIME}, "strictatime": {true, unix.MS_STRICTATIME},
}

// mountFlags turns words into the flags of mount(2), for root, or into options
// of fusermount3, whose defaults are nosuid and nodev too.
func mountFlags(words, options []string, direct bool) (uintptr, []string) {
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV)
	for _, w := range words {
		word, known := mountWords[w]
		switch {
		case !direct || !known:
			options = append(options, w)
		case word.set:
			flags |= word.flags
		default:
			flags &^= word.flags
		}
	}
	if flags == 0 {
		flags = unix.MS_MGC_VAL // to go-fuse zero means its default
	}
	return flags, options
}

// stackDepth lets passthrough reach files on a filesystem that is itself
// stacked on another, as the root of most containers is.
func stackDepth(t *Tree) int {
	var sfs unix.Statfs_t
	d := t.root.dir.Load()
	if err := unix.Fstatfs(d.fd, &sfs); err == nil && sfs.Type == unix.OVERLAYFS_SUPER_MAGIC {
		return 2
	}
	return 1
}

// chooseIO settles the mount's I/O mode. No request is served yet.
func (m *Mounted) chooseIO(wanted policy.IO) error {
	if !mayPassthrough(wanted) {
		return nil
	}
	reason := m.noPassthrough()
	if reason == "" {
		m.tree.Policy.IO = policy.Passthrough
		return nil
	}
	if wanted == policy.Passthrough {
		return fmt.Errorf("passthrough cannot work here: %s; use --io auto or --io cached", reason)
	}
	m.reason = reason
	m.tree.Policy.IO = policy.Cached
	return nil
}

// noPassthrough says why the kernel will not do the I/O itself, or "".
func (m *Mounted) noPassthrough() string {
	if m.server.KernelSettings().Flags64()&fuse.CAP_PASSTHROUGH == 0 {
		return "this kernel has no FUSE passthrough (it came with Linux 6.9)"
	}
	d := m.tree.root.dir.Load()
	fd, err := unix.Openat(d.fd, ".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		// SOURCE takes no new files, so there is none to try with. A file
		// that the kernel refuses later is served from its page cache.
		if !m.tree.asRoot {
			return "it needs root (CAP_SYS_ADMIN)"
		}
		return ""
	}
	defer close_(fd)
	id, errno := m.server.RegisterBackingFd(&fuse.BackingMap{Fd: int32(fd)})
	switch errno {
	case 0:
		m.server.UnregisterBackingFd(id)
		return ""
	case unix.EPERM:
		return "it needs root (CAP_SYS_ADMIN)"
	case unix.ELOOP:
		return "the filesystem of SOURCE is stacked on others too deeply"
	}
	return "the kernel refuses files of SOURCE: " + errno.Error()
}

// Done is closed when the mount is gone and everything is given back.
func (m *Mounted) Done() <-chan struct{} { return m.done }

// Wait returns when the mount is gone, whoever unmounted it.
func (m *Mounted) Wait() { <-m.done }

// IO is the mode in force: never Auto.
func (m *Mounted) IO() policy.IO { return m.tree.Policy.IO }

// Gone is closed when the kernel's side of the mount has ended. What is staged
// is written out from then until Done.
func (m *Mounted) Gone() <-chan struct{} { return m.gone }

// Staged is how many bytes wait to be written out.
func (m *Mounted) Staged() int64 { return m.tree.stagedBytes() }

// GiveUp counts what is staged as lost, for a process that is about to exit; a
// mount that is still served gets it written out before, as far as possible.
func (m *Mounted) GiveUp() {
	select {
	case <-m.gone:
	default:
		m.tree.flushAll()
	}
	m.tree.giveUp()
}

// Lost is how many staged bytes could not be written. The log says which.
func (m *Mounted) Lost() int64 { return m.tree.lost.Load() }

// Reason says why Auto did not take passthrough; it is empty if it did, or if
// a mode was asked for.
func (m *Mounted) Reason() string { return m.reason }

// Unmount takes the mount away. While programs use it, that fails with
// unix.EBUSY and changes nothing. A mount that was copied into another mount
// namespace is served until it is gone there too.
func (m *Mounted) Unmount() error { return m.unmount(0, "-u") }

// Detach takes the mount out of sight at once; programs that use it go on until
// they are done with it.
func (m *Mounted) Detach() error { return m.unmount(unix.MNT_DETACH, "-uz") }

func (m *Mounted) unmount(flags int, fusermountFlag string) error {
	if m.tree.asRoot {
		if err := unix.Unmount(m.mountpoint, flags|unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("unmount %s: %w", m.mountpoint, err)
		}
		return nil
	}
	out, err := exec.Command("fusermount3", fusermountFlag, "--", m.mountpoint).CombinedOutput()
	if err == nil {
		return nil
	}
	text := strings.TrimSpace(string(out))
	if strings.Contains(text, "busy") {
		err = unix.EBUSY
	}
	return fmt.Errorf("unmount %s: %w (%s)", m.mountpoint, err, text)
}

// setReadahead raises what the kernel reads ahead on the mount, which the FUSE
// protocol can only lower.
func setReadahead(mountpoint string, bytes int) error {
	dev, err := deviceOf(mountpoint)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("/sys/class/bdi/%s/read_ahead_kb", dev)
	if err := os.WriteFile(name, fmt.Appendf(nil, "%d\n", bytes>>10), 0); err != nil {
		return fmt.Errorf("readahead of %d KiB: %w; leave --readahead out, or mount as root", bytes>>10, err)
	}
	return nil
}

// deviceOf is the "major:minor" of the topmost mount on mountpoint. It asks the
// kernel's list, since a stat would have to be answered by us.
func deviceOf(mountpoint string) (string, error) {
	list, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	dev := ""
	for line := range strings.Lines(string(list)) {
		if f := strings.Fields(line); len(f) > 4 && unescape(f[4]) == mountpoint {
			dev = f[2]
		}
	}
	if dev == "" {
		return "", fmt.Errorf("%s is not in the list of mounts", mountpoint)
	}
	return dev, nil
}

// unescape undoes the kernel's octal escapes of a path in its lists.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
