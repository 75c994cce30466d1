package tests

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// treeView is what a program can find out about each object of a tree, in one line per path.
type treeView map[string]string

// viewTree reads the whole tree below dir. Of times it keeps those of the last change of data: the others
// change by looking and copying.
func viewTree(t testing.TB, dir string) treeView {
	t.Helper()
	view, links := treeView{}, map[uint64]string{}
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path, dir)
		view[name], err = viewObject(path, name, links)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return view
}

// viewObject describes one object. links remembers the first name of each inode that has several.
func viewObject(path, name string, links map[uint64]string) (string, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return "", err
	}
	line := fmt.Sprintf("mode %o owner %d:%d mtime %d.%09d", st.Mode, st.Uid, st.Gid, st.Mtim.Sec, st.Mtim.Nsec)
	attrs, err := viewXattrs(path)
	if err != nil {
		return "", err
	}
	line += attrs
	if st.Mode&unix.S_IFMT != unix.S_IFDIR && st.Nlink > 1 {
		if links[st.Ino] == "" {
			links[st.Ino] = name
		}
		line += fmt.Sprintf(" nlink %d with %s", st.Nlink, links[st.Ino])
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		data, err := viewData(path)
		return line + data, err
	case unix.S_IFLNK:
		target, err := os.Readlink(path)
		return line + " to " + target, err
	case unix.S_IFCHR, unix.S_IFBLK:
		return fmt.Sprintf("%s device %d:%d", line, unix.Major(st.Rdev), unix.Minor(st.Rdev)), nil
	}
	return line, nil
}

// viewXattrs describes the extended attributes, ACLs and file capabilities among them.
func viewXattrs(path string) (string, error) {
	buf := make([]byte, 64<<10)
	n, err := unix.Llistxattr(path, buf)
	if err != nil {
		return "", fmt.Errorf("listxattr %s: %w", path, err)
	}
	var line strings.Builder
	for _, name := range slices.Sorted(strings.SplitSeq(strings.TrimRight(string(buf[:n]), "\x00"), "\x00")) {
		if name == "" {
			continue
		}
		value := make([]byte, 64<<10)
		n, err := unix.Lgetxattr(path, name, value)
		if err != nil {
			return "", fmt.Errorf("getxattr %s %s: %w", path, name, err)
		}
		fmt.Fprintf(&line, " %s=%q", name, value[:n])
	}
	return line.String(), nil
}

// viewData describes what a regular file holds and where its holes are.
func viewData(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	hash := sha256.New()
	size, err := io.Copy(hash, f)
	if err != nil {
		return "", err
	}
	line := fmt.Sprintf(" size %d sum %.8x data", size, hash.Sum(nil))
	for end := int64(0); ; {
		start, err := unix.Seek(int(f.Fd()), end, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return line, nil
		}
		if err != nil {
			return "", fmt.Errorf("SEEK_DATA %s: %w", path, err)
		}
		if end, err = unix.Seek(int(f.Fd()), start, unix.SEEK_HOLE); err != nil {
			return "", fmt.Errorf("SEEK_HOLE %s: %w", path, err)
		}
		line += fmt.Sprintf(" %d-%d", start, end)
	}
}

// compareTrees fails the test for each object that is not the same in both.
func compareTrees(t testing.TB, what string, got, want treeView) {
	t.Helper()
	both := maps.Clone(want)
	maps.Copy(both, got)
	for _, path := range slices.Sorted(maps.Keys(both)) {
		if got[path] != want[path] {
			t.Errorf("%s: %q\nis      %s\nwant it %s", what, path, got[path], want[path])
		}
	}
}
