package tests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// ruleCheck is a mount with rules whose names and attributes the kernel keeps for a minute.
type ruleCheck struct {
	*mounted
	t *testing.T
}

func mountRules(t *testing.T, mode string, rules ...string) ruleCheck {
	t.Helper()
	args := []string{"--blksize=128k", "--attr-timeout=60s", "--entry-timeout=60s"}
	for _, r := range rules {
		args = append(args, "--rule="+r)
	}
	return ruleCheck{mount(t, withMode(mode), withArgs(args...)), t}
}

func (c ruleCheck) touch(names ...string) {
	c.t.Helper()
	for _, name := range names {
		must(c.t, os.MkdirAll(filepath.Dir(c.Path(name)), 0o755))
		must(c.t, os.WriteFile(c.Path(name), []byte("hello"), 0o644))
	}
}

// want checks the size of name, as stat and a fresh fstat see it.
func (c ruleCheck) want(when, name string, size int64) {
	c.t.Helper()
	var st unix.Stat_t
	must(c.t, unix.Lstat(c.Path(name), &st))
	if st.Blksize != size {
		c.t.Errorf("%s, lstat of %s says %d, not %d", when, name, st.Blksize, size)
	}
	var stx unix.Statx_t
	must(c.t, unix.Statx(unix.AT_FDCWD, c.Path(name), unix.AT_SYMLINK_NOFOLLOW|unix.AT_STATX_FORCE_SYNC, unix.STATX_BASIC_STATS, &stx))
	if int64(stx.Blksize) != size {
		c.t.Errorf("%s, statx of %s says %d, not %d", when, name, stx.Blksize, size)
	}
}

func (c ruleCheck) rename(from, to string) {
	c.t.Helper()
	must(c.t, unix.Rename(c.Path(from), c.Path(to)))
}

// TestRulesFollowNames: the first matching rule decides, and a rename changes the size at once, of the file and
// of what lies below a folder, whatever the kernel has cached.
func TestRulesFollowNames(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		c := mountRules(t, mode, "logs/**=4k", "*.log=512", "**/*.db=1M", "big/**=4M")
		c.touch("a", "a.log", "x/b.log", "x/y/c.db", "logs/d", "logs/e.db", "big/sub/deep/f", "logs/sub/g")
		for name, size := range map[string]int64{
			"a": 128 << 10, "a.log": 512, "x/b.log": 128 << 10, "x/y/c.db": 1 << 20, "logs/d": 4 << 10, "logs/e.db": 4 << 10,
			"big/sub/deep/f": 4 << 20, "logs/sub/g": 4 << 10,
		} {
			c.want("freshly made", name, size)
		}
		c.rename("a", "b.log")
		c.want("after the file's rename", "b.log", 512)
		c.rename("b.log", "a")
		c.want("after the way back", "a", 128<<10)
		c.rename("logs/sub", "big/moved")
		c.want("after the folder's rename", "big/moved/g", 4<<20)
		c.rename("big", "x/big")
		for _, name := range []string{"x/big/moved/g", "x/big/sub/deep/f"} {
			c.want("after the rename of a folder above", name, 128<<10)
		}
		must(t, unix.Renameat2(unix.AT_FDCWD, c.Path("a"), unix.AT_FDCWD, c.Path("a.log"), unix.RENAME_EXCHANGE))
		c.want("after an exchange", "a", 128<<10)
		c.want("after an exchange", "a.log", 512)
		must(t, unix.Renameat2(unix.AT_FDCWD, c.Path("x"), unix.AT_FDCWD, c.Path("logs"), unix.RENAME_EXCHANGE))
		c.want("after an exchange of folders", "logs/y/c.db", 4<<10)
		c.want("after an exchange of folders", "x/d", 128<<10)
	})
}

