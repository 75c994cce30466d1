package tests

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// setflStep is a step of TestFlagsAfterOpen; its text is compared.
type setflStep func(s *setflRun) string

// setflRun is a file being used, on a plain filesystem or a mount.
type setflRun struct {
	fd  int
	buf []byte // aligned
}

// The steps. on and off switch flags of the open file with fcntl(F_SETFL).

func on(flag int) setflStep  { return func(s *setflRun) string { return s.setfl(flag, flag) } }
func off(flag int) setflStep { return func(s *setflRun) string { return s.setfl(0, flag) } }

func (s *setflRun) setfl(value, mask int) string {
	have, err := unix.FcntlInt(uintptr(s.fd), unix.F_GETFL, 0)
	if err != nil {
		return err.Error()
	}
	_, err = unix.FcntlInt(uintptr(s.fd), unix.F_SETFL, have&^mask|value)
	now, _ := unix.FcntlInt(uintptr(s.fd), unix.F_GETFL, 0)
	return fmt.Sprintf("flags %o %v", now&(unix.O_APPEND|unix.O_DIRECT|unix.O_NOATIME|unix.O_ACCMODE), err)
}

// put is pwrite(2) of n bytes c at off, add is write(2) at the descriptor's position; get is pread(2).
func put(c byte, n int, off int64) setflStep {
	return func(s *setflRun) string {
		got, err := unix.Pwrite(s.fd, s.fill(c, n), off)
		return fmt.Sprintf("pwrite %d %v", got, err)
	}
}

func add(c byte, n int) setflStep {
	return func(s *setflRun) string {
		got, err := unix.Write(s.fd, s.fill(c, n))
		at, _ := unix.Seek(s.fd, 0, unix.SEEK_CUR)
		return fmt.Sprintf("write %d %v, now at %d", got, err, at)
	}
}

func get(n int, off int64) setflStep {
	return func(s *setflRun) string {
		got, err := unix.Pread(s.fd, s.buf[:n], off)
		return fmt.Sprintf("pread %d %v %s", got, err, describe(s.buf[:max(got, 0)], off))
	}
}

func (s *setflRun) fill(c byte, n int) []byte {
	copy(s.buf, bytes.Repeat([]byte{c}, n))
	return s.buf[:n]
}

// appendTwice is two descriptors that append by turns.
func appendTwice(s *setflRun) string {
	other, err := unix.Open(fdPath(s.fd), unix.O_WRONLY|unix.O_APPEND|unix.O_CLOEXEC, 0)
	if err != nil {
		return err.Error()
	}
	defer unix.Close(other)
	var text string
	for range 3 {
		_, err1 := unix.Write(other, []byte("first "))
		_, err2 := unix.Write(s.fd, []byte("second "))
		text += fmt.Sprint(err1, err2)
	}
	return text
}

const setflOddSize = 10007

