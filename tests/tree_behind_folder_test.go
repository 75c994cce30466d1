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

// folderChange is something that happens in SOURCE to a folder, with the file "x" in it, that the kernel knows.
type folderChange struct {
	name string
	make func(path string) error
	now  string // what "x" below its path reads afterwards, if anything
	gone bool   // the old folder exists no more
}

func folderChanges() []folderChange {
	removed := func(then func(path string) error) func(string) error {
		return func(p string) error { return errors.Join(os.RemoveAll(p), then(p)) }
	}
	return []folderChange{
		{"swapped", func(p string) error { return exchange(p, p+".other") }, dataOther, false},
		{"replaced", removed(func(p string) error { return os.Rename(p+".other", p) }), dataOther, true},
		{"recreated", removed(func(p string) error { return makeFolder(p, dataOther) }), dataOther, true},
		{"moved", func(p string) error { return os.Rename(p, p+".moved") }, "", false},
		{"moved into another", func(p string) error { return os.Rename(p, p+".other/moved") }, "", false},
		{"removed", os.RemoveAll, "", true},
		{"a file", removed(func(p string) error { return os.WriteFile(p, []byte(dataOther), 0o644) }), "", true},
		{"a symlink", removed(func(p string) error { return os.Symlink("nowhere", p) }), "", true},
		{"a fifo", removed(func(p string) error { return unix.Mkfifo(p, 0o644) }), "", true},
	}
}

func makeFolder(path, data string) error {
	return errors.Join(os.Mkdir(path, 0o755), os.WriteFile(path+"/x", []byte(data), 0o644))
}

// TestFolderChangedBehind is TestFileChangedBehind for folders.
func TestFolderChangedBehind(t *testing.T) {
	for _, timeout := range []string{"0s", "60s"} {
		for _, crowded := range []bool{false, true} {
			t.Run(fmt.Sprintf("timeout %s crowded %v", timeout, crowded), func(t *testing.T) {
				withDescriptors(t, 128, "--io=cached", "--attr-timeout="+timeout, "--entry-timeout="+timeout)
				m := mount(t)
				var others *crowd
				if crowded {
					others = newCrowd(m, 150)
				}
				for _, change := range folderChanges() {
					for _, opening := range []int{unix.O_PATH, unix.O_RDONLY} {
						f := folderCase{mounted: m, t: t, change: change, patient: timeout != "0s", crowd: others}
						f.run(fmt.Sprintf("%s-%o", strings.ReplaceAll(change.name, " ", "-"), opening), opening)
					}
				}
				m.Unmount()
			})
		}
	}
}

type folderCase struct {
	*mounted
	t       *testing.T
	change  folderChange
	patient bool   // names may be old
	crowd   *crowd // makes the daemon close its descriptor of the folder meanwhile; may be nil
	name    string
}

func (f *folderCase) run(name string, opening int) {
	t := f.t
	f.name = name
	must(t, makeFolder(f.Backing(name), dataOld))
	must(t, makeFolder(f.Backing(name+".other"), dataOther))
	fd, err := unix.Open(f.Path(name), opening|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(fd)
	var st unix.Stat_t
	must(t, unix.Fstatat(fd, "x", &st, 0))
	if f.crowd != nil {
		f.crowd.evict()
	}
	must(t, f.change.make(f.Backing(name)))
	must(t, within(t, 10*time.Second, name, func() error {
		// The order matters: a lookup by path may change what is known of the old folder.
		f.held("before the path", fd)
		f.byPath()
		f.held("after the path", fd)
		return nil
	}))
}

// byPath reads "x" by its whole path. Within the timeout of names the old folder's is right too while it exists.
func (f *folderCase) byPath() {
	got, err := readNonblocking(f.Path(f.name, "x"))
	allowed := got == f.change.now || f.patient && !f.change.gone && got == dataOld
	if err == nil && !allowed {
		f.t.Errorf("%s: the path reads %q", f.name, got)
	}
	// Within the timeout of names a removed folder is empty.
	missing := f.change.now == "" || f.patient && errors.Is(err, unix.ENOENT)
	if err != nil && (!missing || !oneOf(err, unix.ENOENT, unix.ESTALE, unix.ENOTDIR)) {
		f.t.Errorf("%s: reading the path gives %v", f.name, err)
	}
	if _, err := os.ReadDir(f.Path(f.name)); !oneOf(err, unix.ENOENT, unix.ESTALE, unix.ENOTDIR) || err != nil && f.change.now != "" {
		f.t.Errorf("%s: listing the path gives %v", f.name, err)
	}
}

// held uses the descriptor of the old folder: it leads to the old folder or nowhere.
func (f *folderCase) held(when string, fd int) {
	clean := []unix.Errno{unix.ENOENT, unix.ESTALE, unix.ENOTDIR}
	file, err := unix.Openat(fd, "x", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if !oneOf(err, clean...) {
		f.t.Errorf("%s, %s: openat gives %v", f.name, when, err)
	}
	if err == nil {
		buf := make([]byte, 100)
		n, err := unix.Pread(file, buf, 0)
		if err != nil || string(buf[:n]) != dataOld {
			f.t.Errorf("%s, %s: openat reads %q, %v", f.name, when, buf[:max(n, 0)], err)
		}
		unix.Close(file)
	}
	err = unix.Mkdirat(fd, "made", 0o755)
	if !oneOf(err, clean...) && !errors.Is(err, unix.EEXIST) {
		f.t.Errorf("%s, %s: mkdirat gives %v", f.name, when, err)
	}
	if _, err := os.Lstat(f.Backing(f.name, "made")); err == nil {
		f.t.Errorf("%s, %s: mkdirat made it in the new folder", f.name, when)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); !oneOf(err, clean...) {
		f.t.Errorf("%s, %s: fstat gives %v", f.name, when, err)
	}
}
