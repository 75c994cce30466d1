package tests

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// openFlags are named as in open(2); those of several bits come first.
var openFlags = []flagName{
	{"O_TMPFILE", unix.O_TMPFILE}, {"O_SYNC", unix.O_SYNC},
	{"O_WRONLY", unix.O_WRONLY}, {"O_RDWR", unix.O_RDWR},
	{"O_CREAT", unix.O_CREAT}, {"O_EXCL", unix.O_EXCL}, {"O_TRUNC", unix.O_TRUNC}, {"O_APPEND", unix.O_APPEND},
	{"O_NONBLOCK", unix.O_NONBLOCK}, {"O_DSYNC", unix.O_DSYNC}, {"O_DIRECT", unix.O_DIRECT},
	{"O_DIRECTORY", unix.O_DIRECTORY}, {"O_NOFOLLOW", unix.O_NOFOLLOW}, {"O_NOATIME", unix.O_NOATIME}, {"O_PATH", unix.O_PATH},
}

// openKinds are the operations that make, change and close handles.
func openKinds() []modelKind {
	return []modelKind{
		{name: "open", weight: 70, flags: openFlags, gen: genOpen, run: runOpen},
		{name: "opendir", weight: 8, flags: openFlags, gen: genOpendir, run: runOpen},
		{name: "tmpfile", weight: 6, flags: openFlags, gen: genTmpfile, run: runOpen},
		{name: "reopen", weight: 8, flags: openFlags, gen: genReopen, run: runReopen},
		{name: "dup", weight: 4, gen: genDup, run: runDup},
		{name: "close", weight: 18, gen: genHandle, run: runClose},
		{name: "setfl", weight: 8, flags: openFlags, gen: genSetfl, run: runSetfl},
		{name: "getfl", weight: 3, gen: genHandle, run: runGetfl},
	}
}

func genOpen(g *modelGen, op *modelOp) {
	op.FD = g.freeSlot()
	g.place(op, g.filePath())
	op.Flags = pick(g, unix.O_RDONLY, unix.O_WRONLY, unix.O_RDWR, unix.O_RDWR)
	op.Flags |= g.someFlags(45, unix.O_CREAT) | g.someFlags(10, unix.O_TRUNC, unix.O_APPEND, unix.O_DIRECT) |
		g.someFlags(4, unix.O_EXCL, unix.O_SYNC, unix.O_DSYNC, unix.O_NOFOLLOW, unix.O_NOATIME, unix.O_NONBLOCK) |
		g.someFlags(2, unix.O_PATH, unix.O_DIRECTORY)
	if op.Flags&unix.O_CREAT != 0 {
		op.Mode = g.mode()
	}
}

func genOpendir(g *modelGen, op *modelOp) {
	op.FD = g.freeSlot()
	op.Path = pick(g, "", "d", "d/e", "f", g.path())
	op.Flags = unix.O_DIRECTORY | g.someFlags(10, unix.O_PATH)
}

func genTmpfile(g *modelGen, op *modelOp) {
	op.FD = g.freeSlot()
	op.Path = pick(g, "", "d", "d/e", "f", g.path())
	op.Flags = unix.O_TMPFILE | pick(g, unix.O_RDWR, unix.O_RDWR, unix.O_WRONLY, unix.O_RDONLY) | g.someFlags(20, unix.O_EXCL)
	op.Mode = g.mode()
}

func genReopen(g *modelGen, op *modelOp) {
	op.FD, op.FD2 = g.freeSlot(), g.slot()
	op.Flags = pick(g, unix.O_RDONLY, unix.O_WRONLY, unix.O_RDWR) | g.someFlags(10, unix.O_TRUNC, unix.O_APPEND, unix.O_DIRECT)
}

func genDup(g *modelGen, op *modelOp) { op.FD, op.FD2 = g.freeSlot(), g.slot() }

func genHandle(g *modelGen, op *modelOp) { op.FD = g.slot() }

