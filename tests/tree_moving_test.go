package tests

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestHeldWhileRenamed: a file and a folder are renamed to and fro through the mount, others look the names up, and
// who holds a descriptor that is only a path, or works in the folder, never notices.
func TestHeldWhileRenamed(t *testing.T) {
	for _, rules := range []string{"", "--rule=**/b/**=4k"} {
		t.Run("rules "+rules, func(t *testing.T) {
			args := []string{"--io=cached", "--attr-timeout=0s", "--entry-timeout=0s"}
			if rules != "" {
				args = append(args, rules)
			}
			withDescriptors(t, 128, args...)
			m := mount(t)
			must(t, errors.Join(os.MkdirAll(m.Path("a/folder"), 0o755), os.Mkdir(m.Path("b"), 0o755),
				os.WriteFile(m.Path("a/file"), []byte("hello"), 0o644), os.WriteFile(m.Path("a/folder/inside"), []byte("hello"), 0o644)))
			w := walkers{m: m, end: time.Now().Add(pickLong(time.Second, 20*time.Second)), others: newCrowd(m, 100)}
			if err := w.run(); err != nil {
				t.Error(err)
			}
		})
	}
}

// walkers are programs that meet in the same folders until a moment.
type walkers struct {
	m      *mounted
	end    time.Time
	others *crowd
}

func (w *walkers) run() error {
	var all sync.WaitGroup
	var mu sync.Mutex
	var first error
	for name, step := range map[string]func() error{
		"rename": w.rename, "look up": w.lookUp, "look up, too": w.lookUp, "and too": w.lookUp, "hold": w.hold, "crowd": w.crowd,
	} {
		all.Go(func() {
			for time.Now().Before(w.end) {
				if err := step(); err != nil {
					mu.Lock()
					defer mu.Unlock()
					first = errors.Join(first, fmt.Errorf("%s: %w", name, err))
					return
				}
			}
		})
	}
	all.Wait()
	return first
}

func (w *walkers) rename() error {
	for _, way := range [][2]string{
		{"a/file", "b/file"}, {"a/folder", "b/folder"}, {"b/file", "a/renamed"}, {"a/renamed", "a/file"}, {"b/folder", "a/folder"},
	} {
		if err := unix.Rename(w.m.Path(way[0]), w.m.Path(way[1])); err != nil {
			return fmt.Errorf("%v: %w", way, err)
		}
	}
	return nil
}

// lookUp finds the names or not.
func (w *walkers) lookUp() error {
	for _, name := range []string{"a/file", "b/file", "a/renamed", "a/folder/inside", "b/folder/inside"} {
		if err := unix.Stat(w.m.Path(name), new(unix.Stat_t)); !oneOf(err, unix.ENOENT) {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	_, err := os.ReadDir(w.m.Path("a"))
	return err
}

// hold takes a path descriptor of the file and of the folder, wherever they are just now, and uses them for a while.
func (w *walkers) hold() error {
	for _, name := range []string{"file", "folder"} {
		fd, err := unix.Open(w.m.Path("a", name), unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			continue // not there at the moment
		}
		err = useMoving(fd, name == "folder")
		unix.Close(fd)
		if err != nil {
			return err
		}
	}
	return nil
}

func useMoving(fd int, folder bool) error {
	for range 50 {
		if err := unix.Fstat(fd, new(unix.Stat_t)); err != nil {
			return fmt.Errorf("fstat: %w", err)
		}
		if !folder {
			if err := readsAs(fdPath(fd), "hello"); err != nil {
				return fmt.Errorf("opening the descriptor: %w", err)
			}
			continue
		}
		if err := unix.Fstatat(fd, "inside", new(unix.Stat_t), 0); err != nil {
			return fmt.Errorf("fstatat: %w", err)
		}
	}
	return nil
}

// crowd makes the daemon close its descriptors of the folders.
func (w *walkers) crowd() error {
	w.others.evict()
	return nil
}

// TestMappingOutlivesClose: what is written through a mapping whose file was closed moves the times that stat shows,
// once the kernel asks again: in passthrough nobody tells us of such a write.
func TestMappingOutlivesClose(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		m := mount(t, withMode(mode), withArgs("--attr-timeout=300ms"))
		must(t, os.WriteFile(m.Path("file"), []byte("hello"), 0o644))
		fd, err := unix.Open(m.Path("file"), unix.O_RDWR|unix.O_CLOEXEC, 0)
		must(t, err)
		mapping, err := unix.Mmap(fd, 0, 5, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		must(t, err)
		defer func() { must(t, unix.Munmap(mapping)) }()
		unix.Close(fd)
		time.Sleep(50 * time.Millisecond) // the daemon hears of it a little later
		var before, after unix.Stat_t
		must(t, unix.Stat(m.Path("file"), &before))
		time.Sleep(20 * time.Millisecond)
		mapping[0] = 'H'
		must(t, unix.Msync(mapping, unix.MS_SYNC))
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end) && (after.Mtim == before.Mtim || after.Ino == 0); {
			must(t, unix.Stat(m.Path("file"), &after))
			time.Sleep(10 * time.Millisecond)
		}
		if after.Mtim == before.Mtim {
			t.Errorf("mtime is still %v", after.Mtim)
		}
		must(t, readsAs(m.Path("file"), "Hello"))
	})
}
