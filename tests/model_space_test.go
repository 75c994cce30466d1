package tests

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

var (
	fallocFlags = []flagName{
		{"KEEP_SIZE", unix.FALLOC_FL_KEEP_SIZE}, {"PUNCH_HOLE", unix.FALLOC_FL_PUNCH_HOLE}, {"ZERO_RANGE", unix.FALLOC_FL_ZERO_RANGE},
	}
	seekNames = []flagName{{"SEEK_HOLE", unix.SEEK_HOLE}, {"SEEK_DATA", unix.SEEK_DATA}, {"SEEK_END", unix.SEEK_END}, {"SEEK_CUR", unix.SEEK_CUR}}
)

// spaceKinds are the operations on size and allocation. FALLOC_FL_COLLAPSE_RANGE and INSERT_RANGE are not
// among them: the kernel itself refuses them on FUSE.
func spaceKinds() []modelKind {
	return []modelKind{
		{name: "truncate", weight: 12, gen: genTruncate, run: runTruncate},
		{name: "ftruncate", weight: 14, gen: genFtruncate, run: runFtruncate},
		{name: "fallocate", weight: 14, flags: fallocFlags, gen: genFallocate, run: runFallocate},
		{name: "lseek", weight: 8, flags: seekNames, gen: genSeek, run: runSeek},
		{name: "seekdata", weight: 6, gen: genPIO, run: runSeekData},
	}
}

func genTruncate(g *modelGen, op *modelOp) { op.Path, op.Len = g.filePath(), g.offset() }

func genFtruncate(g *modelGen, op *modelOp) { op.FD, op.Len = g.file(), g.offset() }

func genFallocate(g *modelGen, op *modelOp) {
	op.FD, op.Off, op.Len = g.file(), g.length(), g.length()
	op.Flags = pick(g, 0, unix.FALLOC_FL_KEEP_SIZE, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE,
		unix.FALLOC_FL_ZERO_RANGE, unix.FALLOC_FL_ZERO_RANGE|unix.FALLOC_FL_KEEP_SIZE, unix.FALLOC_FL_PUNCH_HOLE)
}

func genSeek(g *modelGen, op *modelOp) {
	op.FD, op.Off = g.file(), g.offset()
	op.Flags = pick(g, unix.SEEK_SET, unix.SEEK_CUR, unix.SEEK_END)
	if op.Flags != unix.SEEK_SET && g.chance(50) {
		op.Off = -op.Off
	}
}

func runTruncate(w *modelWorkerState, op *modelOp) (string, error) {
	_, path := w.at(0, op.Path)
	var before unix.Stat_t
	known := unix.Stat(path, &before) == nil
	if err := unix.Truncate(path, op.Len); err != nil {
		return "", err
	}
	return fmt.Sprintf("resized=%t", known && before.Size != op.Len), nil
}

func runFtruncate(w *modelWorkerState, op *modelOp) (string, error) {
	fd, err := w.fd(op.FD)
	if err != nil {
		return "", err
	}
	return "", unix.Ftruncate(fd, op.Len)
}

func runFallocate(w *modelWorkerState, op *modelOp) (string, error) {
	fd, err := w.fd(op.FD)
	if err != nil {
		return "", err
	}
	return "", unix.Fallocate(fd, uint32(op.Flags), op.Off, op.Len)
}

func runSeek(w *modelWorkerState, op *modelOp) (string, error) {
	fd, err := w.fd(op.FD)
	if err != nil {
		return "", err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return "folder", nil // its offsets mean something to the filesystem only
	}
	pos, err := unix.Seek(fd, op.Off, op.Flags)
	return fmt.Sprintf("pos=%d", pos), err
}

// runSeekData checks that SEEK_DATA from Off skips nothing but zeros and that SEEK_HOLE ends at the size at
// most. Where exactly a filesystem sees holes is its own affair, and may change with writeback.
func runSeekData(w *modelWorkerState, op *modelOp) (string, error) {
	fd, err := w.fd(op.FD)
	if err != nil {
		return "", err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return "no file", nil
	}
	pos, err := unix.Seek(fd, 0, unix.SEEK_CUR)
	if err != nil {
		return "", err
	}
	text, err := w.holes(fd, op.Off, st.Size)
	if _, err2 := unix.Seek(fd, pos, unix.SEEK_SET); err2 != nil {
		return "", err2
	}
	return text, err
}

func (w *modelWorkerState) holes(fd int, off, size int64) (string, error) {
	data, err := unix.Seek(fd, off, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) && off < size {
		data, err = size, nil
	}
	if err != nil {
		return "", err
	}
	if data < off || data > size {
		return fmt.Sprintf("data=%d", data), nil
	}
	if skipped := w.nonzero(fd, off, data); skipped >= 0 {
		return fmt.Sprintf("hole-with-data-at=%d", skipped), nil
	}
	hole, err := unix.Seek(fd, off, unix.SEEK_HOLE)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("hole-in-range=%t", hole >= off && hole <= size), nil
}

// nonzero is the offset of the first byte from off to end that is not zero, -1 if there is none. It looks at
// the first part of a long range only.
func (w *modelWorkerState) nonzero(fd int, off, end int64) int64 {
	if directIO(fd) {
		return -1
	}
	n, err := unix.Pread(fd, w.buf[:min(end-off, modelMaxIO)], off)
	if err != nil {
		return -1 // not open for reading
	}
	for i, c := range w.buf[:n] {
		if c != 0 {
			return off + int64(i)
		}
	}
	return -1
}
