package tests

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// stagedEnd is a way to end a mount that programs write to.
type stagedEnd struct {
	name string
	busy bool // it works while files are open: writers go on until they are stopped
	do   func(s *stagedSite) error
}

func stagedEnds(u *user) []stagedEnd {
	ends := []stagedEnd{
		{"SIGTERM", false, func(s *stagedSite) error { return s.cmd.Process.Signal(unix.SIGTERM) }},
		{"SIGINT", false, func(s *stagedSite) error { return s.cmd.Process.Signal(unix.SIGINT) }},
		{"tunefs umount", false, func(s *stagedSite) error { return quiet(s.program(tunefsBinary(s.t), "umount", s.mnt)) }},
		{"two SIGTERMs", true, func(s *stagedSite) error {
			err := s.cmd.Process.Signal(unix.SIGTERM)
			time.Sleep(300 * time.Millisecond)
			return errors.Join(err, s.cmd.Process.Signal(unix.SIGTERM))
		}},
		{"fusermount3 -uz", true, func(s *stagedSite) error { return quiet(s.program("fusermount3", "-uz", s.mnt)) }},
		{"tunefs umount --lazy", true, func(s *stagedSite) error { return quiet(s.program(tunefsBinary(s.t), "umount", "--lazy", s.mnt)) }},
	}
	if u != nil {
		return append(ends[pickLong(3, 0):pickLong(5, len(ends))], stagedEnd{"fusermount3 -u", false, func(s *stagedSite) error { return quiet(s.program("fusermount3", "-u", s.mnt)) }})
	}
	return append(ends,
		stagedEnd{"umount", false, func(s *stagedSite) error { return quiet(exec.Command("umount", s.mnt)) }},
		stagedEnd{"umount -l", true, func(s *stagedSite) error { return quiet(exec.Command("umount", "-l", s.mnt)) }})
}

