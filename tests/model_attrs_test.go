package tests

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Inode flags of linux/fs.h; settableFlags are those that ext4 and FUSE show alike.
const (
	fsImmutable   = 0x10
	fsAppend      = 0x20
	fsNodump      = 0x40
	fsNoatime     = 0x80
	settableFlags = fsImmutable | fsAppend | fsNodump | fsNoatime
)

var (
	inodeFlags = []flagName{
		{"FS_IMMUTABLE_FL", fsImmutable}, {"FS_APPEND_FL", fsAppend}, {"FS_NODUMP_FL", fsNodump}, {"FS_NOATIME_FL", fsNoatime},
	}
	accessFlags = []flagName{{"AT_EACCESS", unix.AT_EACCESS}, {"AT_SYMLINK_NOFOLLOW", unix.AT_SYMLINK_NOFOLLOW}}
)

// freshAtime ends the text of a result that describes an object with an atime of about now. FUSE may be late
// with atimes (reads from the page cache do not reach the daemon), but must never be early.
const freshAtime = " atime-is-fresh"

// attrKinds are the operations on attributes.
func attrKinds() []modelKind {
	return []modelKind{
		{name: "stat", weight: 30, flags: atFlags, gen: genStat, run: runStat},
		{name: "fstat", weight: 14, gen: genHandle, run: runFstat},
		{name: "statx", weight: 6, flags: atFlags, gen: genStat, run: runStatx},
		{name: "samefile", weight: 5, gen: genSamefile, run: runSamefile},
		{name: "statfs", weight: 1, gen: genPath, run: runStatfs},
		{name: "access", weight: 10, flags: accessFlags, gen: genAccess, run: runAccess},
		{name: "umask", weight: 4, gen: genUmask, run: runUmask},
		{name: "chmod", weight: 14, flags: atFlags, gen: genChmod, run: runChmod},
		{name: "fchmod", weight: 8, gen: genFchmod, run: runFchmod},
		{name: "chown", weight: 12, flags: atFlags, gen: genChown, run: runChown},
		{name: "fchown", weight: 6, gen: genFchown, run: runFchown},
		{name: "utimens", weight: 12, flags: atFlags, gen: genUtimens, run: runUtimens},
		{name: "futimens", weight: 8, gen: genFutimens, run: runFutimens},
		{name: "getflags", weight: 4, gen: genHandle, run: runGetflags},
		{name: "setflags", weight: 6, flags: inodeFlags, gen: genSetflags, run: runSetflags},
	}
}

func genStat(g *modelGen, op *modelOp) {
	genPath(g, op)
	op.Flags = g.someFlags(50, unix.AT_SYMLINK_NOFOLLOW)
}

func genSamefile(g *modelGen, op *modelOp) {
	genPath(g, op)
	op.FD = g.slot()
}

func genAccess(g *modelGen, op *modelOp) {
	genPath(g, op)
	op.Mode = uint32(g.rng.IntN(8))
	op.Flags = g.someFlags(30, unix.AT_EACCESS, unix.AT_SYMLINK_NOFOLLOW)
}

func genUmask(g *modelGen, op *modelOp) {
	op.Mode = pick[uint32](g, 0, 0o022, 0o077, 0o027, 0o002, 0o777)
}

func genChmod(g *modelGen, op *modelOp) {
	if g.chance(30) { // root opens a folder again for all
		op.W, op.Path, op.Mode = 0, pick(g, g.path(), "d", "f", "d/e", "."), pick[uint32](g, 0o777, 0o1777, 0o2777)
		return
	}
	g.place(op, g.filePath())
	op.Mode = g.mode()
	op.Flags = g.someFlags(10, unix.AT_SYMLINK_NOFOLLOW)
}

func genFchmod(g *modelGen, op *modelOp) { op.FD, op.Mode = g.file(), g.mode() }

func genChown(g *modelGen, op *modelOp) {
	genPath(g, op)
	op.UID, op.GID = g.owner()
	op.Flags = g.someFlags(20, unix.AT_SYMLINK_NOFOLLOW)
}

func genFchown(g *modelGen, op *modelOp) {
	op.FD = g.slot()
	op.UID, op.GID = g.owner()
}

