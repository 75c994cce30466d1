package tests

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// handleUse is something done to a file, or a folder, through a descriptor alone.
type handleUse struct {
	name string
	do   func(fd int) error
}

// fileUses need a descriptor open for reading and writing of a file that reads "hello".
func fileUses() []handleUse {
	buf := make([]byte, 100)
	times := []unix.Timespec{{Sec: 1e9, Nsec: 123456789}, {Sec: 1e9 + 1}}
	return []handleUse{
		{"fstat", func(fd int) error { return handleStat(fd, func(st *unix.Stat_t) bool { return st.Size == 5 }) }},
		{"read", func(fd int) error {
			n, err := unix.Pread(fd, buf, 0)
			return wanted(err, string(buf[:max(n, 0)]) == "hello")
		}},
		{"write", func(fd int) error { return second(unix.Pwrite(fd, []byte("HELLO, world"), 0)) }},
		{"fstat after write", func(fd int) error { return handleStat(fd, func(st *unix.Stat_t) bool { return st.Size == 12 }) }},
		{"mmap", func(fd int) error { return mapWrite("", fd) }},
		{"fsync", unix.Fsync},
		{"fdatasync", unix.Fdatasync},
		{"ftruncate", func(fd int) error { return unix.Ftruncate(fd, 3) }},
		{"fallocate", func(fd int) error { return unix.Fallocate(fd, 0, 0, 10000) }},
		{"fchmod", func(fd int) error { return unix.Fchmod(fd, 0o640) }},
		{"fchown", func(fd int) error { return unix.Fchown(fd, 12, 34) }},
		{"futimens", func(fd int) error { return unix.Futimes(fd, []unix.Timeval{{Sec: 5}, {Sec: 6}}) }},
		{"utimensat of /proc/self/fd", func(fd int) error { return unix.UtimesNanoAt(unix.AT_FDCWD, fdPath(fd), times, 0) }},
		{"fsetxattr", func(fd int) error { return unix.Fsetxattr(fd, "user.x", []byte("y"), 0) }},
		{"fgetxattr", func(fd int) error { return second(unix.Fgetxattr(fd, "user.x", buf)) }},
		{"flistxattr", func(fd int) error { return second(unix.Flistxattr(fd, buf)) }},
		{"fremovexattr", func(fd int) error { return unix.Fremovexattr(fd, "user.x") }},
		{"fstatfs", func(fd int) error { return unix.Fstatfs(fd, new(unix.Statfs_t)) }},
		{"get inode flags", func(fd int) error { return second(unix.IoctlGetInt(fd, unix.FS_IOC_GETFLAGS)) }},
		{"flock", func(fd int) error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) }},
		{"lseek to data", func(fd int) error { return second(unix.Seek(fd, 0, unix.SEEK_DATA)) }},
		{"reopen for reading", func(fd int) error { return reopen(fd, unix.O_RDONLY) }},
		{"reopen for writing", func(fd int) error { return reopen(fd, unix.O_WRONLY) }},
		{"copy_file_range", func(fd int) error {
			in, out := int64(0), int64(20000)
			return second(unix.CopyFileRange(fd, &in, fd, &out, 3, 0))
		}},
		{"the attributes in the end", func(fd int) error {
			return handleStat(fd, func(st *unix.Stat_t) bool {
				return st.Mode&0o7777 == 0o640 && st.Uid == 12 && st.Gid == 34 && st.Nlink == 0 && st.Size == 20003
			})
		}},
	}
}

func wanted(err error, ok bool) error {
	if err == nil && !ok {
		return errors.New("not what was expected")
	}
	return err
}

func handleStat(fd int, ok func(*unix.Stat_t) bool) error {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	if err == nil && !ok(&st) {
		return fmt.Errorf("%+v", st)
	}
	return err
}

