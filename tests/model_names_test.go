package tests

import (
	"fmt"

	"golang.org/x/sys/unix"
)

var (
	atFlags = []flagName{
		{"AT_SYMLINK_NOFOLLOW", unix.AT_SYMLINK_NOFOLLOW}, {"AT_SYMLINK_FOLLOW", unix.AT_SYMLINK_FOLLOW},
		{"AT_EMPTY_PATH", unix.AT_EMPTY_PATH},
	}
	renameFlags = []flagName{
		{"RENAME_NOREPLACE", unix.RENAME_NOREPLACE}, {"RENAME_EXCHANGE", unix.RENAME_EXCHANGE}, {"RENAME_WHITEOUT", unix.RENAME_WHITEOUT},
	}
)

// nameKinds are the operations on names.
func nameKinds() []modelKind {
	return []modelKind{
		{name: "mkdir", weight: 14, gen: genMkdir, run: runMkdir},
		{name: "mknod", weight: 8, gen: genMknod, run: runMknod},
		{name: "symlink", weight: 10, gen: genSymlink, run: runSymlink},
		{name: "readlink", weight: 4, gen: genFilePath, run: runReadlink},
		{name: "link", weight: 12, flags: atFlags, gen: genLink, run: runLink},
		{name: "linkfd", weight: 6, gen: genLinkFD, run: runLinkFD},
		{name: "unlink", weight: 14, gen: genFilePath, run: runUnlink},
		{name: "rmdir", weight: 8, gen: genPath, run: runRmdir},
		{name: "rename", weight: 20, flags: renameFlags, gen: genRename, run: runRename},
	}
}

func genPath(g *modelGen, op *modelOp) { g.place(op, g.path()) }

func genFilePath(g *modelGen, op *modelOp) { g.place(op, g.filePath()) }

func genMkdir(g *modelGen, op *modelOp) {
	g.place(op, pick(g, "d", "d/e", "f", "e", "d/d", "f/d", g.newPath(), g.path()))
	op.Mode = pick(g, 0o777, 0o777, 0o755, 0o2777, g.mode())
}

func genMknod(g *modelGen, op *modelOp) {
	g.place(op, g.newPath())
	op.Mode = pick[uint32](g, unix.S_IFIFO, unix.S_IFIFO, unix.S_IFSOCK, unix.S_IFREG, unix.S_IFCHR, 0) | g.mode()
	if op.Mode&unix.S_IFMT == unix.S_IFCHR {
		op.Off = int64(unix.Mkdev(pick[uint32](g, 0, 1), pick[uint32](g, 0, 3)))
	}
}

func genSymlink(g *modelGen, op *modelOp) {
	g.place(op, g.newPath())
	// No target leads further up than one folder: it would leave the run.
	op.Path2 = pick(g, g.name(), g.name(), "../"+g.name(), "e/"+g.name(), "d", "d/e", ".", "nowhere", "t{1000}", "", g.newPath(), "s{4095}", "s{4096}")
}

func genLink(g *modelGen, op *modelOp) {
	op.Path2 = g.filePath()
	op.Flags = g.someFlags(20, unix.AT_SYMLINK_FOLLOW)
	g.place(op, g.newPath())
}

func genLinkFD(g *modelGen, op *modelOp) {
	op.FD = g.file()
	g.place(op, g.newPath())
}

func genRename(g *modelGen, op *modelOp) {
	op.Path2 = g.path()
	g.place(op, g.newPath())
	if g.chance(30) {
		op.Path = g.path()
	}
	if g.chance(30) {
		op.Flags = pick(g, unix.RENAME_NOREPLACE, unix.RENAME_EXCHANGE, unix.RENAME_EXCHANGE, unix.RENAME_WHITEOUT, unix.RENAME_NOREPLACE|unix.RENAME_EXCHANGE)
	}
}

func runMkdir(w *modelWorkerState, op *modelOp) (string, error) {
	dir, path := w.at(op.At, op.Path)
	return "", unix.Mkdirat(dir, path, op.Mode)
}

func runMknod(w *modelWorkerState, op *modelOp) (string, error) {
	dir, path := w.at(op.At, op.Path)
	return "", unix.Mknodat(dir, path, op.Mode, int(op.Off))
}

func runSymlink(w *modelWorkerState, op *modelOp) (string, error) {
	dir, path := w.at(op.At, op.Path)
	return "", unix.Symlinkat(expand(op.Path2), dir, path)
}

func runReadlink(w *modelWorkerState, op *modelOp) (string, error) {
	dir, path := w.at(op.At, op.Path)
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(dir, path, target)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("target=%s", target[:n]), nil
}

func runLink(w *modelWorkerState, op *modelOp) (string, error) {
	dir, path := w.at(op.At, op.Path)
	return "", unix.Linkat(unix.AT_FDCWD, w.abs(expand(op.Path2)), dir, path, op.Flags)
}

// runLinkFD gives a name to an open file, also to one from O_TMPFILE.
func runLinkFD(w *modelWorkerState, op *modelOp) (string, error) {
	fd, err := w.fd(op.FD)
	if err != nil {
		return "", err
	}
	dir, path := w.at(op.At, op.Path)
	return "", unix.Linkat(unix.AT_FDCWD, fdPath(fd), dir, path, unix.AT_SYMLINK_FOLLOW)
}

func runUnlink(w *modelWorkerState, op *modelOp) (string, error) {
	dir, path := w.at(op.At, op.Path)
	return "", unix.Unlinkat(dir, path, 0)
}

func runRmdir(w *modelWorkerState, op *modelOp) (string, error) {
	dir, path := w.at(op.At, op.Path)
	return "", unix.Unlinkat(dir, path, unix.AT_REMOVEDIR)
}

func runRename(w *modelWorkerState, op *modelOp) (string, error) {
	dir, path := w.at(op.At, op.Path)
	return "", unix.Renameat2(unix.AT_FDCWD, w.abs(expand(op.Path2)), dir, path, uint(op.Flags))
}
