package tests

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The names that exist in the swapped folder as well as in the canary: a daemon that follows a symlink finds
// in the canary what it was asked for.
const (
	raceFile   = "passwd"
	raceFolder = "conf.d"
	raceLate   = "late" // appears and disappears as a link
	raceSecret = "canary secret canary secret canary secret"
)

// TestSymlinkRace: an ordinary user may write in SOURCE and swaps folders and files there for symlinks to a folder
// outside, as fast as possible, while others do everything there is below these names through a mount of root.
// Nothing outside may change, and nothing of it may be seen.
//
// The links are relative and lead outside only when they are followed in SOURCE: seen through the mount they
// dangle. What a program follows itself is not the daemon's doing.
func TestSymlinkRace(t *testing.T) {
	requireRoot(t)
	eachMode(t, func(t *testing.T, mode string) {
		for _, timeout := range []string{"0s", "60s"} {
			r := newSymlinkRace(t, mode, timeout)
			before := digest(t, r.canary)
			r.run(pickLong(1200*time.Millisecond, 20*time.Second))
			if after := digest(t, r.canary); after != before {
				t.Errorf("the canary was\n%s and is\n%s", before, after)
			}
			r.Unmount()
		}
	})
}

type symlinkRace struct {
	*mounted
	t      *testing.T
	canary string
	user   user

	mu    sync.Mutex
	tally map[string]map[string]int // operation -> result -> how often; guarded by mu
}

func newSymlinkRace(t *testing.T, mode, timeout string) *symlinkRace {
	t.Helper()
	base := filepath.Join(scratch(t), "deeper")
	r := &symlinkRace{t: t, canary: filepath.Join(base, "canary"), user: ordinary(), tally: map[string]map[string]int{}}
	source := filepath.Join(base, "src")
	for _, dir := range []string{base, r.canary, source} {
		must(t, os.Mkdir(dir, 0o755))
	}
	must(t, os.MkdirAll(filepath.Join(r.canary, raceFolder), 0o755))
	for _, name := range []string{raceFile, raceFolder + "/" + raceFile, "canary-only"} {
		path := filepath.Join(r.canary, name)
		must(t, writeFile(path, raceSecret, 0o644))
		must(t, unix.Setxattr(path, "user.secret", []byte(raceSecret), 0))
	}
	must(t, os.Chmod(source, 0o777))
	must(t, as(r.user, 0o022, func() error { return fillRaceSource(source) }))
	r.mounted = mount(t, withSource(source), withMode(mode), withArgs("--allow-other", "--attr-timeout="+timeout, "--entry-timeout="+timeout))
	return r
}

// fillRaceSource makes what is swapped: "top" for a link to the canary, "in/top" for one to it one level up,
// and the file "in/passwd" for a link to the canary's.
func fillRaceSource(source string) error {
	for _, dir := range []string{"top/" + raceFolder, "in/top/" + raceFolder} {
		if err := os.MkdirAll(filepath.Join(source, dir), 0o755); err != nil {
			return err
		}
	}
	return errors.Join(
		os.WriteFile(filepath.Join(source, "in", raceFile), []byte("harmless"), 0o644),
		os.Symlink("../canary", filepath.Join(source, "top~")),
		os.Symlink("../../canary", filepath.Join(source, "in/top~")),
		os.Symlink("../../canary/"+raceFile, filepath.Join(source, "in", raceFile+"~")))
}

// run has attackers and victims at it for a while, and judges what the victims met.
func (r *symlinkRace) run(length time.Duration) {
	end := time.Now().Add(length)
	var all sync.WaitGroup
	failed := make(chan error, 16)
	start := func(u user, f func(time.Time) error) {
		all.Go(func() {
			if err := as(u, 0, func() error { return f(end) }); err != nil {
				failed <- err
			}
		})
	}
	start(r.user, r.swap)
	start(r.user, r.appear)
	for seed := range uint64(3) {
		for _, u := range []user{superuser(), r.user} {
			rng := rand.New(rand.NewPCG(seed, uint64(u.UID)))
			start(u, func(end time.Time) error { return r.suffer(end, rng) })
		}
	}
	all.Wait()
	close(failed)
	for err := range failed {
		r.t.Error(err)
	}
	r.judge()
}

