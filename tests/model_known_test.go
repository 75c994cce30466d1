package tests

import (
	"regexp"
	"strings"

	"golang.org/x/sys/unix"
)

// knownDifferences are what FUSE itself does otherwise than a local filesystem, whatever the daemon does. It
// follows a run, since most of them depend on what has happened before. Each is allowed as narrowly as that is
// possible; what must not be done at all because the two sides would go apart, the generator leaves out.
type knownDifferences struct {
	passthrough bool
	staged      bool
	pageCache   bool // some files at least go through the page cache
	userMount   bool

	// A store into a mapping was not followed by msync: the kernel writes the bytes, and with them the mtime,
	// when it likes. Or an mtime was not moved at all.
	unsynced bool
	// Something was made immutable or append-only. The kernel knows that of its own inodes only: for FUSE the
	// daemon's backing file refuses, after the checks that come first elsewhere, and of what is not sent to the
	// daemon (access, a write of no bytes) nothing is refused.
	frozen bool
	// Bytes stored into a mapping were written in a daemon without privileges: the kernel takes that for a
	// write by its user and clears setuid and setgid.
	cleared bool
	// The inode flags of a file were not set: for that the kernel opens it anew, which a daemon without privileges
	// cannot if the file's mode forbids it.
	flagsApart bool
	// Pages were fetched without a read: for a mapping, whose file has its atime from the time of mmap on a local
	// filesystem, or to write a part of them. The daemon cannot tell that from a read.
	fetched bool
	// A file was mapped in passthrough mode: the mapping holds the backing file, not the handle, whose locks end
	// with close already.
	mapped bool
}

// note follows the run: op is done on both sides.
func (k *knownDifferences) note(op modelOp, want, got modelResult) {
	ok := strings.HasPrefix(want.Text, "ok")
	switch op.Kind {
	case "load":
		k.fetched = true
	case "store":
		k.fetched = true
		k.cleared = k.userMount
		k.unsynced = k.unsynced || op.Flags&storeUnsynced != 0
	case "write", "pwrite", "writev", "touch", "sendfile", "copyrange":
		k.fetched = k.fetched || k.pageCache
	case "setflags":
		k.flagsApart = k.flagsApart || k.userMount && got.Text == "EACCES"
		k.frozen = k.frozen || ok && op.Flags&(fsImmutable|fsAppend) != 0
	case "truncate":
		// The kernel does not move the mtime, which it alone knows then, of a file that keeps its size.
		k.unsynced = k.unsynced || k.staged && strings.Contains(want.Text, "resized=false")
	case "mmap":
		k.mapped = k.mapped || ok && k.passthrough
	}
}

var (
	setIDs    = regexp.MustCompile(`mode=0([1-7])(\d{3})\b`)
	flagWords = regexp.MustCompile(`\bflags=\S*`)
	mtimes    = regexp.MustCompile(` mtime=\S+`)
	failures  = regexp.MustCompile(`\bE[A-Z0-9]+\b`)
)

// agree compares the results of an operation. An atime may be late on the mount, not early: see freshAtime.
func (k *knownDifferences) agree(op modelOp, want, got modelResult) bool {
	if strings.HasPrefix(want.Text, workerLost) {
		return false // a fault of the test itself, and no base for more operations
	}
	if k.excused(op, want.Text, got.Text) {
		return true
	}
	return k.comparable(op, want.Text) == k.comparable(op, got.Text) && (want.Fresh || !got.Fresh || k.fetched)
}

// comparable drops from a result what need not be equal any more.
func (k *knownDifferences) comparable(op modelOp, text string) string {
	if k.unsynced {
		text = mtimes.ReplaceAllString(text, "")
	}
	if k.cleared {
		text = setIDs.ReplaceAllString(text, "mode=0$2")
	}
	if k.flagsApart && (op.Kind == "getflags" || op.Kind == "tree") {
		text = flagWords.ReplaceAllString(text, "")
	}
	return text
}

// excused says that the result may differ altogether.
func (k *knownDifferences) excused(op modelOp, want, got string) bool {
	switch op.Kind {
	case "flock", "setlk", "getlk", "ofdsetlk":
		if k.mapped {
			return true
		}
	case "getflags", "setflags":
		if k.userMount && got == "EACCES" {
			return true
		}
	case "read":
		// The position in a folder is the filesystem's own, and may be too big to add to.
		if want == "EINVAL" && got == "EISDIR" {
			return true
		}
	}
	return k.frozen && k.lateRefusal(op, want, got)
}

// lateRefusal allows another error where one is due, and no error where the daemon was not asked.
func (k *knownDifferences) lateRefusal(op modelOp, want, got string) bool {
	const refused = "EPERM"
	if failures.ReplaceAllString(want, "E") == failures.ReplaceAllString(got, "E") && strings.Contains(want, refused) {
		return true
	}
	return want == refused && strings.HasPrefix(got, "ok") && k.asksNobody(op, got)
}

// asksNobody says that the operation changes nothing, so that the kernel does not send it to the daemon.
func (k *knownDifferences) asksNobody(op modelOp, got string) bool {
	switch op.Kind {
	case "access":
		return op.Mode&unix.W_OK != 0
	case "chown", "fchown":
		return op.UID == -1 && op.GID == -1
	case "setacl", "setxattr", "removexattr":
		return op.Name == aclDefault && op.Value == ""
	}
	return strings.HasPrefix(got, "ok n=0")
}