func genSetfl(g *modelGen, op *modelOp) {
	op.FD = g.file()
	op.Flags = g.someFlags(40, unix.O_APPEND, unix.O_DIRECT) | g.someFlags(10, unix.O_NONBLOCK, unix.O_NOATIME)
}

// mode is a mode for a new object or chmod.
func (g *modelGen) mode() uint32 {
	return pick[uint32](g, 0o644, 0o666, 0o777, 0o600, 0o755, 0o640, 0, 0o444, 0o4755, 0o2755, 0o6777, 0o2666, 0o1777, 0o070, 0o007)
}

func runOpen(w *modelWorkerState, op *modelOp) (string, error) {
	dir, path := w.at(op.At, op.Path)
	return w.open(op, dir, path)
}

// errDevice is the result of opening a device: a mount may have nodev where the plain folder has not.
var errDevice = errors.New("is a device")

// open opens path into op.FD and says what it is.
func (w *modelWorkerState) open(op *modelOp, dir int, path string) (string, error) {
	flags := op.Flags
	var st unix.Stat_t
	if err := unix.Fstatat(dir, path, &st, 0); err == nil && flags&unix.O_PATH == 0 {
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFIFO:
			flags |= unix.O_NONBLOCK // nobody may be at the other end
		case unix.S_IFCHR, unix.S_IFBLK:
			return "", errDevice
		}
	}
	fd, err := unix.Openat(dir, path, flags|unix.O_CLOEXEC, op.Mode)
	if err != nil {
		return "", err
	}
	w.put(op.FD, fd)
	if err := unix.Fstat(fd, &st); err != nil {
		return "", fmt.Errorf("opened, but fstat: %w", err)
	}
	got, err := getfl(fd)
	return fmt.Sprintf("type=%s flags=%s", typeName(st.Mode), got), err
}

func runReopen(w *modelWorkerState, op *modelOp) (string, error) {
	fd, err := w.fd(op.FD2)
	if err != nil {
		return "", err
	}
	return w.open(op, unix.AT_FDCWD, fdPath(fd))
}

func runDup(w *modelWorkerState, op *modelOp) (string, error) {
	fd, err := w.fd(op.FD2)
	if err != nil {
		return "", err
	}
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	w.put(op.FD, n)
	var st unix.Stat_t
	err = unix.Fstat(n, &st)
	return "type=" + typeName(st.Mode), err
}

func runClose(w *modelWorkerState, op *modelOp) (string, error) {
	fd, err := w.fd(op.FD)
	if err != nil {
		return "", err
	}
	delete(w.fds, op.FD)
	return "", unix.Close(fd)
}

func runSetfl(w *modelWorkerState, op *modelOp) (string, error) {
	fd, err := w.fd(op.FD)
	if err != nil {
		return "", err
	}
	flags := op.Flags
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO {
		flags |= unix.O_NONBLOCK // as in open
	}
	_, err = unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags)
	return "", err
}

func runGetfl(w *modelWorkerState, op *modelOp) (string, error) {
	fd, err := w.fd(op.FD)
	if err != nil {
		return "", err
	}
	flags, err := getfl(fd)
	return "flags=" + flags, err
}

// getfl is what F_GETFL says, by name.
func getfl(fd int) (string, error) {
	const largefile = 0o100000 // the kernel sets it for every 64-bit program
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	return formatFlags(openFlags, flags&^largefile), err
}

// typeName is the file type as find -type calls it.
func typeName(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return "f"
	case unix.S_IFDIR:
		return "d"
	case unix.S_IFLNK:
		return "l"
	case unix.S_IFIFO:
		return "p"
	case unix.S_IFSOCK:
		return "s"
	case unix.S_IFCHR:
		return "c"
	case unix.S_IFBLK:
		return "b"
	}
	return fmt.Sprintf("%#o", mode&unix.S_IFMT)
}
