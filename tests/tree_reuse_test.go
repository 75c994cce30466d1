package tests

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestInodeNumberReused: a file is removed in SOURCE and the next one gets its inode number, which is all that
// many filesystems know a file by. Who holds the old file never sees the new one's data.
func TestInodeNumberReused(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		for _, timeout := range []string{"0s", "60s"} {
			m := mount(t, withMode(mode), withArgs("--attr-timeout="+timeout, "--entry-timeout="+timeout))
			r := reuse{mounted: m, t: t}
			for round := range pickLong(40, 5000) {
				r.round(fmt.Sprint("old", round), fmt.Sprint("new", round))
			}
			if r.numbers == 0 {
				t.Errorf("no inode number was used again")
			}
			t.Logf("timeout %s: %d numbers, and %d with their birth time, were used again", timeout, r.numbers, r.births)
			m.Unmount()
		}
	})
}

type reuse struct {
	*mounted
	t       *testing.T
	numbers int // how often the number was used again
	births  int // and how often the birth time was the same too
}

// round makes old, has the kernel know it in several ways, removes it and makes another of its number.
func (r *reuse) round(older, newer string) {
	t := r.t
	must(t, os.WriteFile(r.Backing(older), []byte("old data"), 0o644))
	var was, is unix.Statx_t
	must(t, statxAll(r.Backing(older), &was))
	path, err := unix.Open(r.Path(older), unix.O_PATH|unix.O_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(path)
	must(t, os.Remove(r.Backing(older)))
	must(t, os.WriteFile(r.Backing(newer), []byte("new data, and longer"), 0o600))
	must(t, statxAll(r.Backing(newer), &is))
	defer os.Remove(r.Backing(newer))
	if is.Ino != was.Ino {
		return
	}
	r.numbers++
	if is.Btime == was.Btime {
		r.births++
	}
	r.look(older, newer, path)
}

// look reaches for both files, the new one first so that the daemon knows it.
func (r *reuse) look(older, newer string, path int) {
	t := r.t
	if got, err := os.ReadFile(r.Path(newer)); err != nil || string(got) != "new data, and longer" {
		t.Errorf("the new file reads %q, %v", got, err)
	}
	if got, err := os.ReadFile(r.Path(older)); !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ESTALE) {
		t.Errorf("the name of the old file reads %q, %v", got, err)
	}
	if got, err := os.ReadFile(fdPath(path)); !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ESTALE) {
		t.Errorf("the descriptor of the old file reads %q, %v", got, err)
	}
	if err := unix.Chmod(fdPath(path), 0o640); !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ESTALE) {
		t.Errorf("chmod of the old file gave %v", err)
	}
	var st unix.Stat_t
	must(t, unix.Stat(r.Backing(newer), &st))
	if st.Mode&0o7777 != 0o600 {
		t.Errorf("what was done to the old file befell the new one: mode %o", st.Mode&0o7777)
	}
}

func statxAll(path string, st *unix.Statx_t) error {
	return unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS|unix.STATX_BTIME, st)
}
