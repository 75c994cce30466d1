package tests

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The contents of a file before and after it is changed in SOURCE; they differ in length unless told otherwise.
const (
	dataOld   = "old old old old old old old old"
	dataOther = "another file's data, which nobody who asks for the old file may see"
)

// change is something that happens to the file in SOURCE while the kernel knows it.
type change struct {
	name string
	make func(path string) error
	// now is what its path holds afterwards; empty when there is no regular file.
	now string
	// same says that it is the same object as before, under this path or another.
	same bool
}

func changes() []change {
	return []change{
		{"nothing", func(string) error { return nil }, dataOld, true},
		{"replaced", replaceFile, dataOther, false},
		{"swapped", func(p string) error { return exchange(p, p+".other") }, dataOther, true},
		{"removed", os.Remove, "", false},
		{"recreated", func(p string) error { return errors.Join(os.Remove(p), os.WriteFile(p, []byte(dataOther), 0o644)) }, dataOther, false},
		{"rewritten", func(p string) error { return writeAt(p, strings.ToUpper(dataOld), 0) }, strings.ToUpper(dataOld), true},
		{"grown", func(p string) error { return writeAt(p, " and more", int64(len(dataOld))) }, dataOld + " and more", true},
		{"shrunk", func(p string) error { return os.Truncate(p, 5) }, dataOld[:5], true},
		{"moved", func(p string) error { return os.Rename(p, p+".moved") }, "", true},
		{"a folder", func(p string) error { return errors.Join(os.Remove(p), os.Mkdir(p, 0o755)) }, "", false},
		{"a symlink", func(p string) error { return errors.Join(os.Remove(p), os.Symlink("nowhere", p)) }, "", false},
		{"a fifo", func(p string) error { return errors.Join(os.Remove(p), unix.Mkfifo(p, 0o644)) }, "", false},
		{"a socket", func(p string) error { return errors.Join(os.Remove(p), unix.Mknod(p, unix.S_IFSOCK|0o644, 0)) }, "", false},
	}
}

func replaceFile(path string) error {
	return errors.Join(os.WriteFile(path+".new", []byte(dataOther), 0o644), os.Rename(path+".new", path))
}

// exchange swaps two names.
func exchange(a, b string) error {
	return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
}

// knowledge is how the kernel came to know the file, and what of it is still held when it changes.
type knowledge struct {
	name string
	hold func(path string) (fd int, err error) // -1 when nothing is held
}

func knowledges() []knowledge {
	open := func(flags int, read bool) func(string) (int, error) {
		return func(path string) (int, error) {
			fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
			if err == nil && read {
				_, err = unix.Pread(fd, make([]byte, 100), 0)
			}
			return fd, err
		}
	}
	return []knowledge{
		{"stat", func(path string) (int, error) {
			var st unix.Stat_t
			return -1, unix.Stat(path, &st)
		}},
		{"earlier read", func(path string) (int, error) {
			_, err := os.ReadFile(path)
			return -1, err
		}},
		{"O_PATH", open(unix.O_PATH, false)},
		{"open", open(unix.O_RDONLY, true)},
		{"open for writing", open(unix.O_RDWR, true)},
	}
}

// TestFileChangedBehind: a file changes in SOURCE while the kernel knows it. Its path gives the new content or
// says cleanly that there is none; who holds the old file never gets another's data.
func TestFileChangedBehind(t *testing.T) {
	eachReading(t, func(t *testing.T, mode string, args ...string) {
		for _, timeout := range []string{"0s", "60s"} {
			m := mount(t, withMode(mode), withArgs(args...), withArgs("--attr-timeout="+timeout, "--entry-timeout="+timeout))
			for _, change := range changes() {
				for _, known := range knowledges() {
					if mode == "staged" && known.name == "open for writing" && change.same {
						continue // the kernel goes by what the mount itself writes for as long as it may
					}
					b := behind{mounted: m, t: t, change: change, patient: timeout != "0s", mode: mode}
					b.what = fmt.Sprintf("timeout %s, known by %s, then %s", timeout, known.name, change.name)
					b.run(known)
				}
			}
			m.Unmount()
		}
	})
}

// eachReading runs f in every mode, and in staged mode once more with its other way to read.
func eachReading(t *testing.T, f func(t *testing.T, mode string, args ...string)) {
	t.Helper()
	eachMode(t, func(t *testing.T, mode string) { f(t, mode) })
	t.Run("direct reads", func(t *testing.T) { f(t, "staged", "--direct-reads") })
}

// TestChangedWhileRead: a file is changed in SOURCE, to the same size and mtime, while a program has it open and its
// pages are cached. Who opens it after that program has closed it reads what is there.
func TestChangedWhileRead(t *testing.T) {
	eachReading(t, func(t *testing.T, mode string, args ...string) {
		m := mount(t, withMode(mode), withArgs(args...))
		must(t, os.WriteFile(m.Backing("file"), []byte("old"), 0o644))
		must(t, readsAs(m.Path("file"), "old"))
		f, err := os.Open(m.Path("file"))
		must(t, err)
		must(t, second(f.Read(make([]byte, 3))))
		st, err := f.Stat()
		must(t, err)
		awaitClockTick()
		must(t, os.WriteFile(m.Backing("file"), []byte("new"), 0o644))
		must(t, os.Chtimes(m.Backing("file"), st.ModTime(), st.ModTime()))
		must(t, f.Close())
		// The daemon learns of the close a little later.
		for range 3 {
			must(t, readsAs(m.Path("file"), "new"))
			awaitClockTick()
		}
	})
}

