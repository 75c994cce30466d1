package tests

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// blksizes are the sizes every reply is checked with: the least and the largest, and those people use.
func blksizes() map[string]int64 {
	return map[string]int64{
		"1": 1, "512": 512, "4k": 4 << 10, "8k": 8 << 10, "128k": 128 << 10, "1M": 1 << 20, "4M": 4 << 20,
		"2147483648": 1 << 31, "native": 0,
	}
}

// TestBlksizeEverywhere: whatever reply the kernel got the attributes with, the size is the one asked for, at
// once, and stays so.
func TestBlksizeEverywhere(t *testing.T) {
	requireRoot(t)
	for name, size := range blksizes() {
		t.Run(name, func(t *testing.T) {
			eachMode(t, func(t *testing.T, mode string) {
				for _, timeout := range []string{"0s", "60s"} {
					m := mount(t, withMode(mode), withArgs("--blksize="+name, "--attr-timeout="+timeout, "--entry-timeout="+timeout))
					c := blksizeCheck{t: t, dir: m.Dir, want: size}
					if size == 0 {
						c.want = nativeBlksize(t, m.Source)
					}
					c.replies()
					c.listing()
					m.Unmount()
				}
			})
		})
	}
}

func nativeBlksize(t *testing.T, path string) int64 {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Lstat(path, &st))
	return st.Blksize
}

// blksizeCheck does everything that makes the kernel learn attributes, and looks at the size after each.
type blksizeCheck struct {
	t    *testing.T
	dir  string
	want int64
}

func (c blksizeCheck) path(name string) string { return c.dir + "/" + name }

// look compares what all the calls of the stat family say of path.
func (c blksizeCheck) look(after, path string) {
	c.t.Helper()
	var st unix.Stat_t
	must(c.t, unix.Lstat(path, &st))
	c.check(after, "lstat", path, st.Blksize)
	var stx unix.Statx_t
	must(c.t, unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS, &stx))
	c.check(after, "statx", path, int64(stx.Blksize))
	must(c.t, unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_STATX_DONT_SYNC, 0, &stx))
	c.check(after, "statx of the cache", path, int64(stx.Blksize))
	must(c.t, unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_STATX_FORCE_SYNC, unix.STATX_BTIME, &stx))
	c.check(after, "statx with btime", path, int64(stx.Blksize))
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	must(c.t, err)
	c.lookFD(after, "fstat of O_PATH", fd)
	unix.Close(fd)
	if st.Mode&unix.S_IFMT != unix.S_IFREG && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return
	}
	must(c.t, unix.Stat(path, &st))
	c.check(after, "stat", path, st.Blksize)
	fd, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	must(c.t, err)
	c.lookFD(after, "fstat", fd)
	unix.Close(fd)
}

func (c blksizeCheck) lookFD(after, call string, fd int) {
	c.t.Helper()
	var st unix.Stat_t
	must(c.t, unix.Fstat(fd, &st))
	c.check(after, call, strconv.Itoa(fd), st.Blksize)
}

func (c blksizeCheck) check(after, call, what string, got int64) {
	c.t.Helper()
	if got != c.want {
		c.t.Errorf("after %s, %s of %s says st_blksize %d, not %d", after, call, what, got, c.want)
	}
}

// replies goes through the requests whose reply carries attributes. The fstat of a descriptor comes before
// any path is looked up again, so that it sees what the reply itself said.
func (c blksizeCheck) replies() {
	t := c.t
	fd, err := unix.Open(c.path("file"), unix.O_CREAT|unix.O_EXCL|unix.O_RDWR|unix.O_CLOEXEC, 0o644)
	must(t, err)
	defer unix.Close(fd)
	c.lookFD("create", "fstat", fd)
	_, err = unix.Write(fd, []byte("hello"))
	must(t, err)
	c.lookFD("write", "fstat", fd)
	c.look("create", c.path("file"))
	for name, call := range map[string]func(path string) error{
		"mkdir":        func(p string) error { return unix.Mkdir(p, 0o755) },
		"mknod":        func(p string) error { return unix.Mknod(p, unix.S_IFREG|0o644, 0) },
		"mknod fifo":   func(p string) error { return unix.Mknod(p, unix.S_IFIFO|0o644, 0) },
		"mknod device": func(p string) error { return unix.Mknod(p, unix.S_IFCHR|0o644, int(unix.Mkdev(1, 3))) },
		"symlink":      func(p string) error { return unix.Symlink("file", p) },
		"link":         func(p string) error { return unix.Link(c.path("file"), p) },
	} {
		must(t, call(c.path(name)))
		c.look(name, c.path(name))
		must(t, unix.Rename(c.path(name), c.path(name)+" 2"))
		c.look("rename after "+name, c.path(name)+" 2")
	}
	must(t, unix.Fchmod(fd, 0o600))
	c.lookFD("fchmod", "fstat", fd)
	must(t, unix.Ftruncate(fd, 3))
	c.lookFD("ftruncate", "fstat", fd)
	must(t, unix.Fchown(fd, 1, 1))
	c.lookFD("fchown", "fstat", fd)
	must(t, unix.Chmod(c.path("mkdir 2"), 0o700))
	c.look("chmod", c.path("mkdir 2"))
	c.tmpfile()
	c.look("nothing more", c.dir)
}