// owner is one of the workers' users and groups; -1 leaves it as it is. Both at once are left to scripts: a
// daemon cannot tell such a chown from a write, which may take setuid off without asking whose file it is, while
// the file is open for writing.
func (g *modelGen) owner() (uid, gid int) {
	uid = pick(g, -1, -1, 0, firstUser, secondUser)
	if uid == -1 {
		return uid, pick(g, 0, firstUser, secondUser, sharedGroup)
	}
	return uid, pick(g, -1, 0, firstUser, secondUser, sharedGroup)
}

func genUtimens(g *modelGen, op *modelOp) {
	genPath(g, op)
	op.Atime, op.Mtime = g.time(), g.time()
	op.Flags = g.someFlags(20, unix.AT_SYMLINK_NOFOLLOW)
}

func genFutimens(g *modelGen, op *modelOp) {
	op.FD, op.Atime, op.Mtime = g.slot(), g.time(), g.time()
}

// time is never near today, so that a time that was set is told apart from one that the filesystem took.
func (g *modelGen) time() string {
	return pick(g, "now", "omit", "0.0", "1.999999999", "1000000000.123456789", "-1.0", "-1000000000.5", "2147483647.1", "2147483648.0", "4294967296.7", "6000000000.999999999")
}

func genSetflags(g *modelGen, op *modelOp) {
	op.FD = g.slot()
	op.Flags = g.someFlags(30, fsNodump, fsNoatime) | g.someFlags(10, g.freeze)
}

func runStat(w *modelWorkerState, op *modelOp) (string, error) {
	dir, path := w.at(op.At, op.Path)
	var st unix.Stat_t
	if err := unix.Fstatat(dir, path, &st, op.Flags); err != nil {
		return "", err
	}
	return statText(&st), nil
}

func runFstat(w *modelWorkerState, op *modelOp) (string, error) {
	fd, err := w.fd(op.FD)
	if err != nil {
		return "", err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", err
	}
	return statText(&st), nil
}

// statText is what two filesystems must agree on.
func statText(st *unix.Stat_t) string {
	text := fmt.Sprintf("type=%s mode=%#o nlink=%d uid=%d gid=%d size=%d rdev=%#x",
		typeName(st.Mode), st.Mode&0o7777, st.Nlink, st.Uid, st.Gid, st.Size, st.Rdev)
	// Of bytes that go through a pipe the kernel does not tell a FUSE filesystem.
	if st.Mode&unix.S_IFMT != unix.S_IFIFO {
		text += " mtime=" + timeText(st.Mtim)
	}
	if timeText(st.Atim) == "now" {
		text += freshAtime
	}
	return text
}

// timeText is "now" for a time that the filesystem took itself.
func timeText(ts unix.Timespec) string {
	if d := time.Since(time.Unix(ts.Unix())); d > -24*time.Hour && d < 24*time.Hour {
		return "now"
	}
	return fmt.Sprintf("%d.%09d", ts.Sec, ts.Nsec)
}

// runStatx compares what statx adds to stat: the time of birth, which must be there and make sense.
func runStatx(w *modelWorkerState, op *modelOp) (string, error) {
	dir, path := w.at(op.At, op.Path)
	var st unix.Statx_t
	if err := unix.Statx(dir, path, op.Flags, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st); err != nil {
		return "", err
	}
	birth := "none"
	if st.Mask&unix.STATX_BTIME != 0 {
		birth = timeText(unix.Timespec{Sec: st.Btime.Sec, Nsec: int64(st.Btime.Nsec)})
	}
	return fmt.Sprintf("mode=%#o nlink=%d uid=%d gid=%d size=%d birth=%s", st.Mode, st.Nlink, st.Uid, st.Gid, st.Size, birth), nil
}

// runSamefile says whether a handle and a path are the same object by their inode numbers.
func runSamefile(w *modelWorkerState, op *modelOp) (string, error) {
	fd, err := w.fd(op.FD)
	if err != nil {
		return "", err
	}
	dir, path := w.at(op.At, op.Path)
	var a, b unix.Stat_t
	if err := unix.Fstat(fd, &a); err != nil {
		return "", err
	}
	if err := unix.Fstatat(dir, path, &b, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return "", err
	}
	return fmt.Sprintf("same=%t", a.Dev == b.Dev && a.Ino == b.Ino), nil
}

func runStatfs(w *modelWorkerState, op *modelOp) (string, error) {
	_, path := w.at(0, op.Path)
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return "", err
	}
	return fmt.Sprintf("namelen=%d blocks=%t files=%t", st.Namelen, st.Blocks > 0, st.Files > 0), nil
}

