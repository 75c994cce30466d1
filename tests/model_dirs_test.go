package tests

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// dirKinds are the operations that list folders.
func dirKinds() []modelKind {
	return []modelKind{
		{name: "readdir", weight: 10, gen: genReaddir, run: runReaddir},
		{name: "seekdir", weight: 8, gen: genSeekdir, run: runSeekdir},
	}
}

func genReaddir(g *modelGen, op *modelOp) { op.FD = g.folderHandle() }

// folderHandle is a folder that the current worker has open, or any handle.
func (g *modelGen) folderHandle() int { return cmp.Or(g.folder(), g.slot()) }

// genSeekdir makes up what is created (Path) and removed (Path2) while the folder is being read, and how many
// entries have been read then (Len).
func genSeekdir(g *modelGen, op *modelOp) {
	op.FD = g.folderHandle()
	op.Path, op.Path2, op.Len = g.name(), g.name(), int64(g.rng.IntN(8))
}

// dirEntry is one entry as getdents64 gives it.
type dirEntry struct {
	name string
	ino  uint64
	next int64 // where the following entry is read
	kind byte
}

// readDir reads the entries from the handle's position on, with a small buffer, so that it takes many calls.
func readDir(fd int) ([]dirEntry, error) {
	var all []dirEntry
	buf := make([]byte, 600)
	for {
		n, err := unix.Getdents(fd, buf)
		if err != nil || n == 0 {
			return all, err
		}
		for b := buf[:n]; len(b) > 0; {
			size := binary.NativeEndian.Uint16(b[16:])
			name, _, _ := strings.Cut(string(b[19:size]), "\x00")
			all = append(all, dirEntry{
				name: name,
				ino:  binary.NativeEndian.Uint64(b),
				next: int64(binary.NativeEndian.Uint64(b[8:])),
				kind: b[18],
			})
			b = b[size:]
		}
	}
}

// readWholeDir reads from the start and leaves out the entry "..", which lies outside for the root of a run.
func readWholeDir(fd int) ([]dirEntry, error) {
	if _, err := unix.Seek(fd, 0, unix.SEEK_SET); err != nil {
		return nil, err
	}
	all, err := readDir(fd)
	return slices.DeleteFunc(all, func(e dirEntry) bool { return e.name == ".." }), err
}

func runReaddir(w *modelWorkerState, op *modelOp) (string, error) {
	fd, err := w.fd(op.FD)
	if err != nil {
		return "", err
	}
	all, err := readWholeDir(fd)
	if err != nil {
		return "", err
	}
	var names []string
	for _, e := range all {
		names = append(names, fmt.Sprintf("%s:%d%s", e.name, e.kind, inodeRemark(fd, e)))
	}
	slices.Sort(names)
	return strings.Join(names, ","), nil
}

// inodeRemark says so when a listing and stat disagree on an entry's inode number.
func inodeRemark(fd int, e dirEntry) string {
	var st unix.Stat_t
	if err := unix.Fstatat(fd, e.name, &st, unix.AT_SYMLINK_NOFOLLOW); err == nil && st.Ino != e.ino {
		return "!inode"
	}
	return ""
}

// runSeekdir reads a folder, changes it and reads again from the middle. Apart from the two names that
// changed, the rest must be what it was.
func runSeekdir(w *modelWorkerState, op *modelOp) (string, error) {
	fd, err := w.fd(op.FD)
	if err != nil {
		return "", err
	}
	if _, err := unix.Seek(fd, 0, unix.SEEK_SET); err != nil {
		return "", err
	}
	all, err := readDir(fd)
	if err != nil || len(all) == 0 {
		return "empty", err
	}
	added, removed := expand(op.Path), expand(op.Path2)
	created := unix.Mknodat(fd, added, unix.S_IFREG|0o644, 0)
	unlinked := unix.Unlinkat(fd, removed, 0)
	at := int(op.Len) % len(all)
	if _, err := unix.Seek(fd, all[at].next, unix.SEEK_SET); err != nil {
		return "", err
	}
	rest, err := readDir(fd)
	if err != nil {
		return "", err
	}
	verdict := "as before"
	if was, is := stableNames(all[at+1:], added, removed), stableNames(rest, added, removed); was != is {
		verdict = fmt.Sprintf("after %q: was %s, is %s", all[at].name, was, is)
	}
	return fmt.Sprintf("created=%s unlinked=%s rest=%s", outcome(created), outcome(unlinked), verdict), nil
}

// outcome is how a call went, as a word.
func outcome(err error) string {
	if err == nil {
		return "ok"
	}
	return errorText(err)
}

// stableNames are the names, sorted, but for those given.
func stableNames(entries []dirEntry, except ...string) string {
	var names []string
	for _, e := range entries {
		if !slices.Contains(except, e.name) {
			names = append(names, e.name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}
