package fs

import (
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"tunefs/policy"
)

// fakeKernel stands for the other side of /dev/fuse, which these tests do
// without: they call the tree as the carrier of requests does.
type fakeKernel struct {
	mu       sync.Mutex
	notified []uint64
	backing  map[int32]bool
	last     int32
	refuse   syscall.Errno
}

func (k *fakeKernel) InodeNotify(node uint64, off, length int64) fuse.Status {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.notified = append(k.notified, node)
	return fuse.OK
}

func (k *fakeKernel) RegisterBackingFd(*fuse.BackingMap) (int32, syscall.Errno) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.refuse != 0 {
		return 0, k.refuse
	}
	k.last++
	if k.backing == nil {
		k.backing = map[int32]bool{}
	}
	k.backing[k.last] = true
	return k.last, 0
}

func (k *fakeKernel) UnregisterBackingFd(id int32) syscall.Errno {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.backing, id)
	return 0
}

func newTestTree(t *testing.T, p policy.Policy) (*Tree, *fakeKernel, string) {
	t.Helper()
	dir := t.TempDir()
	tree, err := NewTree(dir, Settings{Policy: p, AttrTimeout: time.Second, EntryTimeout: time.Second, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	k := &fakeKernel{}
	tree.kernel = k
	t.Cleanup(tree.Close)
	return tree, k, dir
}

// header is that of a request by this process on a node.
func header(node uint64) fuse.InHeader {
	return fuse.InHeader{NodeId: node, Caller: fuse.Caller{
		Owner: fuse.Owner{Uid: uint32(os.Geteuid()), Gid: uint32(os.Getegid())}, Pid: uint32(os.Getpid()),
	}}
}

// walk looks up a path as the kernel does, name by name.
func walk(t *testing.T, tree *Tree, path string) fuse.EntryOut {
	t.Helper()
	var out fuse.EntryOut
	node := uint64(fuse.FUSE_ROOT_ID)
	for name := range strings.SplitSeq(path, "/") {
		h := header(node)
		out = fuse.EntryOut{}
		if st := tree.Lookup(nil, &h, name, &out); st != fuse.OK {
			t.Fatalf("lookup of %s in %s: %v", name, path, st)
		}
		node = out.NodeId
	}
	return out
}

func getattr(tree *Tree, node uint64) (fuse.Attr, fuse.Status) {
	var out fuse.AttrOut
	st := tree.GetAttr(nil, &fuse.GetAttrIn{InHeader: header(node)}, &out)
	return out.Attr, st
}

func write(t *testing.T, path, data string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestLookupKnowsHardLinksAsOne(t *testing.T) {
	tree, _, dir := newTestTree(t, policy.Policy{})
	write(t, dir+"/a/one", "x")
	if err := os.Link(dir+"/a/one", dir+"/two"); err != nil {
		t.Fatal(err)
	}
	one, two := walk(t, tree, "a/one"), walk(t, tree, "two")
	if one.NodeId != two.NodeId {
		t.Errorf("two names of one file are nodes %d and %d", one.NodeId, two.NodeId)
	}
}

func TestReplacedBehindOurBackIsStale(t *testing.T) {
	tree, _, dir := newTestTree(t, policy.Policy{})
	for _, replace := range []struct {
		what string
		with func(path string) error
	}{
		{"another file", func(p string) error { write(t, p+".new", "other"); return os.Rename(p+".new", p) }},
		{"a folder", func(p string) error { return os.Mkdir(p, 0o755) }},
		{"a symlink", func(p string) error { return os.Symlink("/etc/passwd", p) }},
		{"a fifo", func(p string) error { return unix.Mkfifo(p, 0o644) }},
		{"nothing", func(string) error { return nil }},
	} {
		t.Run(replace.what, func(t *testing.T) {
			path := filepath.Join(dir, replace.what)
			write(t, path, "first")
			node := walk(t, tree, replace.what).NodeId
			if err := os.Rename(path, filepath.Join(dir, "elsewhere")); err != nil {
				t.Fatal(err)
			}
			if err := replace.with(path); err != nil {
				t.Fatal(err)
			}
			if _, st := getattr(tree, node); st != fuse.Status(unix.ESTALE) {
				t.Errorf("attributes: %v, want ESTALE", st)
			}
			open := &fuse.OpenIn{InHeader: header(node)}
			if st := tree.Open(nil, open, &fuse.OpenOut{}); st != fuse.Status(unix.ESTALE) {
				t.Errorf("open: %v, want ESTALE", st)
			}
		})
	}
}

func TestRemovedStaysReachableUntilForgotten(t *testing.T) {
	tree, _, dir := newTestTree(t, policy.Policy{})
	write(t, dir+"/f", "data")
	node := walk(t, tree, "f").NodeId
	h := header(fuse.FUSE_ROOT_ID)
	if st := tree.Unlink(nil, &h, "f"); st != fuse.OK {
		t.Fatal(st)
	}
	a, st := getattr(tree, node)
	if st != fuse.OK || a.Nlink != 0 || a.Size != 4 {
		t.Errorf("after unlink: %v, %d links, size %d; want the file, without a name", st, a.Nlink, a.Size)
	}
	if n := tree.pins.Load(); n != 1 {
		t.Errorf("%d pinned descriptors, want 1", n)
	}
	tree.Forget(node, 1)
	if n := tree.pins.Load(); n != 0 {
		t.Errorf("%d pinned descriptors after the kernel forgot the file, want none", n)
	}
	if in := tree.inode(node); in != nil {
		t.Error("a forgotten node is still known")
	}
}

func TestForgetGoesUpTheTree(t *testing.T) {
	tree, _, dir := newTestTree(t, policy.Policy{})
	write(t, dir+"/a/b/c", "x")
	a, b, c := walk(t, tree, "a").NodeId, walk(t, tree, "a/b").NodeId, walk(t, tree, "a/b/c").NodeId
	tree.Forget(a, 3) // one by each walk
	tree.Forget(b, 2)
	if tree.inode(a) == nil || tree.inode(b) == nil {
		t.Fatal("a folder was dropped while something below it is known")
	}
	if _, st := getattr(tree, c); st != fuse.OK {
		t.Fatalf("attributes below forgotten folders: %v", st)
	}
	tree.Forget(c, 1)
	for _, node := range []uint64{a, b, c} {
		if tree.inode(node) != nil {
			t.Errorf("node %d is still known", node)
		}
	}
}

func TestDescriptorsAreBounded(t *testing.T) {
	tree, _, dir := newTestTree(t, policy.Policy{})
	tree.dirs.limit = 8
	deep := ""
	for i := range 100 {
		deep = filepath.Join(deep, strconv.Itoa(i))
	}
	write(t, filepath.Join(dir, deep, "leaf"), "x")
	for i := range 50 {
		write(t, filepath.Join(dir, "wide"+strconv.Itoa(i), "leaf"), "x")
	}
	before := openDescriptors(t)
	leaf := walk(t, tree, deep+"/leaf").NodeId
	for i := range 50 {
		walk(t, tree, "wide"+strconv.Itoa(i)+"/leaf")
	}
	if _, st := getattr(tree, leaf); st != fuse.OK {
		t.Errorf("a file below evicted folders: %v", st)
	}
	if n := openDescriptors(t) - before; n > 8 {
		t.Errorf("%d descriptors stay open, want at most 8", n)
	}
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func TestHandlesShareOneBackingFile(t *testing.T) {
	tree, k, dir := newTestTree(t, policy.Policy{IO: policy.Passthrough})
	write(t, dir+"/f", "x")
	node := walk(t, tree, "f").NodeId
	var outs [3]fuse.OpenOut
	for i := range outs {
		if st := tree.Open(nil, &fuse.OpenIn{InHeader: header(node), Flags: uint32(i)}, &outs[i]); st != fuse.OK {
			t.Fatal(st)
		}
		if outs[i].BackingID != outs[0].BackingID || outs[i].OpenFlags&fuse.FOPEN_PASSTHROUGH == 0 {
			t.Errorf("handle %d: %+v, want passthrough to the same file as the first", i, outs[i])
		}
	}
	if len(k.backing) != 1 {
		t.Errorf("%d backing files registered, want 1", len(k.backing))
	}
	for _, out := range outs {
		tree.Release(nil, &fuse.ReleaseIn{InHeader: header(node), Fh: out.Fh})
	}
	if len(k.backing) != 0 {
		t.Errorf("%d backing files registered after the last close", len(k.backing))
	}
}

func TestRefusedPassthroughBecomesCached(t *testing.T) {
	tree, k, dir := newTestTree(t, policy.Policy{IO: policy.Passthrough})
	k.refuse = unix.ELOOP
	write(t, dir+"/f", "x")
	node := walk(t, tree, "f").NodeId
	for range 2 {
		var out fuse.OpenOut
		if st := tree.Open(nil, &fuse.OpenIn{InHeader: header(node)}, &out); st != fuse.OK {
			t.Fatal(st)
		}
		if out.OpenFlags&(fuse.FOPEN_PASSTHROUGH|fuse.FOPEN_DIRECT_IO) != 0 {
			t.Errorf("open flags %#x, want the page cache", out.OpenFlags)
		}
	}
}

func TestBlockSizeFollowsRenames(t *testing.T) {
	rule, err := policy.ParseRule("big/**=1M")
	if err != nil {
		t.Fatal(err)
	}
	tree, k, dir := newTestTree(t, policy.Policy{Blksize: 8192, Rules: []policy.Rule{rule}})
	write(t, dir+"/small/sub/f", "x")
	node := walk(t, tree, "small/sub/f").NodeId
	if a, _ := getattr(tree, node); a.Blksize != 8192 {
		t.Fatalf("block size %d before the rename", a.Blksize)
	}
	rename := &fuse.RenameIn{InHeader: header(fuse.FUSE_ROOT_ID), Newdir: fuse.FUSE_ROOT_ID}
	if st := tree.Rename(nil, rename, "small", "big"); st != fuse.OK {
		t.Fatal(st)
	}
	if a, _ := getattr(tree, node); a.Blksize != 1<<20 {
		t.Errorf("block size %d after its folder's rename, want 1M", a.Blksize)
	}
	told := false
	for _, n := range k.notified {
		told = told || n == node
	}
	if !told {
		t.Error("the kernel was not told that the file's attributes changed")
	}
}

func TestStatfsInOtherUnits(t *testing.T) {
	tree, _, _ := newTestTree(t, policy.Policy{})
	h := header(fuse.FUSE_ROOT_ID)
	var native, scaled fuse.StatfsOut
	if st := tree.StatFs(nil, &h, &native); st != fuse.OK {
		t.Fatal(st)
	}
	tree.StatfsBsize = 1 << 20
	if st := tree.StatFs(nil, &h, &scaled); st != fuse.OK {
		t.Fatal(st)
	}
	if scaled.Bsize != 1<<20 || scaled.Frsize != 1<<20 {
		t.Errorf("f_bsize %d, f_frsize %d, want 1M", scaled.Bsize, scaled.Frsize)
	}
	want, got := native.Blocks*uint64(native.Frsize), scaled.Blocks*uint64(scaled.Frsize)
	if want-got >= 1<<20 {
		t.Errorf("%d bytes in all, want %d less at most 1M", got, want)
	}
}

func TestIoctlRefusesWhatItDoesNotKnow(t *testing.T) {
	tree, _, dir := newTestTree(t, policy.Policy{})
	write(t, dir+"/f", "x")
	node := walk(t, tree, "f").NodeId
	var open fuse.OpenOut
	if st := tree.Open(nil, &fuse.OpenIn{InHeader: header(node)}, &open); st != fuse.OK {
		t.Fatal(st)
	}
	req := &fuse.IoctlIn{InHeader: header(node), Fh: open.Fh, Cmd: 0x40049409} // FICLONE
	if st := tree.Ioctl(nil, req, nil, &fuse.IoctlOut{}, nil); st != fuse.Status(unix.ENOTTY) {
		t.Errorf("%v, want ENOTTY", st)
	}
}