// quiet runs a command whose output is its error.
func quiet(cmd *exec.Cmd) error {
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// TestStagedEnds ends mounts in every way, in the middle of much writing: when the daemon is gone, all that was
// written is in SOURCE.
func TestStagedEnds(t *testing.T) {
	requireRoot(t)
	requirePackages(t, "fuse3", "mount")
	ordinary := ordinary()
	for who, u := range map[string]*user{"root": nil, "user": &ordinary} {
		for _, end := range stagedEnds(u) {
			for _, event := range pickLong([]string{"idle"}, []string{"idle", "close"}) {
				for range pickLong(1, 5) {
					t.Run(who+" "+end.name+" "+event, func(t *testing.T) { endStaged(t, newStagedSite(t, u), end, "--flush-on="+event) })
				}
			}
		}
	}
}

func endStaged(t *testing.T, s *stagedSite, end stagedEnd, flag string) {
	s.start(flag, "--stage-size=4M", "--stage-memory=16M")
	writers := make([]*endWriter, 3)
	stop := make(chan struct{})
	var wait sync.WaitGroup
	for i := range writers {
		w := &endWriter{s: s, id: i, data: stagedBytes(i, 5<<20+77), stop: stop}
		writers[i] = w
		wait.Go(func() { w.err = s.do(w.run) })
	}
	stopped := sync.OnceFunc(func() {
		close(stop)
		wait.Wait()
	})
	defer stopped()
	time.Sleep(300 * time.Millisecond)
	if !end.busy {
		stopped()
	}
	must(t, end.do(s))
	time.Sleep(100 * time.Millisecond)
	stopped()
	if err := s.awaitEnd(time.Minute); err != nil {
		t.Errorf("the daemon ended with %v", err)
	}
	total := 0
	for _, w := range writers {
		must(t, w.err)
		total += w.check(t)
	}
	if total < 1<<20 {
		t.Errorf("only %d bytes were written", total)
	}
}

// TestStagedRemount: a mount that follows another's end at once sees all that was written, and what it writes is not
// written over by what the other had left to write.
func TestStagedRemount(t *testing.T) {
	d, s := newFaultyDisk(t)
	s.start("--flush-on=idle", "--flush-after=1h", "--flush-workers=1")
	old, fresh := stagedBytes(1, 3000000), stagedBytes(2, 2000000)
	must(t, os.WriteFile(s.path("file"), old, 0o644))
	for i := range 10 { // which keep it busy
		must(t, os.WriteFile(s.path(fmt.Sprint("other", i)), []byte("x"), 0o644))
	}
	d.set("delay 300ms\n")
	must(t, unmountOnce(s.mnt))
	first := s.done
	s.start()
	select {
	case <-first:
	default:
		t.Error("both daemons are there")
	}
	d.set("")
	wantMounted(t, s, "file", old)
	must(t, os.WriteFile(s.path("file"), fresh, 0o644))
	s.unmountClean()
	<-first
	wantFile(t, filepath.Join(d.under, "file"), fresh)
}

// TestStagedTwice: two staged mounts of one SOURCE would write over each other's data.
func TestStagedTwice(t *testing.T) {
	m := mount(t, withMode("staged"))
	second := filepath.Join(scratch(t), "mnt")
	must(t, os.Mkdir(second, 0o755))
	t.Cleanup(func() { _ = unix.Unmount(second, unix.MNT_DETACH) }) // of a mount that should not be there
	out, err := tryRun(exec.Command(tunefsBinary(t), "mount", "--io=staged", m.Source, second))
	if err == nil || !strings.Contains(out, "can be staged by one mount only") || !strings.Contains(out, m.Dir) {
		t.Errorf("a second mount gives %v and says %q", err, out)
	}
	if left, err := mountsBelow(second); err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
}

// TestStagedSignalsWhileFlushing: once nothing is mounted any more a signal does not end a daemon that still writes; the
// one after that does, and what is lost is said.
func TestStagedSignalsWhileFlushing(t *testing.T) {
	for name, signals := range map[string]int{"one more": 1, "two more": 2} {
		t.Run(name, func(t *testing.T) {
			d, s := newFaultyDisk(t)
			s.start("--flush-on=idle", "--flush-after=1h")
			fd := s.open(s.path("file"), unix.O_RDWR|unix.O_CREAT)
			data := stagedBytes(1, 100001)
			const pieces, distance = 5, 40 << 20
			for i := range int64(pieces) {
				must(t, writeFD(fd, data, i*distance))
			}
			must(t, errors.Join(pushFD(fd), unix.Close(fd)))
			d.set("delay 300ms\n")
			must(t, s.cmd.Process.Signal(unix.SIGTERM))
			eventually(t, "nothing is mounted", func() bool { return len(s.mounts()) == 0 })
			for range signals {
				time.Sleep(200 * time.Millisecond)
				must(t, s.cmd.Process.Signal(unix.SIGTERM))
			}
			err := s.awaitEnd(time.Minute)
			if signals == 2 {
				if err == nil || !strings.Contains(s.text(), "level=ERROR") {
					t.Errorf("it ended with %v, and has logged\n%s", err, s.text())
				}
				return
			}
			if err != nil {
				t.Errorf("it ended with %v", err)
			}
			want := make([]byte, (pieces-1)*distance+len(data))
			for i := range pieces {
				copy(want[i*distance:], data)
			}
			wantFile(t, filepath.Join(d.under, "file"), want)
		})
	}
}

// endWriter writes files of some length one after the other, and remembers what the system has taken of each.
type endWriter struct {
	s     *stagedSite
	id    int
	data  []byte // of each file
	stop  chan struct{}
	sizes []int // of the files
	err   error
}

func (w *endWriter) name(n int) string { return fmt.Sprintf("%d-%d", w.id, n) }

// run ends when it is told to, or when the mount is not there any more at an open.
func (w *endWriter) run() error {
	for n := 0; ; n++ {
		fd, err := unix.Open(w.s.path(w.name(n)), unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o644)
		if err != nil {
			return fmt.Errorf("file %d: %w", n, err)
		}
		if !onFuse(fd) { // the empty folder below the mount
			return errors.Join(os.Remove(w.s.path(w.name(n))), unix.Close(fd))
		}
		w.sizes = append(w.sizes, 0)
		more, err := w.fill(fd)
		if err := errors.Join(err, unix.Close(fd)); err != nil || !more {
			return err
		}
	}
}

// fill writes a file, and reports whether it got to its end.
func (w *endWriter) fill(fd int) (bool, error) {
	const step = 24 << 10
	for off := 0; off < len(w.data); off += step {
		select {
		case <-w.stop:
			return false, nil
		default:
		}
		part := w.data[off:min(off+step, len(w.data))]
		if err := writeFD(fd, part, int64(off)); err != nil {
			return false, err
		}
		w.sizes[len(w.sizes)-1] += len(part)
	}
	return true, nil
}

func onFuse(fd int) bool {
	var sfs unix.Statfs_t
	return unix.Fstatfs(fd, &sfs) == nil && sfs.Type == unix.FUSE_SUPER_MAGIC
}

// check wants all of it in SOURCE, and reports how much that is.
func (w *endWriter) check(t *testing.T) (total int) {
	t.Helper()
	for n, size := range w.sizes {
		wantFile(t, w.s.backing(w.name(n)), w.data[:size])
		total += size
	}
	if found, err := filepath.Glob(w.s.path("*")); err != nil || len(found) > 0 {
		t.Errorf("below the mountpoint lie %v, %v", found, err)
	}
	return total
}
