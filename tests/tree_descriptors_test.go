package tests

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// descriptorLimit is what most systems give a daemon.
const descriptorLimit = 1024

// TestManyFilesFewDescriptors: a daemon that may have 1024 descriptors serves a tree of far more files and folders,
// all of which the kernel knows at once.
func TestManyFilesFewDescriptors(t *testing.T) {
	requireRoot(t)
	requirePackages(t, "fuse3", "findutils")
	u := ordinary()
	for name, opts := range map[string][]mountOption{"root": {}, "user": {asUser(u)}} {
		t.Run(name, func(t *testing.T) {
			withDescriptors(t, descriptorLimit, "--attr-timeout=60s", "--entry-timeout=60s")
			m := mount(t, append(opts, withLimit(30*time.Minute))...)
			f := forest{mounted: m, t: t, files: pickLong(30000, 300000), u: superuser()}
			if name == "user" {
				f.u = u
			}
			f.live()
		})
	}
}

// TestManyFoldersFewerDescriptors has less room still, and rules, which want to know paths.
func TestManyFoldersFewerDescriptors(t *testing.T) {
	requireRoot(t)
	withDescriptors(t, 96, "--rule=**/*7=4k", "--attr-timeout=0s", "--entry-timeout=0s")
	m := mount(t)
	f := forest{mounted: m, t: t, files: pickLong(3000, 30000), u: superuser()}
	f.live()
}

// forest is a tree of many files: 50 in a folder, half of the folders below one another to a depth of 40.
type forest struct {
	*mounted
	t     *testing.T
	files int
	u     user
}

// live creates, walks, changes and removes the tree.
func (f *forest) live() {
	usage := watchUsage(f.PID)
	steps := []struct {
		name string
		do   func() error
	}{
		{"create", f.asUser(f.create)}, {"walk", f.walk}, {"walk again", f.walk}, {"read", f.asUser(f.readSome)},
		{"rename", f.asUser(f.rename)}, {"walk after the rename", f.walk}, {"remove", f.asUser(f.remove)},
	}
	for _, step := range steps {
		start := time.Now()
		if err := step.do(); err != nil {
			f.t.Fatalf("%s: %v", step.name, err)
		}
		f.t.Logf("%s: %v", step.name, time.Since(start).Round(time.Millisecond))
	}
	u := usage.stop()
	f.t.Logf("the daemon used up to %d of %d descriptors and %d MiB", u.descriptors, u.limit, u.memory>>20)
	if u.limit == 0 || u.limit > descriptorLimit {
		f.t.Errorf("the limit is %d", u.limit)
	}
	// A file costs an inode, its name and their places in two tables.
	if most := uint64(64<<20 + 1500*f.files); u.memory > most {
		f.t.Errorf("the daemon used %d MiB for %d files", u.memory>>20, f.files)
	}
}

func (f *forest) asUser(do func() error) func() error {
	return func() error { return as(f.u, 0o022, do) }
}

const forestWidth, forestDepth = 50, 40

// folder names the folder of the n-th fifty.
func (f *forest) folder(n int) string {
	if n%2 == 0 {
		return f.Path(fmt.Sprint("flat", n))
	}
	dir := f.Path(fmt.Sprint("deep", n/2/forestDepth))
	return dir + strings.Repeat("/further", n/2%forestDepth)
}

func (f *forest) folders() int { return f.files / forestWidth }

func (f *forest) create() error {
	for n := range f.folders() {
		if err := os.Mkdir(f.folder(n), 0o755); err != nil {
			return err
		}
		for i := range forestWidth {
			if err := makeFile(f.folder(n)+"/file"+strconv.Itoa(i), unix.O_EXCL, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// walk has find(1) stat and list everything.
func (f *forest) walk() error {
	cmd := f.u.command("find", f.Dir, "-ls")
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("find: %w: %s", err, tail(problems.String(), 500))
	}
	if got, want := bytes.Count(out.Bytes(), []byte("\n")), 1+f.files+f.folders(); got != want {
		return fmt.Errorf("find lists %d of %d", got, want)
	}
	return nil
}

// readSome opens a file in each folder, the farthest first: the daemon has closed its way there.
func (f *forest) readSome() error {
	for n := f.folders() - 1; n >= 0; n-- {
		path := f.folder(n) + "/file" + strconv.Itoa(n%forestWidth)
		if err := openWrite(path, unix.O_WRONLY, []byte(path)); err != nil {
			return err
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != path {
			return fmt.Errorf("%s reads %q, %w", path, got, err)
		}
	}
	return nil
}

// rename gives the flat folders and a file in each folder a new name, and moves every deep tree into another folder.
func (f *forest) rename() error {
	for n := range f.folders() {
		if err := os.Rename(f.folder(n)+"/file7", f.folder(n)+"/renamed"); err != nil {
			return err
		}
	}
	for n := range f.folders() {
		from := f.folder(n)
		if n%2 == 1 && n/2%forestDepth != 0 {
			continue
		}
		if err := os.Rename(from, from+"-renamed"); err != nil {
			return err
		}
		if n%2 == 1 {
			if err := os.Rename(from+"-renamed", f.folder(n-1)+"-renamed/moved"); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *forest) remove() error {
	entries, err := os.ReadDir(f.Dir)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(f.Path(e.Name())))
	}
	if err != nil {
		return err
	}
	if left, err := os.ReadDir(f.Dir); err != nil || len(left) > 0 {
		return fmt.Errorf("%d entries are left: %w", len(left), err)
	}
	return nil
}

// usage is the most that a process has used.
type usage struct {
	descriptors, limit int
	memory             uint64 // bytes, resident
}

type usageWatcher struct {
	pid  int
	end  chan struct{}
	done sync.WaitGroup
	seen usage // owned by the watching goroutine until done
}

// watchUsage looks at a process now and then until stop.
func watchUsage(pid int) *usageWatcher {
	w := &usageWatcher{pid: pid, end: make(chan struct{})}
	w.done.Go(func() {
		for {
			if l, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "fd")); err == nil {
				w.seen.descriptors = max(w.seen.descriptors, len(l))
			}
			select {
			case <-w.end:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	return w
}

func (w *usageWatcher) stop() usage {
	close(w.end)
	w.done.Wait()
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(w.pid), "status"))
	if err != nil {
		return w.seen
	}
	limits, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(w.pid), "limits"))
	if err != nil {
		return w.seen
	}
	for line := range strings.Lines(string(status) + string(limits)) {
		if text, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, _ := strconv.ParseUint(strings.Fields(text)[0], 10, 64)
			w.seen.memory = kib << 10
		}
		if text, ok := strings.CutPrefix(line, "Max open files"); ok {
			w.seen.limit, _ = strconv.Atoi(strings.Fields(text)[1]) // the hard one
		}
	}
	return w.seen
}