func (c blksizeCheck) tmpfile() {
	t := c.t
	fd, err := unix.Open(c.dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o644)
	must(t, err)
	defer unix.Close(fd)
	c.lookFD("O_TMPFILE", "fstat", fd)
	must(t, unix.Linkat(fd, "", unix.AT_FDCWD, c.path("tmp"), unix.AT_EMPTY_PATH))
	c.lookFD("linkat of O_TMPFILE", "fstat", fd)
	c.look("linkat of O_TMPFILE", c.path("tmp"))
}

// listing looks at sizes that came with readdirplus: the names were dropped before.
func (c blksizeCheck) listing() {
	t := c.t
	must(t, forgetInodes(c.dir))
	entries, err := os.ReadDir(c.dir)
	must(t, err)
	if len(entries) < 8 {
		t.Fatalf("only %d entries", len(entries))
	}
	for _, e := range entries {
		var stx unix.Statx_t
		must(t, unix.Statx(unix.AT_FDCWD, c.path(e.Name()), unix.AT_SYMLINK_NOFOLLOW|unix.AT_STATX_DONT_SYNC, unix.STATX_BASIC_STATS, &stx))
		c.check("readdir", "statx of the cache", e.Name(), int64(stx.Blksize))
		c.look("readdir", c.path(e.Name()))
	}
}

// TestStatfsBsize: every size that --statfs-bsize takes is what statfs and statvfs report, and the space in
// bytes stays what it is.
func TestStatfsBsize(t *testing.T) {
	requireRoot(t)
	for name, size := range blksizes() {
		t.Run(name, func(t *testing.T) {
			m := mount(t, withArgs("--statfs-bsize="+name))
			var backing, got unix.Statfs_t
			must(t, unix.Statfs(m.Source, &backing))
			must(t, unix.Statfs(m.Dir, &got))
			if size == 0 {
				size = backing.Bsize
			}
			// statvfs(3) is made from f_bsize and f_frsize.
			if got.Bsize != size || got.Frsize != size {
				t.Errorf("f_bsize %d and f_frsize %d, not %d", got.Bsize, got.Frsize, size)
			}
			if err := sameSpace(&backing, &got); err != nil {
				t.Error(err)
			}
			if got.Namelen != backing.Namelen || got.Files != backing.Files {
				t.Errorf("namelen %d files %d, SOURCE has %d and %d", got.Namelen, got.Files, backing.Namelen, backing.Files)
			}
		})
	}
}

// sameSpace compares the total exactly but for rounding down to a block; others may write meanwhile, which
// moves what is free.
func sameSpace(a, b *unix.Statfs_t) error {
	const slack = 256 << 20
	block := max(a.Frsize, b.Frsize)
	total := int64(a.Blocks)*a.Frsize - int64(b.Blocks)*b.Frsize
	free := int64(a.Bavail)*a.Frsize - int64(b.Bavail)*b.Frsize
	switch {
	case total < 0 || total >= block:
		return fmt.Errorf("the total differs by %d bytes", total)
	case free < -slack || free > slack+block:
		return fmt.Errorf("what is free differs by %d bytes", free)
	case b.Bfree < b.Bavail || b.Blocks < b.Bfree:
		return errors.New("more is available than there is")
	}
	return nil
}
