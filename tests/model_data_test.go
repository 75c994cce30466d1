package tests

import (
	"errors"
	"fmt"
	"hash/crc32"
	"strings"

	"golang.org/x/sys/unix"
)

// dataKinds are the operations that move file data.
func dataKinds() []modelKind {
	return []modelKind{
		{name: "read", weight: 14, gen: genIO, run: runRead},
		{name: "pread", weight: 24, gen: genPIO, run: runPread},
		{name: "readv", weight: 6, gen: genVector, run: runReadv},
		{name: "write", weight: 20, gen: genIO, run: runWrite},
		{name: "pwrite", weight: 30, gen: genPIO, run: runPwrite},
		{name: "writev", weight: 8, gen: genVector, run: runWritev},
		{name: "touch", weight: 5, gen: genPIO, run: runTouch},
		{name: "copyrange", weight: 10, gen: genCopy, run: runCopyRange},
		{name: "sendfile", weight: 5, gen: genCopy, run: runSendfile},
		{name: "ficlone", weight: 1, gen: genCopy, run: runFiclone},
		{name: "fsync", weight: 5, gen: genHandle, run: runFsync},
		{name: "fdatasync", weight: 4, gen: genHandle, run: runFdatasync},
		{name: "syncfs", weight: 1, gen: genHandle, run: runSyncfs},
	}
}

func genIO(g *modelGen, op *modelOp) {
	op.FD, op.Len, op.Fill = g.file(), g.length(), g.fill()
}

func genPIO(g *modelGen, op *modelOp) {
	genIO(g, op)
	op.Off = g.offset()
}

// genVector makes up two buffers: of Len and of Off2 bytes.
func genVector(g *modelGen, op *modelOp) {
	genPIO(g, op)
	op.Off2 = g.length()
}

func genCopy(g *modelGen, op *modelOp) {
	op.FD, op.Len = g.file(), g.length()
	op.FD2 = g.other(op.FD)
	op.Off, op.Off2 = g.offset(), g.offset()
}

// pattern fills b, which lies at offset off of a file, so that shifted data is seen and a run of equal fills
// is short to print.
func pattern(b []byte, fill int, off int64) {
	for i := range b {
		b[i] = byte(fill) ^ byte((off+int64(i))>>9)
	}
}

// describe tells data at offset off apart from any other: as runs of fill*length, 0 for zeros, and a checksum
// when there are many.
func describe(b []byte, off int64) string {
	const shown = 8
	var runs []string
	last, length := -1, 0
	flush := func() {
		if length > 0 && len(runs) <= shown {
			runs = append(runs, fmt.Sprintf("%d*%d", last, length))
		}
	}
	for i, c := range b {
		fill := 0
		if c != 0 {
			fill = int(c ^ byte((off+int64(i))>>9))
		}
		if fill != last {
			flush()
			last, length = fill, 0
		}
		length++
	}
	flush()
	if len(runs) > shown {
		runs = append(runs[:shown], fmt.Sprintf("...crc%08x", crc32.ChecksumIEEE(b)))
	}
	return "[" + strings.Join(runs, ",") + "]"
}

// errUnaligned is the result of what O_DIRECT may refuse on one filesystem and allow on another.
var errUnaligned = errors.New("unaligned for O_DIRECT")

// directIO says whether a handle has O_DIRECT now.
func directIO(fd int) bool {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	return err == nil && flags&unix.O_DIRECT != 0 && flags&unix.O_PATH == 0
}

// aligned rounds a range to blocks if the handle is an O_DIRECT one.
func aligned(fd int, off, length int64) (int64, int64) {
	const block = 4096
	if !directIO(fd) {
		return off, length
	}
	return off / block * block, min((length+block-1)/block*block, modelMaxIO)
}