func reopen(fd, flags int) error {
	again, err := unix.Open(fdPath(fd), flags|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Close(again)
}

// goodbyes are the ways of a file, of the name "file", to lose its only name through the mount.
func goodbyes(m *mounted) map[string]func() error {
	return map[string]func() error{
		"unlinked": func() error { return unix.Unlink(m.Path("file")) },
		"renamed over": func() error {
			return errors.Join(os.WriteFile(m.Path("other"), []byte("other"), 0o644), unix.Rename(m.Path("other"), m.Path("file")))
		},
		"replaced by a new file": func() error {
			return errors.Join(unix.Unlink(m.Path("file")), os.WriteFile(m.Path("file"), []byte("other"), 0o644))
		},
		"linked and unlinked twice": func() error {
			return errors.Join(unix.Link(m.Path("file"), m.Path("link")), unix.Unlink(m.Path("file")), unix.Unlink(m.Path("link")))
		},
		"moved with its folder and removed": func() error {
			return errors.Join(unix.Mkdir(m.Path("folder"), 0o755), unix.Rename(m.Path("file"), m.Path("folder/file")),
				unix.Rename(m.Path("folder"), m.Path("moved")), os.RemoveAll(m.Path("moved")))
		},
	}
}

// TestUnlinkedOpenFile: a file without a name is as good as one that has one to those who hold it open.
func TestUnlinkedOpenFile(t *testing.T) {
	requireRoot(t)
	eachMode(t, func(t *testing.T, mode string) {
		for _, timeout := range []string{"0s", "60s"} {
			m := mount(t, withMode(mode), withArgs("--attr-timeout="+timeout, "--entry-timeout="+timeout))
			for name, goodbye := range goodbyes(m) {
				fd := holdFile(t, m.Path("file"), unix.O_RDWR)
				must(t, goodbye())
				for _, use := range fileUses() {
					if err := use.do(fd); err != nil {
						t.Errorf("timeout %s, %s, %s: %v", timeout, name, use.name, err)
					}
				}
				unix.Close(fd)
				must(t, os.RemoveAll(m.Path("file")))
			}
			m.Unmount()
		}
	})
}

// holdFile makes a file that reads "hello" and opens it.
func holdFile(t *testing.T, path string, flags int) int {
	t.Helper()
	must(t, os.WriteFile(path, []byte("hello"), 0o600))
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
	must(t, err)
	return fd
}

// TestUnlinkedPathDescriptor: O_PATH holds a file as well, and can open it again.
func TestUnlinkedPathDescriptor(t *testing.T) {
	requireRoot(t)
	eachMode(t, func(t *testing.T, mode string) {
		m := mount(t, withMode(mode))
		for name, goodbye := range goodbyes(m) {
			fd := holdFile(t, m.Path("file"), unix.O_PATH)
			must(t, goodbye())
			for _, use := range pathUses() {
				if err := use.do(fd); err != nil {
					t.Errorf("%s, %s: %v", name, use.name, err)
				}
			}
			unix.Close(fd)
			must(t, os.RemoveAll(m.Path("file")))
		}
	})
}

func pathUses() []handleUse {
	return []handleUse{
		{"fstat", func(fd int) error {
			return handleStat(fd, func(st *unix.Stat_t) bool { return st.Size == 5 && st.Nlink == 0 })
		}},
		{"read", func(fd int) error { return readsAs(fdPath(fd), "hello") }},
		{"write", func(fd int) error { return openWrite(fdPath(fd), unix.O_WRONLY, []byte("HELLO, world")) }},
		{"read again", func(fd int) error { return readsAs(fdPath(fd), "HELLO, world") }},
		{"truncate", func(fd int) error { return unix.Truncate(fdPath(fd), 3) }},
		{"chmod", func(fd int) error { return unix.Chmod(fdPath(fd), 0o640) }},
		{"fchownat", func(fd int) error { return unix.Fchownat(fd, "", 12, 34, unix.AT_EMPTY_PATH) }},
		{"setxattr", func(fd int) error { return unix.Setxattr(fdPath(fd), "user.x", []byte("y"), 0) }},
		{"the attributes in the end", func(fd int) error {
			return handleStat(fd, func(st *unix.Stat_t) bool {
				return st.Mode&0o7777 == 0o640 && st.Uid == 12 && st.Gid == 34 && st.Size == 3
			})
		}},
	}
}

// TestManyUnlinkedPathDescriptors: O_PATH costs the programs nothing, but the daemon a descriptor once the name is
// gone. It keeps some hundred; beyond that such a file is ESTALE, and never another.
func TestManyUnlinkedPathDescriptors(t *testing.T) {
	requireRoot(t)
	withDescriptors(t, descriptorLimit, "--attr-timeout=0s")
	m := mount(t)
	var fds []int
	for range 600 {
		fds = append(fds, holdFile(t, m.Path("file"), unix.O_PATH))
		must(t, unix.Unlink(m.Path("file")))
	}
	must(t, os.WriteFile(m.Path("file"), []byte(dataOther), 0o644))
	fine := 0
	for _, fd := range fds {
		err := readsAs(fdPath(fd), "hello")
		if err == nil {
			fine++
		}
		if !oneOf(err, unix.ESTALE) {
			t.Errorf("reading it gives %v", err)
		}
		unix.Close(fd)
	}
	if fine < 200 {
		t.Errorf("only %d of %d could be read", fine, len(fds))
	}
}

// TestLinkByDescriptor: linkat gives a file without a name one, if it was born as O_TMPFILE, and as natively not if it
// has lost its last; one that has a name gets another.
func TestLinkByDescriptor(t *testing.T) {
	requireRoot(t)
	eachMode(t, func(t *testing.T, mode string) {
		m := mount(t, withMode(mode))
		for name, link := range map[string]func(fd int, to string) error{
			"AT_EMPTY_PATH": func(fd int, to string) error { return unix.Linkat(fd, "", unix.AT_FDCWD, to, unix.AT_EMPTY_PATH) },
			"proc": func(fd int, to string) error {
				return unix.Linkat(unix.AT_FDCWD, fdPath(fd), unix.AT_FDCWD, to, unix.AT_SYMLINK_FOLLOW)
			},
		} {
			fd := holdFile(t, m.Path("file"), unix.O_RDWR)
			must(t, link(fd, m.Path("linked")))
			must(t, errors.Join(unix.Unlink(m.Path("file")), unix.Unlink(m.Path("linked"))))
			if err := link(fd, m.Path("again")); !errors.Is(err, unix.ENOENT) {
				t.Errorf("%s of a file that was unlinked gives %v", name, err)
			}
			unix.Close(fd)
			fd, err := unix.Open(m.Dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
			must(t, err)
			must(t, second(unix.Write(fd, []byte("temporary"))))
			must(t, link(fd, m.Path("named")))
			unix.Close(fd)
			must(t, readsAs(m.Path("named"), "temporary"))
			must(t, readsAs(m.Backing("named"), "temporary"))
			must(t, unix.Unlink(m.Path("named")))
		}
		fd, err := unix.Open(m.Dir, unix.O_TMPFILE|unix.O_EXCL|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
		must(t, err)
		defer unix.Close(fd)
		if err := unix.Linkat(fd, "", unix.AT_FDCWD, m.Path("exclusive"), unix.AT_EMPTY_PATH); !errors.Is(err, unix.ENOENT) {
			t.Errorf("linkat of O_TMPFILE|O_EXCL gives %v", err)
		}
	})
}

// TestRemovedWorkingFolder: a removed folder is empty, and takes nothing in.
func TestRemovedWorkingFolder(t *testing.T) {
	requireRoot(t)
	m := mount(t, withArgs("--attr-timeout=0s", "--entry-timeout=0s"))
	must(t, os.MkdirAll(m.Path("a/b"), 0o755))
	must(t, as(superuser(), 0, func() error {
		if err := unix.Chdir(m.Path("a/b")); err != nil {
			return err
		}
		if err := os.RemoveAll(m.Path("a")); err != nil {
			return err
		}
		var problems []error
		for name, call := range map[string]func() error{
			"create": func() error { return makeFile("x", 0, 0o644) },
			"mkdir":  func() error { return unix.Mkdir("x", 0o755) },
			"stat":   func() error { return unix.Lstat("x", new(unix.Stat_t)) },
			"stat ..": func() error {
				if err := unix.Lstat("../../a", new(unix.Stat_t)); err != nil {
					return err
				}
				return errors.New("it is still there")
			},
		} {
			if err := call(); !errors.Is(err, unix.ENOENT) {
				problems = append(problems, fmt.Errorf("%s gives %w", name, err))
			}
		}
		entries, err := os.ReadDir(".") // ENOENT natively
		if !oneOf(err, unix.ENOENT) || len(entries) > 0 {
			problems = append(problems, fmt.Errorf("it lists %v, %w", entries, err))
		}
		for name, err := range map[string]error{
			"stat .":     unix.Stat(".", new(unix.Stat_t)),
			"chmod .":    unix.Chmod(".", 0o700),
			"chown .":    unix.Chown(".", 1, 1),
			"setxattr .": unix.Setxattr(".", "user.x", []byte("y"), 0),
			"statfs .":   unix.Statfs(".", new(unix.Statfs_t)),
		} {
			if err != nil {
				problems = append(problems, fmt.Errorf("%s gives %w", name, err))
			}
		}
		return errors.Join(problems...)
	}))
}

// TestProgramsExhaustDescriptors: programs hold more files open than the daemon can. They are told so, by EMFILE or
// ENFILE; what needs no descriptor goes on; and once they let go, all is well.
func TestProgramsExhaustDescriptors(t *testing.T) {
	requireRoot(t)
	for _, mode := range modes() {
		t.Run(mode, func(t *testing.T) {
			if mode == "passthrough" {
				requirePassthrough(t)
			}
			withDescriptors(t, descriptorLimit, "--io="+mode, "--attr-timeout=0s", "--entry-timeout=0s")
			m := mount(t)
			must(t, os.MkdirAll(m.Path("folder/below"), 0o755))
			must(t, os.WriteFile(m.Path("folder/below/big"), []byte(strings.Repeat("0123456789abcdef", 1<<14)), 0o644))
			e := exhaustion{mounted: m, t: t}
			e.fill(5000)
			e.work("while exhausted", unix.EMFILE, unix.ENFILE)
			e.empty()
			e.work("afterwards")
		})
	}
}

// exhaustion holds files open that have no name any more.
type exhaustion struct {
	*mounted
	t    *testing.T
	held []int
}

// fill opens files until that fails, and then goes on trying.
func (e *exhaustion) fill(attempts int) {
	refused := 0
	for i := range attempts {
		path := e.Path(fmt.Sprint("held", i))
		fd, err := unix.Open(path, unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o644)
		if !oneOf(err, unix.EMFILE, unix.ENFILE) {
			e.t.Fatalf("open of the %dth file gives %v", i, err)
		}
		if err != nil {
			refused++
			continue
		}
		e.held = append(e.held, fd)
		if err := unix.Unlink(path); err != nil {
			e.t.Fatalf("unlink of the %dth open file gives %v", i, err)
		}
	}
	if len(e.held) < descriptorLimit/2 || refused == 0 {
		e.t.Errorf("%d files could be opened, %d not, of %d", len(e.held), refused, attempts)
	}
}

func (e *exhaustion) empty() {
	for _, fd := range e.held {
		unix.Close(fd)
	}
	time.Sleep(100 * time.Millisecond) // the daemon hears of it a little later
}

// work does what may or may not need a descriptor; it fails in no other way than allowed.
func (e *exhaustion) work(when string, allowed ...unix.Errno) {
	big := e.Path("folder/below/big")
	for name, call := range map[string]func() error{
		"stat":     func() error { return unix.Stat(big, new(unix.Stat_t)) },
		"statfs":   func() error { return unix.Statfs(e.Dir, new(unix.Statfs_t)) },
		"read":     func() error { return second(os.ReadFile(big)) },
		"list":     func() error { return second(os.ReadDir(e.Path("folder"))) },
		"chmod":    func() error { return unix.Chmod(big, 0o640) },
		"truncate": func() error { return unix.Truncate(big, 200000) },
		"setxattr": func() error { return unix.Setxattr(big, "user.x", []byte("y"), 0) },
		"mkdir":    func() error { return errors.Join(unix.Mkdir(big+".dir", 0o755), unix.Rmdir(big+".dir")) },
		"symlink":  func() error { return errors.Join(unix.Symlink("x", big+".link"), unix.Unlink(big+".link")) },
		"link":     func() error { return errors.Join(unix.Link(big, big+".hard"), unix.Unlink(big+".hard")) },
		"rename":   func() error { return errors.Join(unix.Rename(big, big+"2"), unix.Rename(big+"2", big)) },
		"utimens":  func() error { return unix.UtimesNano(big, make([]unix.Timespec, 2)) },
		"create":   func() error { return errors.Join(makeFile(big+".new", 0, 0o644), ignoreGone(unix.Unlink(big+".new"))) },
	} {
		if err := call(); !oneOf(err, allowed...) {
			e.t.Errorf("%s, %s gives %v", when, name, err)
		}
	}
	if len(allowed) > 0 && len(e.held) > 0 {
		e.useHeld(when)
	}
}

// useHeld checks that a file that is open goes on working, with requests of all sizes.
func (e *exhaustion) useHeld(when string) {
	fd := e.held[len(e.held)/2]
	data := []byte(strings.Repeat("held data ", 100000))
	if n, err := unix.Pwrite(fd, data, 0); n != len(data) || err != nil {
		e.t.Errorf("%s, writing an open file gives %d, %v", when, n, err)
	}
	buf := make([]byte, len(data))
	if n, err := unix.Pread(fd, buf, 0); n != len(data) || err != nil || string(buf) != string(data) {
		e.t.Errorf("%s, reading an open file gives %d, %v", when, n, err)
	}
	if err := errors.Join(unix.Fchmod(fd, 0o600), unix.Ftruncate(fd, 10), unix.Fsetxattr(fd, "user.x", []byte("y"), 0)); err != nil {
		e.t.Errorf("%s, changing an open file gives %v", when, err)
	}
}
