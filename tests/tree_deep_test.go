package tests

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestDeeperThanPathMax: folders lie so deep that no path leads there, only steps. All goes on working, also once the
// daemon has closed its descriptors on the way.
func TestDeeperThanPathMax(t *testing.T) {
	requireRoot(t)
	requirePackages(t, "findutils")
	for _, mode := range pickLong([]string{"cached"}, modes()) {
		t.Run(mode, func(t *testing.T) {
			if mode == "passthrough" {
				requirePassthrough(t)
			}
			withDescriptors(t, 128, "--io="+mode, "--attr-timeout=0s", "--entry-timeout=0s")
			m := mount(t)
			others := newCrowd(m, 100)
			depth := pickLong(300, 3000)
			must(t, as(superuser(), 0o022, func() error { return deepTree(m.Dir, depth, others) }))
			for _, command := range [][]string{{"find", m.Dir, "-type", "d", "-ls"}, {"rm", "-r", m.Dir + "/" + deepName(0)}} {
				out, err := superuser().command(command[0], command[1:]...).CombinedOutput()
				if err != nil {
					t.Errorf("%v: %v: %s", command, err, tail(string(out), 500))
				}
				if n := strings.Count(string(out), deepName(0)); command[0] == "find" && n < depth {
					t.Errorf("find shows %d of %d folders", n, depth)
				}
			}
			if left, err := os.ReadDir(m.Dir); err != nil || len(left) != len(others.names) {
				t.Errorf("%d entries are left, %v", len(left), err)
			}
		})
	}
}

func deepName(n int) string { return fmt.Sprintf("%s%04d", strings.Repeat("deep-name-", 5)[:46], n) }

// deepTree goes down from dir, by steps of 50 bytes, and does everything at the bottom, twice: with the daemon fresh
// from the way, and after it has been busy elsewhere.
func deepTree(dir string, depth int, others *crowd) error {
	if err := unix.Chdir(dir); err != nil {
		return err
	}
	for n := range depth {
		if err := errors.Join(unix.Mkdir(deepName(n), 0o755), unix.Chdir(deepName(n))); err != nil {
			return fmt.Errorf("at depth %d: %w", n, err)
		}
	}
	if _, err := unix.Getcwd(make([]byte, unix.PathMax)); !errors.Is(err, unix.ENAMETOOLONG) && !errors.Is(err, unix.ERANGE) {
		return fmt.Errorf("not deep enough: getcwd gives %w", err)
	}
	if err := deepWork(func() {}); err != nil {
		return err
	}
	return deepWork(others.evict)
}

// deepWork does everything in the working directory; between the steps others have the daemon's attention.
func deepWork(others func()) error {
	data := strings.Repeat("deep data ", 1000)
	steps := []struct {
		name string
		do   func() error
	}{
		{"create", func() error { return os.WriteFile("file", []byte(data), 0o644) }},
		{"stat", func() error { return statSize("file", int64(len(data))) }},
		{"read", func() error { return readsAs("file", data) }},
		{"truncate", func() error { return unix.Truncate("file", 4) }},
		{"stat after truncate", func() error { return statSize("file", 4) }},
		{"chmod", func() error { return unix.Chmod("file", 0o600) }},
		{"chown", func() error { return unix.Chown("file", 1, 1) }},
		{"setxattr", func() error { return unix.Setxattr("file", "user.x", []byte("y"), 0) }},
		{"getxattr", func() error { return second(unix.Getxattr("file", "user.x", nil)) }},
		{"rename", func() error { return unix.Rename("file", "renamed") }},
		{"link", func() error { return unix.Link("renamed", "linked") }},
		{"symlink", func() error { return unix.Symlink("renamed", "symbolic") }},
		{"read through the symlink", func() error { return readsAs("symbolic", data[:4]) }},
		{"mkdir", func() error { return unix.Mkdir("folder", 0o700) }},
		{"rename into the folder", func() error { return unix.Rename("linked", "folder/linked") }},
		{"rename the folder up", func() error { return unix.Rename("folder", "../folder") }},
		{"read up there", func() error { return readsAs("../folder/linked", data[:4]) }},
		{"list", func() error { return lists(".", "renamed", "symbolic") }},
		{"remove", func() error {
			return errors.Join(unix.Unlink("renamed"), unix.Unlink("symbolic"), unix.Unlink("../folder/linked"), unix.Rmdir("../folder"))
		}},
		{"list what is left", func() error { return lists(".") }},
	}
	for _, s := range steps {
		others()
		if err := s.do(); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

func statSize(path string, size int64) error {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return err
	}
	if st.Size != size {
		return fmt.Errorf("%s has %d bytes, not %d", path, st.Size, size)
	}
	return nil
}

func readsAs(path, want string) error {
	got, err := os.ReadFile(path)
	if err == nil && string(got) != want {
		err = fmt.Errorf("%s reads %q", path, tail(string(got), 100))
	}
	return err
}

func lists(dir string, want ...string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		return fmt.Errorf("%s lists %q", dir, got)
	}
	return nil
}