func setflScripts() map[string]struct {
	flags int
	steps []setflStep
} {
	type script = struct {
		flags int
		steps []setflStep
	}
	const app, dir = unix.O_APPEND, unix.O_DIRECT
	return map[string]script{
		"append":              {app, []setflStep{add('a', 10), put('b', 10, 0), add('c', 5000)}},
		"append off":          {app, []setflStep{add('a', 10), off(app), put('b', 10, 0), add('c', 3), put('d', 3, 4000)}},
		"append on":           {0, []setflStep{put('a', 10, 0), on(app), add('b', 10), put('c', 7, 3)}},
		"append on and off":   {0, []setflStep{on(app), add('a', 9), off(app), put('b', 9, 1), on(app), put('c', 9, 1), off(app), add('d', 9)}},
		"append by turns":     {app, []setflStep{appendTwice, off(app), put('x', 3, 0), on(app), appendTwice}},
		"append, much":        {app, []setflStep{add('a', 300000), add('b', 1<<20), off(app), put('c', 300000, 100)}},
		"direct, odd size":    {dir, []setflStep{get(4096, 0), get(4096, 4096), get(4096, 8192), get(8192, 8192), get(1<<20, 0), get(4096, 12288)}},
		"direct write":        {dir, []setflStep{put('a', 4096, 0), get(4096, 0), put('b', 8192, 8192), get(1<<20, 0)}},
		"direct off":          {dir, []setflStep{put('a', 4096, 0), off(dir), put('b', 100, 17), get(333, 5), put('c', 5, 20000)}},
		"direct on":           {0, []setflStep{put('a', 100, 17), on(dir), get(4096, 0), put('b', 4096, 4096), get(1<<20, 0)}},
		"direct on and off":   {0, []setflStep{on(dir), put('a', 4096, 0), off(dir), put('b', 3, 1), on(dir), get(1<<20, 0), off(dir), get(11, 9999)}},
		"direct append":       {dir | app, []setflStep{off(app), put('a', 4096, 4096), off(dir), on(app), add('b', 10)}},
		"both on":             {0, []setflStep{on(dir | app), off(dir), add('b', 10), off(app), put('c', 10, 0)}},
		"append and truncate": {app, []setflStep{add('a', 10), func(s *setflRun) string { return fmt.Sprint(unix.Ftruncate(s.fd, 5)) }, add('b', 10)}},
	}
}

// TestFlagsAfterOpen: O_APPEND and O_DIRECT that are switched on or off after the open hold from then on, as they do
// on a plain filesystem; files of odd size can be read with O_DIRECT.
func TestFlagsAfterOpen(t *testing.T) {
	plain := scratch(t)
	eachMode(t, func(t *testing.T, mode string) {
		m := mount(t, withMode(mode))
		for name, script := range setflScripts() {
			want := playSetfl(t, plain+"/"+mode+name, script.flags, script.steps)
			got := playSetfl(t, m.Path(name), script.flags, script.steps)
			for i := range want {
				if got[i] != want[i] {
					t.Errorf("%s, step %d:\n got %s\nwant %s", name, i, got[i], want[i])
				}
			}
		}
	})
}

// playSetfl runs a script on a file of odd size, and adds the contents in the end to what it says.
func playSetfl(t *testing.T, path string, flags int, steps []setflStep) []string {
	t.Helper()
	must(t, os.WriteFile(path, []byte(strings.Repeat("=", setflOddSize)), 0o644))
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|flags, 0)
	must(t, err)
	defer unix.Close(fd)
	s := &setflRun{fd: fd, buf: alignedBuffer(2 << 20)}
	var results []string
	for _, step := range steps {
		results = append(results, step(s))
	}
	data, err := os.ReadFile(path)
	must(t, err)
	return append(results, fmt.Sprintf("in the end %d bytes %s", len(data), describe(data, 0)))
}

// alignedBuffer is memory that O_DIRECT takes.
func alignedBuffer(n int) []byte {
	const page = 4096
	buf := make([]byte, n+page)
	return buf[page-int(uintptr(unsafe.Pointer(&buf[0]))%page):][:n] // safe: the garbage collector does not move it
}

// TestOpenNoatime: a program that opens with O_NOATIME does not move the access time in SOURCE.
func TestOpenNoatime(t *testing.T) {
	requireRoot(t)
	eachMode(t, func(t *testing.T, mode string) {
		m := mount(t, withMode(mode))
		must(t, os.WriteFile(m.Backing("file"), []byte("hello"), 0o644))
		before := atimeCase{t: t}.agedAtimes(m, []string{"file"})[0]
		fd, err := unix.Open(m.Path("file"), unix.O_RDONLY|unix.O_NOATIME|unix.O_CLOEXEC, 0)
		must(t, err)
		defer unix.Close(fd)
		must(t, second(unix.Pread(fd, make([]byte, 5), 0)))
		if after := atime(t, m.Backing("file")); after != before {
			t.Errorf("it moved from %v to %v", before, after)
		}
	})
}