// appear has a link show up where nothing was when a victim looked.
func (r *symlinkRace) appear(end time.Time) error {
	path := r.Backing("in", raceLate)
	for n := 0; time.Now().Before(end); n++ {
		target := "../../canary/" + []string{raceFile, "created"}[n%2]
		if err := unix.Symlink(target, path); !oneOf(err, unix.EEXIST) {
			return fmt.Errorf("link: %w", err)
		}
		if err := unix.Unlink(path); !oneOf(err, unix.ENOENT, unix.EISDIR) {
			return fmt.Errorf("unlink: %w", err)
		}
	}
	return nil
}

// swap exchanges names in SOURCE. What a victim has removed is made again.
func (r *symlinkRace) swap(end time.Time) error {
	names := []string{"top", "in/top", "in/" + raceFile}
	for n := 0; time.Now().Before(end); n++ {
		for _, name := range names {
			path := r.Backing(name)
			err := unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, path+"~", unix.RENAME_EXCHANGE)
			if !oneOf(err, unix.ENOENT) {
				return fmt.Errorf("swap %s: %w", name, err)
			}
		}
		if n%64 == 0 {
			restoreRaceSource(r.Source)
		}
	}
	return nil
}

// restoreRaceSource makes anew what is missing. It fails where something is there already.
func restoreRaceSource(source string) {
	if err := fillRaceSource(source); err == nil {
		return
	}
	for _, dir := range []string{"top", "top~", "in/top", "in/top~"} {
		// Not MkdirAll: it must not follow the links either.
		how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
		fd, err := unix.Openat2(unix.AT_FDCWD, filepath.Join(source, dir), &how)
		if err != nil {
			continue
		}
		_ = unix.Mkdirat(fd, raceFolder, 0o755)
		unix.Close(fd)
	}
	for _, name := range []string{"in/" + raceFile, "in/" + raceFile + "~"} {
		if fd, err := unix.Open(filepath.Join(source, name), unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o644); err == nil {
			unix.Close(fd)
		}
	}
}

// suffer does random operations through the mount. What they give is only counted.
func (r *symlinkRace) suffer(end time.Time, rng *rand.Rand) error {
	ops := raceOps()
	tally := map[string]map[string]int{}
	for time.Now().Before(end) {
		dir := r.Path([]string{"top", "in/top", "in"}[rng.IntN(3)])
		target := dir + "/" + []string{raceFile, raceFolder, raceFolder + "/" + raceFile, raceLate, raceLate, raceFolder + "/new"}[rng.IntN(6)]
		op := ops[rng.IntN(len(ops))]
		err := op.do(target, dir)
		if leak := (*leakError)(nil); errors.As(err, &leak) {
			return fmt.Errorf("%s of %s: %w", op.name, target, err)
		}
		if tally[op.name] == nil {
			tally[op.name] = map[string]int{}
		}
		result := "ok"
		if err != nil {
			result = errorText(err)
		}
		tally[op.name][result]++
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, results := range tally {
		if r.tally[name] == nil {
			r.tally[name] = map[string]int{}
		}
		for result, n := range results {
			r.tally[name][result] += n
		}
	}
	return nil
}

// judge wants every operation to have worked sometimes, or the race was none, and no error that names a fault
// of the daemon.
func (r *symlinkRace) judge() {
	for _, op := range raceOps() {
		results := r.tally[op.name]
		if results["ok"] == 0 {
			r.t.Errorf("%s never worked: %v", op.name, results)
		}
		for _, bad := range []string{"EIO", "EBADF", "EFAULT", "ENOSYS", "EMFILE", "ENOTSUP"} {
			if results[bad] > 0 {
				r.t.Errorf("%s gave %s: %v", op.name, bad, results)
			}
		}
	}
}

// leakError says that something of the canary was seen.
type leakError struct{ what string }

func (e *leakError) Error() string { return "the canary's " + e.what + " was seen through the mount" }

type raceOp struct {
	name string
	do   func(path, dir string) error
}

func raceOps() []raceOp {
	return append(raceReads(), append(raceChanges(), raceNames()...)...)
}

func raceReads() []raceOp {
	return []raceOp{
		{"read", func(p, _ string) error { return readForSecret(p, unix.O_RDONLY) }},
		{"read and write", func(p, _ string) error { return readForSecret(p, unix.O_RDWR) }},
		{"readdir", func(_, dir string) error {
			entries, err := os.ReadDir(dir)
			for _, e := range entries {
				if e.Name() == "canary-only" {
					return &leakError{"folder"}
				}
			}
			return err
		}},
		{"getxattr", func(p, _ string) error {
			buf := make([]byte, 256)
			n, err := unix.Lgetxattr(p, "user.secret", buf)
			if err == nil && bytes.Contains(buf[:n], []byte(raceSecret)) {
				return &leakError{"extended attribute"}
			}
			if err == unix.ENODATA {
				return nil
			}
			return err
		}},
		{"stat", func(p, _ string) error {
			var st unix.Stat_t
			err := unix.Lstat(p, &st)
			if err == nil && st.Size == int64(len(raceSecret)) {
				return &leakError{"size"}
			}
			return err
		}},
	}
}

func readForSecret(path string, flags int) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	buf := make([]byte, 4096)
	n, err := unix.Pread(fd, buf, 0)
	if err == nil && bytes.Contains(buf[:n], []byte(raceSecret)) {
		return &leakError{"content"}
	}
	if oneOf(err, unix.EISDIR) {
		return nil
	}
	return err
}

