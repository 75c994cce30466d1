package tests

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// birth is a way to make an object.
type birth struct {
	name string
	make func(path string) error
}

func births() []birth {
	var all []birth
	for _, mode := range pickLong([]uint32{0o666, 0o2755, 0o6777}, []uint32{0o666, 0o777, 0o600, 0o2755, 0o4711, 0o2666, 0o6777}) {
		all = append(all,
			birth{fmt.Sprintf("create %o", mode), func(p string) error { return makeFile(p, unix.O_EXCL, mode) }},
			birth{fmt.Sprintf("mkdir %o", mode), func(p string) error { return unix.Mkdir(p, mode) }},
			birth{fmt.Sprintf("tmpfile %o", mode), func(p string) error { return makeByTmpfile(p, mode) }})
	}
	return append(all,
		birth{"open", func(p string) error { return makeFile(p, 0, 0o640) }},
		birth{"mkdir 1777", func(p string) error { return unix.Mkdir(p, 0o1777) }},
		birth{"mknod file", func(p string) error { return unix.Mknod(p, unix.S_IFREG|0o2660, 0) }},
		birth{"mknod fifo", func(p string) error { return unix.Mknod(p, unix.S_IFIFO|0o664, 0) }},
		birth{"mknod socket", func(p string) error { return unix.Mknod(p, unix.S_IFSOCK|0o664, 0) }},
		birth{"mknod device", func(p string) error { return unix.Mknod(p, unix.S_IFCHR|0o664, int(unix.Mkdev(1, 3))) }},
		birth{"symlink", func(p string) error { return unix.Symlink("nowhere", p) }})
}

func makeFile(path string, flags int, mode uint32) error {
	fd, err := unix.Open(path, flags|unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, mode)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

func makeByTmpfile(path string, mode uint32) error {
	fd, err := unix.Open(path[:strings.LastIndexByte(path, '/')], unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, mode)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Linkat(unix.AT_FDCWD, fdPath(fd), unix.AT_FDCWD, path, unix.AT_SYMLINK_FOLLOW)
}

// nurseries are the kinds of folders that objects are made in.
func nurseries() map[string]func(path string) error {
	return map[string]func(string) error{
		"plain":  func(p string) error { return os.Chmod(p, 0o777) },
		"sticky": func(p string) error { return unix.Chmod(p, 0o1777) },
		"setgid": func(p string) error { return errors.Join(os.Chown(p, 0, privGroup), unix.Chmod(p, 0o2777)) },
		"default ACL": func(p string) error {
			return errors.Join(os.Chmod(p, 0o777), unix.Setxattr(p, "system.posix_acl_default", sampleACL(), 0))
		},
		"narrow default ACL and setgid": func(p string) error {
			return errors.Join(os.Chown(p, 0, secondGroup), unix.Chmod(p, 0o2777), unix.Setxattr(p, "system.posix_acl_default", narrowACL(), 0))
		},
	}
}

// narrowACL is "u::rw-,g::r--,o::---" as setfacl(1) stores it.
func narrowACL() []byte {
	b := binary.LittleEndian.AppendUint32(nil, 2)
	for _, e := range [][2]uint16{{1, 6}, {4, 4}, {0x20, 0}} {
		b = binary.LittleEndian.AppendUint16(b, e[0])
		b = binary.LittleEndian.AppendUint16(b, e[1])
		b = binary.LittleEndian.AppendUint32(b, ^uint32(0))
	}
	return b
}

// TestOwnersFromTheFirstMoment: several users make all kinds of objects in all kinds of folders, with several
// umasks, through one mount of root. Somebody who looks at SOURCE without pause never sees one with another owner,
// group or mode than it would have on a plain filesystem.
func TestOwnersFromTheFirstMoment(t *testing.T) {
	requireRoot(t)
	m := mount(t, withMode("cached"), withArgs("--allow-other"))
	plain := scratch(t)
	for kind, prepare := range nurseries() {
		n := nursery{t: t, kind: kind, plain: plain + "/" + kind, source: m.Backing(kind), mount: m.Path(kind)}
		for _, dir := range []string{n.plain, n.source} {
			must(t, os.Mkdir(dir, 0o755))
			must(t, prepare(dir))
		}
		for who, u := range privCallers() {
			if who == "group" && !soaking() {
				continue
			}
			for _, umask := range pickLong([]int{0, 0o027}, []int{0, 0o022, 0o027, 0o077, 0o777}) {
				must(t, as(u, umask, func() error { return n.fill(who, umask) }))
			}
		}
	}
}

// nursery is a folder on a plain filesystem and its like on the mount.
type nursery struct {
	t                          *testing.T
	kind, plain, source, mount string
}

// fill makes one of each kind of object in both folders, and compares them.
func (n *nursery) fill(who string, umask int) error {
	for i, b := range births() {
		name := fmt.Sprintf("/%s-%o-%d", who, umask, i)
		want := b.make(n.plain + name)
		watcher := watchFor(n.source + name)
		got := b.make(n.mount + name)
		seen, err := watcher.result(got == nil)
		if err != nil {
			return err
		}
		what := fmt.Sprintf("%s by %s with umask %o in a %s folder", b.name, who, umask, n.kind)
		if !errors.Is(got, want) {
			n.t.Errorf("%s gives %v, not %v", what, got, want)
			continue
		}
		if want != nil {
			continue
		}
		wanted, final := describeBorn(n.plain+name), describeBorn(n.source+name)
		if seen != withoutACL(wanted) || final != wanted {
			n.t.Errorf("%s:\nwant       %s\nfirst seen %s\nin the end %s", what, wanted, seen, final)
		}
	}
	return nil
}

// describeBorn tells what an object is at its birth.
func describeBorn(path string) string {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return err.Error()
	}
	text := describeOwner(&st)
	for _, name := range []string{"system.posix_acl_access", "system.posix_acl_default"} {
		buf := make([]byte, 256)
		if n, err := unix.Lgetxattr(path, name, buf); err == nil {
			text += fmt.Sprintf(" %s %x", name, buf[:n])
		}
	}
	return text
}

func describeOwner(st *unix.Stat_t) string {
	return fmt.Sprintf("mode %o owner %d:%d rdev %x", st.Mode, st.Uid, st.Gid, st.Rdev)
}

func withoutACL(text string) string {
	text, _, _ = strings.Cut(text, " system.")
	return text
}

// birthWatcher looks for a name without pause, from a thread of its own.
type birthWatcher struct {
	stop  atomic.Bool
	first chan string
}

func watchFor(path string) *birthWatcher {
	w := &birthWatcher{first: make(chan string, 1)}
	watching := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		close(watching)
		var st unix.Stat_t
		for !w.stop.Load() {
			if err := unix.Lstat(path, &st); err == nil {
				w.first <- describeOwner(&st)
				return
			}
		}
		w.first <- ""
	}()
	<-watching
	return w
}

// result is what the watcher saw first. If there is nothing to be seen it stops looking.
func (w *birthWatcher) result(exists bool) (string, error) {
	if !exists {
		w.stop.Store(true)
	}
	select {
	case seen := <-w.first:
		return seen, nil
	case <-time.After(10 * time.Second):
		w.stop.Store(true)
		return "", errors.New("the object never appeared in SOURCE")
	}
}