// position is where the next read or write of the handle happens; an error if O_DIRECT could refuse it.
func position(fd int) (int64, error) {
	if !directIO(fd) {
		pos, err := unix.Seek(fd, 0, unix.SEEK_CUR)
		if err != nil {
			return 0, nil // a pipe or folder: the read or write itself shall say it
		}
		return pos, nil
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_APPEND != 0 {
		return 0, errUnaligned
	}
	pos, err := unix.Seek(fd, 0, unix.SEEK_CUR)
	if err != nil || pos%4096 != 0 {
		return 0, errUnaligned
	}
	return pos, nil
}

func runRead(w *modelWorkerState, op *modelOp) (string, error) {
	fd, err := w.fd(op.FD)
	if err != nil {
		return "", err
	}
	pos, err := position(fd)
	if err != nil {
		return "", err
	}
	_, length := aligned(fd, 0, op.Len)
	n, err := unix.Read(fd, w.buf[:length])
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("n=%d data=%s", n, describe(w.buf[:n], pos)), nil
}

func runPread(w *modelWorkerState, op *modelOp) (string, error) {
	fd, err := w.fd(op.FD)
	if err != nil {
		return "", err
	}
	off, length := aligned(fd, op.Off, op.Len)
	n, err := unix.Pread(fd, w.buf[:length], off)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("n=%d data=%s", n, describe(w.buf[:n], off)), nil
}

func runReadv(w *modelWorkerState, op *modelOp) (string, error) {
	fd, err := w.fd(op.FD)
	if err != nil {
		return "", err
	}
	if directIO(fd) {
		return "", errUnaligned
	}
	n, err := unix.Preadv(fd, [][]byte{w.buf[:op.Len], w.buf[op.Len:min(op.Len+op.Off2, modelMaxIO)]}, op.Off)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("n=%d data=%s", n, describe(w.buf[:n], op.Off)), nil
}

func runWrite(w *modelWorkerState, op *modelOp) (string, error) {
	fd, err := w.fd(op.FD)
	if err != nil {
		return "", err
	}
	pos, err := position(fd)
	if err != nil {
		return "", err
	}
	_, length := aligned(fd, 0, op.Len)
	pattern(w.buf[:length], op.Fill, pos)
	return written(unix.Write(fd, w.buf[:length]))
}

// written is the result of a write. A pipe without a reader must not end the worker: Go ignores SIGPIPE
// for descriptors other than 1 and 2.
func written(n int, err error) (string, error) { return fmt.Sprintf("n=%d", n), err }

func runPwrite(w *modelWorkerState, op *modelOp) (string, error) {
	fd, err := w.fd(op.FD)
	if err != nil {
		return "", err
	}
	if directIO(fd) {
		if _, err := position(fd); err != nil {
			return "", err
		}
	}
	off, length := aligned(fd, op.Off, op.Len)
	pattern(w.buf[:length], op.Fill, off)
	return written(unix.Pwrite(fd, w.buf[:length], off))
}

func runWritev(w *modelWorkerState, op *modelOp) (string, error) {
	fd, err := w.fd(op.FD)
	if err != nil {
		return "", err
	}
	if directIO(fd) {
		return "", errUnaligned
	}
	end := min(op.Len+op.Off2, modelMaxIO)
	pattern(w.buf[:end], op.Fill, op.Off)
	return written(unix.Pwritev(fd, [][]byte{w.buf[:op.Len], w.buf[op.Len:end]}, op.Off))
}

// runTouch writes and says whether that moved the times forward, as it must.
func runTouch(w *modelWorkerState, op *modelOp) (string, error) {
	fd, err := w.fd(op.FD)
	if err != nil {
		return "", err
	}
	var before, after unix.Stat_t
	if err := unix.Fstat(fd, &before); err != nil {
		return "", err
	}
	awaitClockTick()
	text, err := runPwrite(w, op)
	if err != nil {
		return "", err
	}
	if err := unix.Fstat(fd, &after); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s mtime-moved=%t ctime-moved=%t size=%d", text, before.Mtim != after.Mtim, before.Ctim != after.Ctim, after.Size), nil
}

// awaitClockTick lets the clock that filesystems stamp files with move on: it may stand for 10 ms.
func awaitClockTick() {
	ts := unix.NsecToTimespec(11e6)
	_ = unix.Nanosleep(&ts, nil)
}

func (w *modelWorkerState) twoHandles(op *modelOp) (from, to int, err error) {
	from, err = w.fd(op.FD)
	if err != nil {
		return -1, -1, err
	}
	to, err = w.fd(op.FD2)
	if err != nil {
		return -1, -1, err
	}
	if directIO(from) || directIO(to) {
		return -1, -1, errUnaligned
	}
	return from, to, nil
}

func runCopyRange(w *modelWorkerState, op *modelOp) (string, error) {
	from, to, err := w.twoHandles(op)
	if err != nil {
		return "", err
	}
	off, off2 := op.Off, op.Off2
	return written(unix.CopyFileRange(from, &off, to, &off2, int(op.Len), 0))
}

func runSendfile(w *modelWorkerState, op *modelOp) (string, error) {
	from, to, err := w.twoHandles(op)
	if err != nil {
		return "", err
	}
	var a, b unix.Stat_t
	if err := errors.Join(unix.Fstat(from, &a), unix.Fstat(to, &b)); err != nil {
		return "", err
	}
	if a.Ino == b.Ino || b.Mode&unix.S_IFMT == unix.S_IFIFO {
		return "left out", nil // the pages themselves are sent, with what is written to them later
	}
	off := op.Off
	return written(unix.Sendfile(to, from, &off, int(op.Len)))
}

func runFiclone(w *modelWorkerState, op *modelOp) (string, error) {
	from, to, err := w.twoHandles(op)
	if err != nil {
		return "", err
	}
	return "", unix.IoctlFileClone(to, from)
}

func runFsync(w *modelWorkerState, op *modelOp) (string, error) {
	fd, err := w.fd(op.FD)
	if err != nil {
		return "", err
	}
	return "", unix.Fsync(fd)
}

func runFdatasync(w *modelWorkerState, op *modelOp) (string, error) {
	fd, err := w.fd(op.FD)
	if err != nil {
		return "", err
	}
	return "", unix.Fdatasync(fd)
}

func runSyncfs(w *modelWorkerState, op *modelOp) (string, error) {
	fd, err := w.fd(op.FD)
	if err != nil {
		return "", err
	}
	return "", unix.Syncfs(fd)
}