func raceChanges() []raceOp {
	return []raceOp{
		{"create", func(p, _ string) error { return openAndWrite(p, unix.O_CREAT|unix.O_WRONLY) }},
		{"create exclusively", func(p, _ string) error { return openAndWrite(p, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY) }},
		{"overwrite", func(p, _ string) error { return openAndWrite(p, unix.O_CREAT|unix.O_WRONLY|unix.O_TRUNC) }},
		{"truncate", func(p, _ string) error { return unix.Truncate(p, 3) }},
		{"chmod", func(p, _ string) error { return unix.Chmod(p, 0o777) }},
		{"chown", func(p, _ string) error { return unix.Lchown(p, 12345, 12345) }},
		{"setxattr", func(p, _ string) error { return unix.Setxattr(p, "user.attack", []byte("x"), 0) }},
		{"utimens", func(p, _ string) error {
			times := []unix.Timespec{{Sec: 1}, {Sec: 1}}
			return unix.UtimesNanoAt(unix.AT_FDCWD, p, times, unix.AT_SYMLINK_NOFOLLOW)
		}},
		{"tmpfile", func(_, dir string) error { return openAndWrite(dir, unix.O_TMPFILE|unix.O_WRONLY) }},
	}
}

func openAndWrite(path string, flags int) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NONBLOCK, 0o666)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte("attack"))
	return err
}

func raceNames() []raceOp {
	return []raceOp{
		{"unlink", func(p, _ string) error { return unix.Unlink(p) }},
		{"rmdir", func(_, dir string) error { return unix.Rmdir(dir + "/" + raceFolder + "/empty") }},
		{"mkdir", func(_, dir string) error { return unix.Mkdir(dir+"/"+raceFolder+"/empty", 0o777) }},
		{"mknod", func(_, dir string) error {
			return unix.Mknod(dir+"/fifo"+fmt.Sprint(rand.IntN(1000)), unix.S_IFIFO|0o666, 0)
		}},
		{"symlink", func(_, dir string) error { return unix.Symlink("nowhere", dir+"/link"+fmt.Sprint(rand.IntN(1000))) }},
		{"link", func(p, dir string) error { return unix.Link(p, dir+"/hard"+fmt.Sprint(rand.IntN(1000))) }},
		{"rename", func(p, dir string) error {
			to := dir + "/moved"
			if err := unix.Rename(p, to); err != nil {
				return err
			}
			return unix.Rename(to, p)
		}},
		{"clean", func(_, dir string) error {
			leftovers, err := filepath.Glob(dir + "/[flhm]*")
			for _, name := range leftovers {
				err = errors.Join(err, ignoreGone(os.RemoveAll(name)))
			}
			return err
		}},
	}
}

// ignoreGone is nil for the errors of a folder that is swapped or changed while it is removed.
func ignoreGone(err error) error {
	if oneOf(err, unix.ENOENT, unix.ENOTEMPTY, unix.ENOTDIR, unix.ELOOP, unix.EACCES, unix.EPERM) {
		return nil
	}
	return err
}

// digest describes all of a tree, times of change included, but not of access.
func digest(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		xattrs, err := describeXattrs(path)
		if err != nil {
			return err
		}
		var data []byte
		if st.Mode&unix.S_IFMT == unix.S_IFREG {
			if data, err = os.ReadFile(path); err != nil {
				return err
			}
		}
		_, err = fmt.Fprintf(&b, "%s mode %o owner %d:%d links %d size %d mtime %v ctime %v%s %q\n",
			strings.TrimPrefix(path, dir), st.Mode, st.Uid, st.Gid, st.Nlink, st.Size, st.Mtim, st.Ctim, xattrs, data)
		return err
	})
	must(t, err)
	return b.String()
}
