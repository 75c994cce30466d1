package tests

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// treeKinds are the operations on a whole tree; the first worker does them.
func treeKinds() []modelKind {
	return []modelKind{
		{name: "tree", weight: 3, gen: genFirst, run: runTree},
		{name: "forget", weight: 4, gen: genFirst, run: runForget},
	}
}

func genFirst(_ *modelGen, op *modelOp) { op.W = 0 }

// runTree describes everything below the root of the run, one object a line. Handles stay as they are.
func runTree(w *modelWorkerState, _ *modelOp) (string, error) {
	d := &treeDescription{first: map[uint64]string{}, w: w}
	err := d.add(w.root, ".")
	return "\n" + strings.Join(d.lines, "\n"), err
}

// runForget makes the kernel drop every name and every inode that is not in use, as root can by remounting.
// The reference shares its filesystem with everything else: there, and for others than root, it does nothing.
func runForget(w *modelWorkerState, _ *modelOp) (string, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(w.root, &st); err != nil || st.Type != unix.FUSE_SUPER_MAGIC || os.Geteuid() != 0 {
		return "", err
	}
	return "", forgetInodes(mountpointOf(w.root))
}

// mountpointOf is the mountpoint that the run lies directly below: see newWorld.
func mountpointOf(root string) string {
	for dir := root; dir != ""; dir = dir[:strings.LastIndexByte(dir, '/')] {
		if left, err := mountsBelow(dir); err == nil && len(left) > 0 && left[0].Dir == dir {
			return dir
		}
	}
	return "/"
}

// treeDescription collects the lines of a tree.
type treeDescription struct {
	w     *modelWorkerState
	lines []string
	first map[uint64]string // inode number -> the first of its names
}

func (d *treeDescription) add(path, name string) error {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return err
	}
	more, err := d.details(path, name, &st)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	text, _ := strings.CutSuffix(statText(&st), freshAtime)
	d.lines = append(d.lines, fmt.Sprintf("path=%q %s%s", name, text, more))
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := d.add(path+"/"+e.Name(), name+"/"+e.Name()); err != nil {
			return err
		}
	}
	return nil
}

// details is what stat does not tell: the other name of a hard link, contents, target, attributes and flags.
func (d *treeDescription) details(path, name string, st *unix.Stat_t) (string, error) {
	var b strings.Builder
	if first, seen := d.first[st.Ino]; seen && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		fmt.Fprintf(&b, " same-as=%q", first)
	} else {
		d.first[st.Ino] = name
	}
	xattrs, err := describeXattrs(path)
	if err != nil {
		return "", err
	}
	b.WriteString(xattrs)
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG, unix.S_IFDIR:
		inside, err := d.w.describeFile(path, st)
		return b.String() + inside, err
	case unix.S_IFLNK:
		target, err := os.Readlink(path)
		return fmt.Sprintf("%s target=%s", &b, target), err
	}
	return b.String(), nil
}

// describeXattrs lists all extended attributes with their values.
func describeXattrs(path string) (string, error) {
	buf := make([]byte, 64<<10)
	n, err := unix.Llistxattr(path, buf)
	if err != nil || n == 0 {
		return "", err
	}
	names := strings.Split(strings.TrimSuffix(string(buf[:n]), "\x00"), "\x00")
	slices.Sort(names)
	var b strings.Builder
	for _, name := range names {
		n, err := unix.Lgetxattr(path, name, buf)
		if err != nil {
			return "", fmt.Errorf("getxattr %s: %w", name, err)
		}
		fmt.Fprintf(&b, " %s=%s", name, xattrText(name, buf[:n]))
	}
	return b.String(), nil
}

// describeFile tells a file's contents and the inode flags of a file or folder. It skips what a user may not
// open: that is compared by the permissions.
func (w *modelWorkerState) describeFile(path string, st *unix.Stat_t) (string, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.EACCES) {
		return " unreadable", nil
	}
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	flags, err := unix.IoctlGetInt(fd, unix.FS_IOC_GETFLAGS)
	if err != nil {
		return "", fmt.Errorf("inode flags: %w", err)
	}
	text := " flags=" + formatFlags(inodeFlags, flags&settableFlags)
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return text, nil
	}
	data, err := w.describeData(fd, st.Size)
	return text + " data=" + data, err
}

// describeData reads the file's parts that hold data; a hole is like zeros.
func (w *modelWorkerState) describeData(fd int, size int64) (string, error) {
	const part = 1 << 20
	var parts []string
	for off := int64(0); off < size; off += part {
		data, err := unix.Seek(fd, off, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break
		}
		if err != nil {
			return "", err
		}
		off = data / part * part
		n, err := unix.Pread(fd, w.buf[:part], off)
		if err != nil {
			return "", err
		}
		if text := describe(w.buf[:n], off); !strings.HasPrefix(text, "[0*") || strings.Contains(text, ",") {
			parts = append(parts, fmt.Sprintf("%dM:%s", off>>20, text))
		}
	}
	return strings.Join(parts, " "), nil
}
