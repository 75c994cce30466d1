package tests

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestStagedExtents writes files from their beginning to their end in pieces of many sizes, and watches the
// daemon's system calls: nearly all must leave it large, and aligned in the file and in memory.
func TestStagedExtents(t *testing.T) {
	requireRoot(t)
	requirePackages(t, "strace")
	requireTrace(t)
	sizes := pickLong([]int{100, 8 << 10, 65537, 4 << 20}, []int{1, 7, 100, 4095, 4096, 8 << 10, 65537, 1 << 20, 1<<20 + 1, 4 << 20})
	eachStager(t, func(t *testing.T, s *stagedSite) {
		s.start()
		if s.user != nil {
			sizes = pickLong(sizes[1:2], sizes)
		}
		for _, size := range sizes {
			for _, header := range []int{0, 4097 + 16} {
				name := fmt.Sprintf("%d-%d", size, header)
				total := header + pickLong(64, 200)<<20 + 333
				if size < 100 {
					total = header + 20<<20 // the system calls take long enough
				}
				t.Run(name, func(t *testing.T) { traceWriter(t, s, name, header, size, total) })
			}
		}
		s.unmountClean()
	})
}

// requireTrace skips a test where processes cannot be traced.
func requireTrace(t *testing.T) {
	t.Helper()
	if out, err := exec.Command("strace", "-o", "/dev/null", "true").CombinedOutput(); err != nil {
		t.Skipf("strace cannot trace here: %v: %s", err, out)
	}
}

// traceWriter writes a header, and then pieces of size bytes up to total.
func traceWriter(t *testing.T, s *stagedSite, name string, header, size, total int) {
	data := stagedBytes(size+header, total)
	calls := traceWrites(t, s.pid(), func() {
		must(t, s.do(func() error {
			fd, err := unix.Open(s.path(name), unix.O_WRONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o644)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			for off, n := 0, header; off < total; off, n = off+n, size {
				if err := writeFD(fd, data[off:min(off+n, total)], int64(off)); err != nil {
					return err
				}
			}
			return unix.Fsync(fd)
		}))
	})
	wantFile(t, s.backing(name), data)
	good, all := 0, 0
	align := directAlign(t, s.backing(name))
	for _, c := range calls {
		all += c.size
		if c.size >= 1<<20 && c.size%align == 0 && c.off%align == 0 && c.address%4096 == 0 {
			good += c.size
		}
	}
	t.Logf("%d calls for %d bytes, %d of them in extents of 4 MiB and more", len(calls), all, inExtents(calls, 4<<20))
	if all < total || all > total+total/20 {
		t.Errorf("%d bytes were written for %d", all, total)
	}
	if good < total/20*19 {
		t.Errorf("%d of %d bytes left in extents of 1 MiB and more, aligned to %d; all of them:\n%v", good, total, align, calls)
	}
}

// inExtents is how many bytes were written in calls of so many and more.
func inExtents(calls []writeCall, least int) (n int) {
	for _, c := range calls {
		if c.size >= least {
			n += c.size
		}
	}
	return n
}

// directAlign is what direct writes of a file have to be multiples of, at least a page.
func directAlign(t *testing.T, path string) int {
	t.Helper()
	var st unix.Statx_t
	must(t, unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_DIOALIGN, &st))
	return max(int(st.Dio_offset_align), 4096)
}

// writeCall is one pwrite64(2) of a daemon.
type writeCall struct{ address, size, off int }

func (c writeCall) String() string {
	return fmt.Sprintf("%d at %d from %#x\n", c.size, c.off, c.address)
}

// traceWrites lists the calls with which process pid writes to files while f runs.
func traceWrites(t *testing.T, pid int, f func()) []writeCall {
	t.Helper()
	const marker = "attached"
	dir := scratch(t)
	cmd := exec.Command("strace", "-f", "-ff", "-e", "trace=pwrite64,pwritev,pwritev2,io_submit,io_uring_enter,copy_file_range", "-e", "raw=all",
		"-e", "signal=none", "-o", filepath.Join(dir, "calls"), "-p", strconv.Itoa(pid))
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out := &waitedFor{text: marker, seen: make(chan struct{})}
	cmd.Stderr = out
	must(t, cmd.Start())
	select {
	case <-out.seen:
	case <-time.After(20 * time.Second):
		_ = cmd.Process.Kill()
		t.Fatal("strace does not attach")
	}
	time.Sleep(100 * time.Millisecond) // for the other threads
	f()
	must(t, cmd.Process.Signal(unix.SIGINT))
	_ = cmd.Wait() // ended by our signal
	return parseCalls(t, dir)
}

var pwriteLine = regexp.MustCompile(`^pwrite64\((0x[0-9a-f]+|0), (0x[0-9a-f]+), (0x[0-9a-f]+|0), (0x[0-9a-f]+|0)\)`)

// parseCalls reads strace's files, one for each thread.
func parseCalls(t *testing.T, dir string) (calls []writeCall) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "calls.*"))
	must(t, err)
	for _, name := range names {
		f, err := os.Open(name)
		must(t, err)
		for lines := bufio.NewScanner(f); lines.Scan(); {
			line := lines.Text()
			if m := pwriteLine.FindStringSubmatch(line); m != nil {
				calls = append(calls, writeCall{hex(t, m[2]), hex(t, m[3]), hex(t, m[4])})
			} else if !strings.HasPrefix(line, "+++") && !strings.HasPrefix(line, "---") {
				t.Errorf("strace says %s", line)
			}
		}
		f.Close()
	}
	return calls
}

func hex(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.ParseInt(s, 0, 64)
	must(t, err)
	return int(n)
}
