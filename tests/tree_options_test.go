package tests

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMountOptionsShown: /proc/self/mountinfo says what holds; nosuid and nodev are the default.
func TestMountOptionsShown(t *testing.T) {
	requireRoot(t)
	requirePackages(t, "fuse3")
	for name, c := range map[string]struct {
		args       []string
		user       bool
		has, lacks string // comma-separated
	}{
		"default":            {nil, false, "rw,nosuid,nodev,default_permissions", "noexec,allow_other"},
		"default for a user": {nil, true, "rw,nosuid,nodev,default_permissions", "noexec,allow_other"},
		"ro":                 {[]string{"--ro"}, false, "ro,nosuid,nodev", "rw"},
		"ro for a user":      {[]string{"--ro"}, true, "ro,nosuid,nodev", ""},
		"-o ro":              {[]string{"-o", "ro"}, false, "ro", "rw"},
		"suid":               {[]string{"-o", "suid"}, false, "nodev", "nosuid"},
		"dev":                {[]string{"-o", "dev"}, false, "nosuid", "nodev"},
		"suid and dev":       {[]string{"-o", "suid,dev"}, false, "rw", "nosuid,nodev"},
		"noexec":             {[]string{"-o", "noexec"}, false, "noexec,nosuid,nodev", ""},
		"noexec for a user":  {[]string{"-o", "noexec"}, true, "noexec,nosuid,nodev", ""},
		"noatime":            {[]string{"-o", "noatime"}, false, "noatime", "relatime"},
		"sync":               {[]string{"-o", "sync"}, false, "sync", ""},
		"allow_other":        {[]string{"--allow-other"}, false, "allow_other", ""},
	} {
		t.Run(name, func(t *testing.T) {
			opts, u := []mountOption{withArgs(c.args...)}, superuser()
			if c.user {
				u = ordinary()
				opts = append(opts, asUser(u))
			}
			m := mount(t, opts...)
			// To be unmounted before its first answer is an error to a daemon.
			must(t, as(u, 0, func() error { return unix.Stat(m.Dir, new(unix.Stat_t)) }))
			shown := strings.Split(m.entry.Options, ",")
			for _, word := range strings.Split(c.has, ",") {
				if !slices.Contains(shown, word) {
					t.Errorf("%s is missing in %v", word, shown)
				}
			}
			for _, word := range strings.Split(c.lacks, ",") {
				if word != "" && slices.Contains(shown, word) {
					t.Errorf("%s is in %v", word, shown)
				}
			}
			if m.entry.Source != m.Source || m.entry.Type != "fuse.tunefs" {
				t.Errorf("source %s, type %s", m.entry.Source, m.entry.Type)
			}
		})
	}
}

// TestUserCannotHaveSuid: fusermount3 does not give these options to an ordinary user, and neither do we.
func TestUserCannotHaveSuid(t *testing.T) {
	requireRoot(t)
	requirePackages(t, "fuse3")
	for _, word := range []string{"suid", "dev"} {
		base := scratch(t)
		u := ordinary()
		source, point := filepath.Join(base, "src"), filepath.Join(base, "mnt")
		makeDir(t, source, &u)
		makeDir(t, point, &u)
		openFuseDevice(t)
		out, err := u.command(tunefsBinary(t), "mount", "-o", word, source, point).CombinedOutput()
		left, listErr := mountsBelow(point)
		must(t, listErr)
		for _, e := range left {
			if !strings.Contains(e.Options, "no"+word) {
				t.Errorf("%s was given to a user: %v", word, e)
			}
			must(t, e.detach())
		}
		if err == nil && len(left) == 0 {
			t.Errorf("success, but nothing is mounted: %s", out)
		}
	}
}

// TestReadOnly: nothing can be changed, in SOURCE nothing is, and reading works.
func TestReadOnly(t *testing.T) {
	requireRoot(t)
	eachMode(t, func(t *testing.T, mode string) {
		source := filepath.Join(scratch(t), "src")
		must(t, errors.Join(os.Mkdir(source, 0o755), os.Mkdir(source+"/folder", 0o755), os.WriteFile(source+"/file", []byte("hello"), 0o644)))
		before := digest(t, source)
		m := mount(t, withSource(source), withMode(mode), withArgs("--ro"))
		file := m.Path("file")
		for name, err := range map[string]error{
			"open":     openWrite(file, unix.O_RDWR, nil),
			"truncate": unix.Truncate(file, 0),
			"create":   makeFile(m.Path("new"), 0, 0o644),
			"mkdir":    unix.Mkdir(m.Path("new"), 0o755),
			"mknod":    unix.Mknod(m.Path("new"), unix.S_IFIFO|0o644, 0),
			"symlink":  unix.Symlink("x", m.Path("new")),
			"link":     unix.Link(file, m.Path("new")),
			"unlink":   unix.Unlink(file),
			"rmdir":    unix.Rmdir(m.Path("folder")),
			"rename":   unix.Rename(file, m.Path("new")),
			"chmod":    unix.Chmod(file, 0o600),
			"chown":    unix.Chown(file, 1, 1),
			"utimens":  unix.UtimesNano(file, make([]unix.Timespec, 2)),
			"setxattr": unix.Setxattr(file, "user.x", []byte("y"), 0),
		} {
			if !errors.Is(err, unix.EROFS) {
				t.Errorf("%s gives %v", name, err)
			}
		}
		must(t, readsAs(file, "hello"))
		must(t, lists(m.Dir, "file", "folder"))
		if after := digest(t, source); after != before {
			t.Errorf("SOURCE was\n%s and is\n%s", before, after)
		}
	})
}