// TestRulesFollowOpenFiles: what is open is renamed too.
func TestRulesFollowOpenFiles(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		c := mountRules(t, mode, "*.log=512", "big/**=4M")
		c.touch("a", "small/b")
		must(t, os.Mkdir(c.Path("big"), 0o755))
		for _, way := range []struct {
			from, to string
			size     int64
		}{{"a", "a.log", 512}, {"small/b", "big/b", 4 << 20}} {
			fd, err := unix.Open(c.Path(way.from), unix.O_RDONLY|unix.O_CLOEXEC, 0)
			must(t, err)
			c.rename(way.from, way.to)
			var st unix.Stat_t
			must(t, unix.Fstat(fd, &st))
			if st.Blksize != way.size {
				t.Errorf("fstat after %s became %s says %d, not %d", way.from, way.to, st.Blksize, way.size)
			}
			unix.Close(fd)
		}
	})
}

// TestRulesAndLinkedTmpfile: a file without a name gets its rule with its name.
func TestRulesAndLinkedTmpfile(t *testing.T) {
	c := mountRules(t, "cached", "*.log=512")
	fd, err := unix.Open(c.Dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o644)
	must(t, err)
	defer unix.Close(fd)
	var st unix.Stat_t
	must(t, unix.Fstat(fd, &st))
	if st.Blksize != 128<<10 {
		t.Errorf("without a name it has %d", st.Blksize)
	}
	must(t, unix.Linkat(unix.AT_FDCWD, fdPath(fd), unix.AT_FDCWD, c.Path("a.log"), unix.AT_SYMLINK_FOLLOW))
	c.want("after linkat", "a.log", 512)
}

// TestRulesFollowChangesBehind: names change in SOURCE, to and fro; a fresh lookup brings the size of the name.
func TestRulesFollowChangesBehind(t *testing.T) {
	requireRoot(t)
	c := ruleCheck{mount(t, withMode("cached"), withArgs("--rule=*.log=512", "--rule=logs/**=4k", "--attr-timeout=0s", "--entry-timeout=0s")), t}
	c.touch("a", "dir/f")
	for range 2 {
		c.want("as made", "a", 128<<10)
		must(t, os.Rename(c.Backing("a"), c.Backing("a.log")))
		c.want("after a rename in SOURCE", "a.log", 512)
		must(t, os.Rename(c.Backing("a.log"), c.Backing("a")))

		c.want("as made", "dir/f", 128<<10)
		must(t, os.Rename(c.Backing("dir"), c.Backing("logs")))
		c.want("after a rename of its folder in SOURCE", "logs/f", 4<<10)
		must(t, os.Rename(c.Backing("logs"), c.Backing("dir")))
	}
}

// TestRuleDirect: a rule sends single files of a passthrough mount to direct mode, where the page cache of the
// mount does not know them, and their data is the same.
func TestRuleDirect(t *testing.T) {
	requirePassthrough(t)
	c := mountRules(t, "passthrough", "*.raw=1M,io=direct", "*.kept=8k,io=cached")
	data := strings.Repeat("0123456789abcdef", 1<<16)
	for _, name := range []string{"a.raw", "a.kept", "a"} {
		must(t, os.WriteFile(c.Path(name), []byte(data), 0o644))
		if got, err := os.ReadFile(c.Path(name)); err != nil || string(got) != data {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	c.want("made", "a.raw", 1<<20)
	// Only cached pages of the mount itself keep a change made in SOURCE from being seen.
	for _, name := range []string{"a.raw", "a"} {
		fd, err := unix.Open(c.Path(name), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		must(t, err)
		buf := make([]byte, 16)
		_, err = unix.Pread(fd, buf, 0)
		must(t, err)
		must(t, writeAt(c.Backing(name), "CHANGED", 0))
		_, err = unix.Pread(fd, buf, 0)
		must(t, err)
		if string(buf) != "CHANGED789abcdef" {
			t.Errorf("%s: read %q", name, buf)
		}
		unix.Close(fd)
	}
}

// writeAt changes a file in place.
func writeAt(path, data string, off int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteAt([]byte(data), off)
	return err
}