// behind is one case of TestFileChangedBehind.
type behind struct {
	*mounted
	t       *testing.T
	change  change
	mode    string
	patient bool // names and attributes may be old
	what    string
}

func (b *behind) run(known knowledge) {
	t := b.t
	name := strings.ReplaceAll(b.what, " ", "-")
	must(t, os.WriteFile(b.Backing(name), []byte(dataOld), 0o644))
	must(t, os.WriteFile(b.Backing(name+".other"), []byte(dataOther), 0o644))
	fd, err := known.hold(b.Path(name))
	must(t, err)
	must(t, b.change.make(b.Backing(name)))
	err = within(t, 10*time.Second, b.what, func() error {
		b.byPath(b.Path(name))
		if fd >= 0 {
			b.byDescriptor(fd, known.name == "O_PATH")
		}
		return nil
	})
	must(t, err)
	if fd >= 0 {
		b.unharmed(name, fd)
		unix.Close(fd)
	}
}

// byPath opens the path afresh.
func (b *behind) byPath(path string) {
	got, err := readNonblocking(path)
	switch {
	case b.change.now != "" && (err != nil || got != b.change.now):
		b.t.Errorf("%s: the path reads %q, %v", b.what, got, err)
	case b.change.now == "" && got != "":
		b.t.Errorf("%s: the path reads %q, %v", b.what, got, err)
	case !oneOf(err, unix.ENOENT, unix.ESTALE, unix.EISDIR, unix.ENXIO):
		b.t.Errorf("%s: opening the path gives %v", b.what, err)
	}
	var st unix.Stat_t
	err = unix.Stat(path, &st)
	if !oneOf(err, unix.ENOENT, unix.ESTALE) {
		b.t.Errorf("%s: stat gives %v", b.what, err)
	}
	if !b.patient && err == nil && b.change.now != "" && st.Size != int64(len(b.change.now)) {
		b.t.Errorf("%s: stat says %d bytes", b.what, st.Size)
	}
}

// readNonblocking must not itself wait for the other end of a fifo.
func readNonblocking(path string) (string, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	data, err := io.ReadAll(f)
	return string(data), err
}

// byDescriptor looks at what was held. An open file stays what it was; O_PATH only names it, and is reopened.
func (b *behind) byDescriptor(fd int, isPath bool) {
	if isPath {
		got, err := readNonblocking(fdPath(fd))
		b.judgeHeld("reopened", got, err)
		return
	}
	buf := make([]byte, 200)
	n, err := unix.Pread(fd, buf, 0)
	b.judgeHeld("read", string(buf[:max(n, 0)]), err)
	if err != nil {
		b.t.Errorf("%s: reading the open file gives %v", b.what, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Size == int64(len(dataOther)) {
		b.t.Errorf("%s: fstat says %d bytes, %v", b.what, st.Size, err)
	}
}

func (b *behind) judgeHeld(how, got string, err error) {
	allowed := got == dataOld || b.change.same && b.change.name != "swapped" && got == b.change.now
	if b.patient && b.mode == "cached" && b.change.same {
		// Pages and the size may be as old as the attributes.
		allowed = allowed || strings.HasPrefix(dataOld, got) || strings.HasPrefix(b.change.now, got) || strings.EqualFold(dataOld, got)
	}
	if b.mode == "staged" && b.change.same {
		// The size stays what it was for who has the file open; what is not there any more reads as zeros.
		rest := strings.TrimRight(got, "\x00")
		allowed = allowed || len(got) == len(dataOld) && (strings.HasPrefix(dataOld, rest) || strings.HasPrefix(b.change.now, rest))
	}
	if err == nil && !allowed {
		b.t.Errorf("%s: the held file, %s, gives %q", b.what, how, got)
	}
	if !oneOf(err, unix.ESTALE, unix.ENOENT) {
		b.t.Errorf("%s: the held file, %s, gives %v", b.what, how, err)
	}
}

// unharmed does to the held file what must not befall what is now at its path.
func (b *behind) unharmed(name string, fd int) {
	if b.change.same && b.change.name != "swapped" {
		return
	}
	for call, err := range map[string]error{
		"chmod":    unix.Chmod(fdPath(fd), 0o600),
		"truncate": unix.Truncate(fdPath(fd), 1),
		"setxattr": unix.Setxattr(fdPath(fd), "user.harm", []byte("x"), 0),
	} {
		if !oneOf(err, unix.ESTALE, unix.ENOENT) {
			b.t.Errorf("%s: %s of the held file gives %v", b.what, call, err)
		}
	}
	var st unix.Stat_t
	if err := unix.Lstat(b.Backing(name), &st); err != nil || st.Mode&unix.S_IFMT == unix.S_IFLNK {
		return
	}
	_, err := unix.Lgetxattr(b.Backing(name), "user.harm", nil)
	if st.Mode&0o777 == 0o600 || err == nil || b.change.now != "" && st.Size != int64(len(b.change.now)) {
		b.t.Errorf("%s: what was done to the held file befell the new one: mode %o, %d bytes, xattr %v", b.what, st.Mode, st.Size, err)
	}
}