// TestNoatime: with noatime, reading through the mount leaves the access times in SOURCE alone.
func TestNoatime(t *testing.T) {
	requireRoot(t)
	requirePackages(t, "fuse3")
	eachMode(t, func(t *testing.T, mode string) {
		atimeCase{t: t, mode: mode, args: []string{"-o", "noatime"}, moves: false}.run()
	})
	t.Run("without", func(t *testing.T) {
		atimeCase{t: t, mode: "cached", moves: true}.run()
	})
	t.Run("user", func(t *testing.T) {
		u := ordinary()
		atimeCase{t: t, mode: "cached", args: []string{"-o", "noatime"}, user: &u}.run()
	})
}

type atimeCase struct {
	t     *testing.T
	mode  string
	args  []string
	user  *user
	moves bool // reading is expected to move the times
}

func (c atimeCase) run() {
	t := c.t
	opts := []mountOption{withMode(c.mode), withArgs(c.args...)}
	u := superuser()
	if c.user != nil {
		u = *c.user
		opts = append(opts, asUser(u))
	}
	m := mount(t, opts...)
	names := []string{"file", "link", "folder"}
	must(t, errors.Join(os.WriteFile(m.Backing("file"), []byte(strings.Repeat("x", 1<<20)), 0o644),
		os.Symlink("file", m.Backing("link")), os.Mkdir(m.Backing("folder"), 0o755)))
	if c.user != nil {
		for _, name := range names {
			must(t, os.Lchown(m.Backing(name), int(u.UID), int(u.GID)))
		}
		// What belongs to others can be read as well.
		must(t, os.WriteFile(m.Backing("root's"), []byte("hello"), 0o644))
		must(t, os.Mkdir(m.Backing("root's folder"), 0o755))
	}
	before := c.agedAtimes(m, names)
	must(t, as(u, 0, func() error {
		_, readErr := os.ReadFile(m.Path("file"))
		_, linkErr := os.Readlink(m.Path("link"))
		_, listErr := os.ReadDir(m.Path("folder"))
		err := errors.Join(readErr, linkErr, listErr)
		if c.user != nil {
			_, listErr := os.ReadDir(m.Path("root's folder"))
			err = errors.Join(err, readsAs(m.Path("root's"), "hello"), listErr)
		}
		return err
	}))
	for i, name := range names {
		after := atime(t, m.Backing(name))
		if c.user != nil && name == "link" {
			continue // readlink(2) has no such flag, and a mount without access times is for root
		}
		if moved := after != before[i]; moved && !c.moves {
			t.Errorf("reading %s moved its atime from %v to %v", name, before[i], after)
		} else if !moved && c.moves && name == "file" {
			t.Errorf("reading %s left its atime alone: the test shows nothing", name)
		}
	}
}

// agedAtimes makes the access times so old that relatime would move them.
func (c atimeCase) agedAtimes(m *mounted, names []string) []unix.Timespec {
	c.t.Helper()
	old := unix.NsecToTimespec(time.Now().Add(-72 * time.Hour).UnixNano())
	var times []unix.Timespec
	for _, name := range names {
		must(c.t, unix.UtimesNanoAt(unix.AT_FDCWD, m.Backing(name), []unix.Timespec{old, {Nsec: unix.UTIME_OMIT}}, unix.AT_SYMLINK_NOFOLLOW))
		times = append(times, atime(c.t, m.Backing(name)))
	}
	return times
}

func atime(t *testing.T, path string) unix.Timespec {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Lstat(path, &st))
	return st.Atim
}

// TestNoexecAndSuid: programs are refused or run, with or without setuid, as the options say.
func TestNoexecAndSuid(t *testing.T) {
	requireRoot(t)
	for name, c := range map[string]struct {
		args []string
		want string // what the program prints, or the error
	}{
		"default": {nil, fmt.Sprint(ordinary().UID)},
		"suid":    {[]string{"-o", "suid"}, "0"},
		"noexec":  {[]string{"-o", "noexec"}, "permission denied"},
	} {
		t.Run(name, func(t *testing.T) {
			m := mount(t, withArgs(append(c.args, "--allow-other")...))
			program, err := os.ReadFile("/usr/bin/id")
			must(t, err)
			must(t, os.WriteFile(m.Backing("id"), program, 0o755))
			must(t, unix.Chmod(m.Backing("id"), 0o4755))
			out, err := ordinary().command(m.Path("id"), "-u").CombinedOutput()
			got := strings.TrimSpace(string(out))
			if err != nil {
				got = fmt.Sprint(err)
			}
			if !strings.HasSuffix(got, c.want) {
				t.Errorf("it gives %q, not %q", got, c.want)
			}
		})
	}
}