func runAccess(w *modelWorkerState, op *modelOp) (string, error) {
	dir, path := w.at(op.At, op.Path)
	return "", unix.Faccessat2(dir, path, op.Mode, op.Flags)
}

func runUmask(_ *modelWorkerState, op *modelOp) (string, error) {
	return fmt.Sprintf("was=%#o", unix.Umask(int(op.Mode))), nil
}

func runChmod(w *modelWorkerState, op *modelOp) (string, error) {
	dir, path := w.at(op.At, op.Path)
	return "", unix.Fchmodat(dir, path, op.Mode, op.Flags)
}

func runFchmod(w *modelWorkerState, op *modelOp) (string, error) {
	fd, err := w.fd(op.FD)
	if err != nil {
		return "", err
	}
	return "", unix.Fchmod(fd, op.Mode)
}

func runChown(w *modelWorkerState, op *modelOp) (string, error) {
	dir, path := w.at(op.At, op.Path)
	return "", unix.Fchownat(dir, path, op.UID, op.GID, op.Flags)
}

func runFchown(w *modelWorkerState, op *modelOp) (string, error) {
	fd, err := w.fd(op.FD)
	if err != nil {
		return "", err
	}
	return "", unix.Fchown(fd, op.UID, op.GID)
}

// runUtimens sets times and says what they are then, the atime too.
func runUtimens(w *modelWorkerState, op *modelOp) (string, error) {
	dir, path := w.at(op.At, op.Path)
	times := []unix.Timespec{parseTime(op.Atime), parseTime(op.Mtime)}
	if err := unix.UtimesNanoAt(dir, path, times, op.Flags); err != nil {
		return "", err
	}
	var st unix.Stat_t
	if err := unix.Fstatat(dir, path, &st, op.Flags&unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return "", nil // not to be reached any more, by the right of the times
	}
	return timesText(op, &st), nil
}

func runFutimens(w *modelWorkerState, op *modelOp) (string, error) {
	fd, err := w.fd(op.FD)
	if err != nil {
		return "", err
	}
	times := [2]unix.Timespec{parseTime(op.Atime), parseTime(op.Mtime)}
	if err := futimens(fd, &times); err != nil {
		return "", err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", err
	}
	return timesText(op, &st), nil
}

// futimens sets the times of a handle: utimensat without a path, which the unix package does not offer.
func futimens(fd int, times *[2]unix.Timespec) error {
	// Safe because times stays reachable until the call returns.
	_, _, errno := unix.Syscall6(unix.SYS_UTIMENSAT, uintptr(fd), 0, uintptr(unsafe.Pointer(times)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// timesText leaves out times that were not set: see freshAtime and statText.
func timesText(op *modelOp, st *unix.Stat_t) string {
	text := ""
	if op.Atime != "omit" {
		text += " atime=" + timeText(st.Atim)
	}
	if op.Mtime != "omit" || st.Mode&unix.S_IFMT != unix.S_IFIFO {
		text += " mtime=" + timeText(st.Mtim)
	}
	return text[min(1, len(text)):]
}

// parseTime reads now, omit or seconds.nanoseconds.
func parseTime(s string) unix.Timespec {
	switch s {
	case "now":
		return unix.Timespec{Nsec: unix.UTIME_NOW}
	case "omit":
		return unix.Timespec{Nsec: unix.UTIME_OMIT}
	}
	sec, nsec, _ := strings.Cut(s, ".")
	var ts unix.Timespec
	ts.Sec, _ = strconv.ParseInt(sec, 10, 64) // what cannot be read is 0 for both sides
	ts.Nsec, _ = strconv.ParseInt(nsec, 10, 64)
	return ts
}

func runGetflags(w *modelWorkerState, op *modelOp) (string, error) {
	fd, err := w.fd(op.FD)
	if err != nil {
		return "", err
	}
	flags, err := unix.IoctlGetInt(fd, unix.FS_IOC_GETFLAGS)
	return "flags=" + formatFlags(inodeFlags, flags&settableFlags), err
}

// runSetflags sets the flags as chattr does: what else is set stays.
func runSetflags(w *modelWorkerState, op *modelOp) (string, error) {
	fd, err := w.fd(op.FD)
	if err != nil {
		return "", err
	}
	flags, err := unix.IoctlGetInt(fd, unix.FS_IOC_GETFLAGS)
	if err != nil {
		return "", err
	}
	return "", unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, flags&^settableFlags|op.Flags)
}
