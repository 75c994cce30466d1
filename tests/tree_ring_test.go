package tests

import (
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestFoldersMovedInRings: folders were moved in and out of each other in SOURCE, and were seen there, so that what
// the daemon remembers leads round in a ring. Reaching for one of them finds it or not, but ends.
func TestFoldersMovedInRings(t *testing.T) {
	requireRoot(t)
	withDescriptors(t, 128, "--io=cached", "--attr-timeout=0s", "--entry-timeout=0s")
	m := mount(t, withLimit(30*time.Second))
	r := ring{mounted: m, t: t, names: []string{"a", "b", "c"}}
	r.open()
	for range 4 {
		for _, inner := range r.names {
			for _, outer := range r.names {
				if inner != outer {
					r.visit(inner, outer)
				}
			}
		}
	}
	for _, name := range r.names {
		must(t, os.Rename(m.Backing(name), m.Backing("hidden "+name)))
	}
	newCrowd(m, 200).evict()
	for i, fd := range r.fds {
		err := within(t, 10*time.Second, "fstat of a folder that was moved about", func() error {
			var st unix.Stat_t
			return unix.Fstat(fd, &st)
		})
		if !oneOf(err, unix.ESTALE, unix.ENOENT) {
			t.Errorf("fstat of %s gave %v", r.names[i], err)
		}
		unix.Close(fd)
	}
}

// ring keeps folders open through the mount while they are moved in SOURCE.
type ring struct {
	*mounted
	t     *testing.T
	names []string
	fds   []int
	moves int
}

func (r *ring) open() {
	for _, name := range r.names {
		must(r.t, os.Mkdir(r.Backing(name), 0o755))
		fd, err := unix.Open(r.Path(name), unix.O_PATH|unix.O_CLOEXEC, 0)
		must(r.t, err)
		r.fds = append(r.fds, fd)
	}
}

// visit has the daemon see the folder inner within outer, under a name of its own.
func (r *ring) visit(inner, outer string) {
	r.moves++
	name := fmt.Sprint(inner, r.moves)
	must(r.t, os.Rename(r.Backing(inner), r.Backing(outer, name)))
	var st unix.Stat_t
	must(r.t, unix.Stat(r.Path(outer, name), &st))
	must(r.t, os.Rename(r.Backing(outer, name), r.Backing(inner)))
}

// crowd is a set of folders, so many that the daemon, by using them, closes its descriptors of all others.
type crowd struct {
	*mounted
	names []string
}

func newCrowd(m *mounted, n int) *crowd {
	c := &crowd{mounted: m}
	for i := range n {
		name := fmt.Sprint("crowd", i)
		must(m.t, os.Mkdir(m.Backing(name), 0o755))
		must(m.t, os.WriteFile(m.Backing(name, "file"), nil, 0o644))
		c.names = append(c.names, name)
	}
	return c
}

// evict has the daemon open each folder anew, whatever the kernel has cached.
func (c *crowd) evict() {
	for range 2 {
		for _, name := range c.names {
			var st unix.Statx_t
			must(c.t, unix.Statx(unix.AT_FDCWD, c.Path(name, "file"), unix.AT_STATX_FORCE_SYNC, unix.STATX_BASIC_STATS, &st))
		}
	}
}
