package tests

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestStagedManyFiles: open files cost the memory that is staged of them, not that of their windows.
func TestStagedManyFiles(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector takes memory of its own")
	}
	const files, most = 1000, 64 << 20
	eachStager(t, func(t *testing.T, s *stagedSite) {
		s.start("--flush-on=idle", "--flush-after=1h", "--stage-memory=1G")
		fds := make([]int, files)
		before := memoryOf(t, s.pid(), "VmRSS")
		for i := range fds {
			fds[i] = s.open(s.path(fmt.Sprint(i)), unix.O_RDWR|unix.O_CREAT)
			must(t, errors.Join(writeFD(fds[i], stagedBytes(i, 4096), int64(i)*50), pushFD(fds[i])))
		}
		grown := memoryOf(t, s.pid(), "VmRSS") - before
		if st, err := os.Stat(s.backing("500")); err != nil || st.Size() != 0 {
			t.Errorf("what is written does not stay staged: %v, %v", st, err)
		}
		t.Logf("%d files with 4 KiB staged take %d KiB", files, grown>>10)
		if grown > most {
			t.Errorf("the daemon has grown by %d bytes, more than %d", grown, most)
		}
		for i, fd := range fds {
			must(t, unix.Close(fd))
			fds[i] = -1
		}
		s.unmountClean()
		for i := range fds {
			wantFile(t, s.backing(fmt.Sprint(i)), append(make([]byte, i*50), stagedBytes(i, 4096)...))
		}
	})
}

// memoryOf is a figure of /proc/PID/status, in bytes.
func memoryOf(t *testing.T, pid int, name string) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(t, err)
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); f[0] == name+":" {
			n, err := strconv.Atoi(f[1])
			must(t, err)
			return n << 10
		}
	}
	t.Fatalf("no %s", name)
	return 0
}

// ownMemory is what a daemon takes beside what it stages, in bytes: the Go runtime, and a request of 1 MiB for each
// that the kernel has under way, 64 at most.
const ownMemory = 64 << 20

// TestStagedManyWriters: more writers than there is memory for, on a slow disk, all go on at about the same pace,
// and the daemon keeps to its memory.
func TestStagedManyWriters(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector takes memory of its own")
	}
	const writers, memory = 64, 64 << 20
	eachUser(t, func(t *testing.T, u *user) {
		source := newImage(t, u, 1500)
		s := newStagedSite(t, u)
		s.src = source
		slow := slowDown(t, source, 60<<20)
		s.start("--flush-on=idle", "--stage-size=8M", "--stage-memory=64M")
		slow(s.pid())
		w := &manyWriters{s: s, done: make([]atomic.Int64, writers), stop: make(chan struct{})}
		most := 0
		w.start(t)
		for end := time.Now().Add(pickLong(3*time.Second, 15*time.Second)); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			most = max(most, memoryOf(t, s.pid(), "VmRSS"))
		}
		close(w.stop)
		must(t, within(t, time.Minute, "ending the writers", func() error { w.wait.Wait(); return nil }))
		least, all := w.progress()
		t.Logf("the daemon took %d MiB; the writers wrote from %d to %d KiB", most>>20, least>>10, all[len(all)-1]>>10)
		if most > memory+memory/10+ownMemory {
			t.Errorf("the daemon took %d bytes of memory for a budget of %d", most, memory)
		}
		if least == 0 || all[len(all)-1]/least > 8 {
			t.Errorf("some writers starve; bytes by writer: %v", all)
		}
		s.unmountClean()
		w.check(t)
	})
}

// manyWriters write files in pieces which they wait for to get to the daemon.
type manyWriters struct {
	s    *stagedSite
	done []atomic.Int64 // bytes
	stop chan struct{}
	wait sync.WaitGroup
}

const writersPiece = 300001

func (w *manyWriters) start(t *testing.T) {
	for i := range w.done {
		fd := w.s.open(w.s.path(fmt.Sprint(i)), unix.O_RDWR|unix.O_CREAT)
		w.wait.Go(func() {
			defer unix.Close(fd)
			for n := int64(0); ; n += writersPiece {
				select {
				case <-w.stop:
					return
				default:
				}
				if err := errors.Join(writeFD(fd, stagedBytes(i, writersPiece), n), pushFD(fd)); err != nil {
					t.Errorf("writer %d: %v", i, err)
					return
				}
				w.done[i].Store(n + writersPiece)
			}
		})
	}
}

// progress is how much each has written, the least first.
func (w *manyWriters) progress() (least int64, all []int64) {
	for i := range w.done {
		all = append(all, w.done[i].Load())
	}
	slices.Sort(all)
	return all[0], all
}

// check wants all of it in SOURCE.
func (w *manyWriters) check(t *testing.T) {
	t.Helper()
	for i := range w.done {
		got, err := os.ReadFile(w.s.backing(fmt.Sprint(i)))
		must(t, err)
		if int64(len(got)) != w.done[i].Load() {
			t.Errorf("writer %d: %d bytes, want %d", i, len(got), w.done[i].Load())
		}
		piece := stagedBytes(i, writersPiece)
		for n := 0; n+writersPiece <= len(got); n += writersPiece {
			if where := differ(got[n:n+writersPiece], piece); where != "" {
				t.Errorf("writer %d, from %d: %s", i, n, where)
				break
			}
		}
	}
}

// slowDown returns what limits a process to so many bytes a second that it writes past the page cache to the disk
// of a folder. Where the system has no such limits, the disk is as it is.
func slowDown(t *testing.T, dir string, perSecond int) func(pid int) {
	t.Helper()
	const root = "/sys/fs/cgroup/blkio"
	var st unix.Stat_t
	must(t, unix.Stat(dir, &st))
	group, err := os.MkdirTemp(root, "tunefs-test-")
	if err != nil {
		t.Logf("the disk is not slowed down: %v", err)
		return func(int) {}
	}
	t.Cleanup(func() {
		if err := os.Remove(group); err != nil {
			t.Error(err)
		}
	})
	limit := fmt.Sprintf("%d:%d %d", unix.Major(st.Dev), unix.Minor(st.Dev), perSecond)
	must(t, os.WriteFile(filepath.Join(group, "blkio.throttle.write_bps_device"), []byte(limit), 0))
	return func(pid int) {
		must(t, os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0))
	}
}
