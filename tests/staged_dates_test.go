package tests

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestStagedAppenders: several processes append to one file, each record whole.
func TestStagedAppenders(t *testing.T) {
	eachStager(t, func(t *testing.T, s *stagedSite) {
		s.start("--flush-on=idle", "--stage-size=128k", "--stage-memory=1M", "--flush-after=10ms")
		const processes, records = 4, 300
		var wait sync.WaitGroup
		for p := range processes {
			wait.Go(func() {
				script := fmt.Sprintf(`i=0; while [ $i -lt %d ]; do printf '%%s %%0200d\n' %d $i; i=$((i+1)); done >>"$1"`, records, p)
				if err := quiet(s.program("sh", "-c", script, "sh", s.path("log"))); err != nil {
					t.Error(err)
				}
			})
		}
		wait.Wait()
		s.unmountClean()
		b, err := os.ReadFile(s.backing("log"))
		must(t, err)
		var want []string
		for p := range processes {
			for i := range records {
				want = append(want, fmt.Sprintf("%d %0200d", p, i))
			}
		}
		got := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%d records, want %d, each once and whole", len(got), len(want))
		}
	})
}

// TestStagedAppendOnly writes a file that can only be appended to.
func TestStagedAppendOnly(t *testing.T) {
	s := newStagedSite(t, nil)
	requireRoot(t)
	s.start("--flush-on=idle", "--flush-after=1h")
	must(t, os.WriteFile(s.path("file"), []byte("begin\n"), 0o644))
	must(t, quiet(exec.Command("chattr", "+a", s.path("file"))))
	for i := range 100 {
		must(t, quiet(exec.Command("sh", "-c", fmt.Sprintf("echo line %d >>%s", i, s.path("file")))))
	}
	if err := second(unix.Open(s.path("file"), unix.O_WRONLY, 0)); !errors.Is(err, unix.EPERM) {
		t.Errorf("opening it for writing gives %v", err)
	}
	s.unmountClean()
	want := []byte("begin\n")
	for i := range 100 {
		want = fmt.Appendf(want, "line %d\n", i)
	}
	wantFile(t, s.backing("file"), want)
	must(t, quiet(exec.Command("chattr", "-a", s.backing("file"))))
}

// TestStagedDates: programs that keep the dates of what they copy do so, also once all has left.
func TestStagedDates(t *testing.T) {
	requirePackages(t, "rsync", "tar")
	programs := map[string]string{
		"cp":       `cp -p "$1"/* "$2"`,
		"cp clone": `cp -p --reflink=auto "$1"/* "$2"`,
		"tar":      `tar -C "$1" -cf - . | tar -C "$2" -xpf -`,
		"rsync":    `rsync -t "$1"/* "$2"`,
		"install":  `install -p "$1"/* "$2"`,
		"touch":    `for f in "$1"/*; do cat "$f" >"$2/${f##*/}"; touch -r "$f" "$2/${f##*/}"; done`,
	}
	eachStager(t, func(t *testing.T, s *stagedSite) {
		from := filepath.Join(scratch(t), "from")
		makeDir(t, from, s.user)
		old := time.Unix(1234567890, 123456789)
		for i, n := range []int{0, 1, 5000, 200000, 3<<20 + 1} {
			path := filepath.Join(from, fmt.Sprint(i))
			must(t, os.WriteFile(path, stagedBytes(i, n), 0o644))
			must(t, os.Chtimes(path, old, old.Add(time.Duration(i)*time.Hour)))
		}
		s.start("--flush-on=idle", "--flush-after=300ms", "--blksize=native")
		for name, script := range programs {
			s.must(func() error { return os.Mkdir(s.path(name), 0o755) })
			must(t, quiet(s.program("sh", "-ec", script, "sh", from, s.path(name))))
			sameDates(t, s, name+", at once", from, s.path(name))
		}
		time.Sleep(time.Second) // all has left by now
		for name := range programs {
			sameDates(t, s, name+", later", from, s.path(name))
			sameDates(t, s, name+", in SOURCE", from, s.backing(name))
		}
		s.unmountClean()
		for name := range programs {
			sameDates(t, s, name+", after the unmount", from, s.backing(name))
			must(t, quiet(exec.Command("diff", "-r", from, s.backing(name))))
		}
	})
}

// sameDates wants the files of a folder to have the mtimes of another's.
func sameDates(t *testing.T, s *stagedSite, what, from, to string) {
	t.Helper()
	names, err := filepath.Glob(from + "/*")
	must(t, err)
	for _, name := range names {
		var a, b unix.Stat_t
		must(t, unix.Stat(name, &a))
		must(t, s.do(func() error { return unix.Stat(filepath.Join(to, filepath.Base(name)), &b) }))
		if strings.HasPrefix(what, "rsync") || strings.HasPrefix(what, "tar") {
			a.Mtim.Nsec, b.Mtim.Nsec = 0, 0 // tar's format has no more
		}
		if a.Mtim != b.Mtim || a.Size != b.Size && !strings.Contains(what, "SOURCE") {
			t.Errorf("%s: %s has %v and %d bytes, want %v and %d", what, filepath.Base(name), b.Mtim, b.Size, a.Mtim, a.Size)
		}
	}
}

// TestStagedDropped: what was staged of a file that nobody can read any more never reaches SOURCE.
func TestStagedDropped(t *testing.T) {
	requireRoot(t)
	requirePackages(t, "strace")
	requireTrace(t)
	eachStager(t, func(t *testing.T, s *stagedSite) {
		s.start("--flush-on=close", "--flush-after=2s")
		var st unix.Stat_t
		calls := traceWrites(t, s.pid(), func() {
			s.must(func() error {
				for i := range 20 {
					err := withFile(s.mnt, "file", createNew, func(fd int) error {
						b := make([]byte, 500000)
						err := errors.Join(writeFD(fd, stagedBytes(i, 500000), 0), os.Remove(s.path("file")), pushFD(fd), unix.Fstat(fd, &st), readFD(fd, b, 0))
						if !bytes.Equal(b, stagedBytes(i, 500000)) {
							err = errors.Join(err, errors.New("the unlinked file has other data"))
						}
						return err
					})
					if err != nil {
						return err
					}
				}
				return nil
			})
			time.Sleep(2700 * time.Millisecond) // all that is staged would have left by now
		})
		if len(calls) > 0 {
			t.Errorf("writes reached SOURCE:\n%v", calls)
		}
		s.unmountClean()
	})
}
