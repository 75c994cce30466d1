package tests

import (
	"fmt"

	"golang.org/x/sys/unix"
)

var (
	flockFlags = []flagName{{"LOCK_SH", unix.LOCK_SH}, {"LOCK_EX", unix.LOCK_EX}, {"LOCK_UN", unix.LOCK_UN}, {"LOCK_NB", unix.LOCK_NB}}
	lockTypes  = []flagName{{"F_UNLCK", unix.F_UNLCK}, {"F_WRLCK", unix.F_WRLCK}}
)

// lockKinds are the operations on locks. None of them waits: the workers take turns.
func lockKinds() []modelKind {
	return []modelKind{
		{name: "flock", weight: 6, flags: flockFlags, gen: genFlock, run: runFlock},
		{name: "setlk", weight: 8, flags: lockTypes, gen: genLock, run: runSetlk},
		{name: "getlk", weight: 6, flags: lockTypes, gen: genLock, run: runGetlk},
		{name: "ofdsetlk", weight: 5, flags: lockTypes, gen: genLock, run: runOFDSetlk},
	}
}

func genFlock(g *modelGen, op *modelOp) {
	op.FD = g.slot()
	op.Flags = unix.LOCK_NB | pick(g, unix.LOCK_SH, unix.LOCK_EX, unix.LOCK_UN)
}

func genLock(g *modelGen, op *modelOp) {
	op.FD = g.file()
	op.Off, op.Len = g.length(), g.length()
	op.Flags = pick(g, unix.F_RDLCK, unix.F_WRLCK, unix.F_UNLCK)
}

func (op *modelOp) lock() unix.Flock_t {
	return unix.Flock_t{Type: int16(op.Flags), Whence: unix.SEEK_SET, Start: op.Off, Len: op.Len}
}

func runFlock(w *modelWorkerState, op *modelOp) (string, error) {
	fd, err := w.fd(op.FD)
	if err != nil {
		return "", err
	}
	return "", unix.Flock(fd, op.Flags)
}

func runSetlk(w *modelWorkerState, op *modelOp) (string, error) { return w.setlk(op, unix.F_SETLK) }

func runOFDSetlk(w *modelWorkerState, op *modelOp) (string, error) {
	return w.setlk(op, unix.F_OFD_SETLK)
}

func (w *modelWorkerState) setlk(op *modelOp, cmd int) (string, error) {
	fd, err := w.fd(op.FD)
	if err != nil {
		return "", err
	}
	lock := op.lock()
	return "", unix.FcntlFlock(uintptr(fd), cmd, &lock)
}

// runGetlk names the holder of a lock in the way only if that is an open file description.
func runGetlk(w *modelWorkerState, op *modelOp) (string, error) {
	fd, err := w.fd(op.FD)
	if err != nil {
		return "", err
	}
	lock := op.lock()
	if err := unix.FcntlFlock(uintptr(fd), unix.F_GETLK, &lock); err != nil {
		return "", err
	}
	if lock.Type == unix.F_UNLCK {
		return "free", nil
	}
	return fmt.Sprintf("type=%d start=%d len=%d ofd=%t", lock.Type, lock.Start, lock.Len, lock.Pid == -1), nil
}
