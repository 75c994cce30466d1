package tests

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestUnsearchableFolder: a folder that may be read but not searched can still be listed, by an ordinary user's daemon too.
func TestUnsearchableFolder(t *testing.T) {
	requireRoot(t)
	requirePackages(t, "fuse3")
	u := ordinary()
	m := mount(t, asUser(u))
	must(t, as(u, 0o022, func() error {
		folder := m.Path("folder")
		if err := errors.Join(os.Mkdir(folder, 0o755), os.WriteFile(folder+"/file", nil, 0o644), os.Chmod(folder, 0o444)); err != nil {
			return err
		}
		fd, err := unix.Open(folder, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open: %w", err)
		}
		dir := os.NewFile(uintptr(fd), folder)
		defer dir.Close()
		names, err := dir.Readdirnames(-1)
		if err != nil || len(names) != 1 {
			return fmt.Errorf("it lists %v, %w", names, err)
		}
		return os.Chmod(folder, 0o755)
	}))
}

// TestLeasedFile: somebody holds a lease on a file in SOURCE, as Samba does. An open through the mount waits until it
// is given up, as an open in SOURCE would.
func TestLeasedFile(t *testing.T) {
	requireRoot(t)
	eachMode(t, func(t *testing.T, mode string) {
		m := mount(t, withMode(mode))
		must(t, os.WriteFile(m.Backing("file"), []byte("hello"), 0o644))
		fd, err := unix.Open(m.Backing("file"), unix.O_RDWR|unix.O_CLOEXEC, 0)
		must(t, err)
		defer unix.Close(fd)
		must(t, second(unix.FcntlInt(uintptr(fd), unix.F_SETSIG, int(unix.SIGURG)))) // which the Go runtime ignores
		must(t, second(unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_WRLCK)))
		time.AfterFunc(200*time.Millisecond, func() { _, _ = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK) })
		err = within(t, 20*time.Second, "opening a leased file", func() error { return readsAs(m.Path("file"), "hello") })
		if err != nil {
			t.Errorf("opening it gives %v", err)
		}
	})
}

// TestMountsBelowSource: what is mounted below SOURCE is served like the rest; its inodes are other inodes.
func TestMountsBelowSource(t *testing.T) {
	requireRoot(t)
	eachMode(t, func(t *testing.T, mode string) {
		m := mount(t, withMode(mode))
		must(t, errors.Join(os.Mkdir(m.Source+"/tmpfs", 0o755), os.Mkdir(m.Source+"/folder", 0o755)))
		must(t, unix.Mount("tmpfs", m.Source+"/tmpfs", "tmpfs", 0, "size=1m"))
		defer func() { must(t, unix.Unmount(m.Source+"/tmpfs", unix.MNT_DETACH)) }()
		seen := map[uint64]string{}
		for _, name := range []string{"folder/file", "tmpfs/file", "tmpfs/other"} {
			must(t, os.WriteFile(m.Path(name), []byte(name), 0o644))
			must(t, readsAs(m.Path(name), name))
			must(t, readsAs(m.Backing(name), name))
			var st unix.Stat_t
			must(t, unix.Stat(m.Path(name), &st))
			if other, ok := seen[st.Ino]; ok {
				t.Errorf("%s and %s have the same inode number", name, other)
			}
			seen[st.Ino] = name
		}
		for name, err := range map[string]error{
			"rename": unix.Rename(m.Path("tmpfs/file"), m.Path("folder/new")),
			"link":   unix.Link(m.Path("tmpfs/file"), m.Path("folder/new")),
		} {
			if !errors.Is(err, unix.EXDEV) {
				t.Errorf("%s out of it gives %v", name, err)
			}
		}
		if err := unix.Rmdir(m.Path("tmpfs")); !errors.Is(err, unix.EBUSY) {
			t.Errorf("removing the mountpoint gives %v", err)
		}
		big := make([]byte, 2<<20)
		if err := os.WriteFile(m.Path("tmpfs/big"), big, 0o644); !errors.Is(err, unix.ENOSPC) {
			t.Errorf("filling it gives %v", err)
		}
		must(t, os.Remove(m.Path("tmpfs/big"))) // or what is staged of it would be tried again, and lost
	})
}

// TestFolderInTwoPlaces: a bind mount shows a folder below SOURCE in two places; both lead there.
func TestFolderInTwoPlaces(t *testing.T) {
	requireRoot(t)
	m := mount(t, withArgs("--attr-timeout=0s", "--entry-timeout=0s"))
	must(t, errors.Join(os.MkdirAll(m.Source+"/a/inner", 0o755), os.Mkdir(m.Source+"/b", 0o755),
		os.WriteFile(m.Source+"/a/inner/file", []byte("hello"), 0o644)))
	must(t, unix.Mount(m.Source+"/a", m.Source+"/b", "", unix.MS_BIND, ""))
	defer func() { must(t, unix.Unmount(m.Source+"/b", unix.MNT_DETACH)) }()
	for range 3 {
		for _, name := range []string{"a", "b"} {
			must(t, readsAs(m.Path(name, "inner/file"), "hello"))
			must(t, lists(m.Path(name), "inner"))
			must(t, os.WriteFile(m.Path(name, "inner/file"), []byte("hello"), 0o644))
		}
	}
}

// TestRenameAmongMany: with rules, a rename of a folder changes sizes below it; what else the kernel knows must not make
// it slow.
func TestRenameAmongMany(t *testing.T) {
	m := mount(t, withArgs("--rule=**/special/**=4k", "--attr-timeout=60s", "--entry-timeout=60s"))
	files := pickLong(5000, 100000)
	for n := range files / 100 {
		dir := m.Backing(fmt.Sprint("dir", n))
		must(t, os.Mkdir(dir, 0o755))
		for i := range 100 {
			must(t, makeFile(fmt.Sprint(dir, "/file", i), 0, 0o644))
		}
		must(t, second(os.ReadDir(m.Path(fmt.Sprint("dir", n)))))
		for i := range 100 {
			must(t, unix.Stat(m.Path(fmt.Sprint("dir", n), fmt.Sprint("file", i)), new(unix.Stat_t)))
		}
	}
	must(t, os.Mkdir(m.Path("empty"), 0o755))
	start := time.Now()
	const renames = 200
	for range renames / 2 {
		must(t, unix.Rename(m.Path("empty"), m.Path("empty2")))
		must(t, unix.Rename(m.Path("empty2"), m.Path("empty")))
	}
	each := time.Since(start) / renames
	t.Logf("%v for a rename among %d files", each, files)
	if each > 200*time.Millisecond {
		t.Errorf("a rename among %d files takes %v", files, each)
	}
}
