package tests

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// goPackages are the parts of Go's standard library whose tests exercise a filesystem.
func goPackages() []string { return []string{"os", "io/fs", "path/filepath"} }

// goDifferences are the tests that must fail on a FUSE mount and pass on a disk filesystem, each with the
// reason that this is not for tunefs to change.
func goDifferences() map[string]string {
	return map[string]string{
		"os TestNonpollableDeadline": "epoll accepts every FUSE file, since the kernel's fuse_file_operations have a poll method",
	}
}

// TestGoStandardLibrary runs the standard library's own tests with TMPDIR on the mount, as root and as an
// ordinary user. Each test must end as it does natively.
func TestGoStandardLibrary(t *testing.T) {
	tests := buildGoTests(t)
	people := map[string]*user{"ordinary": unprivileged()}
	if os.Geteuid() == 0 {
		people["root"] = nil
	}
	for who, u := range people {
		t.Run(who, func(t *testing.T) {
			native := scratch(t)
			if u != nil {
				native = filepath.Join(native, "own")
				makeDir(t, native, u)
			}
			cache := filepath.Join(scratch(t), "cache")
			makeDir(t, cache, u)
			want := tests.run(t, u, native, cache)
			eachMode(t, func(t *testing.T, mode string) {
				compareGoTests(t, want, tests.run(t, u, mountFor(t, u, mode).Dir, cache))
			})
		})
	}
}

// goTests are compiled tests of the standard library.
type goTests struct {
	root      string            // GOROOT
	binaries  map[string]string // by package
	converter string            // test2json; "go tool" would link it anew at each use
}

func buildGoTests(t *testing.T) goTests {
	t.Helper()
	dir := scratch(t)
	g := goTests{
		root:      strings.TrimSpace(run(t, exec.Command("go", "env", "GOROOT"))),
		binaries:  map[string]string{},
		converter: filepath.Join(dir, "test2json"),
	}
	run(t, exec.Command("go", "build", "-o", g.converter, "cmd/test2json"))
	for _, pkg := range goPackages() {
		g.binaries[pkg] = filepath.Join(dir, path.Base(pkg)+".test")
		run(t, exec.Command("go", "test", "-c", "-o", g.binaries[pkg], pkg))
	}
	return g
}

// goResult is how a test ended, "pass", "fail" or "skip", and what it printed.
type goResult struct{ action, output string }

// run runs all tests as u with TMPDIR=dir and gives their results by "package test". One of them builds a
// program; cache, off the mount, keeps what the first run has compiled for it.
func (g goTests) run(t *testing.T, u *user, dir, cache string) map[string]goResult {
	t.Helper()
	results := map[string]goResult{}
	for _, pkg := range goPackages() {
		cmd := program(u, g.binaries[pkg], append([]string{"-test.v=test2json"}, goTestSelection()...)...)
		cmd.Dir = filepath.Join(g.root, "src", pkg)
		cmd.Env = append(os.Environ(), "TMPDIR="+dir, "HOME="+dir, "GOCACHE="+cache)
		out, err := tryRun(cmd)
		var failed *exec.ExitError
		if err != nil && !errors.As(err, &failed) {
			t.Fatal(err)
		}
		g.parse(t, pkg, out, results)
	}
	return results
}

// goTestSelection leaves most of the 2,600 ways to name an object by os.Root to soak runs.
func goTestSelection() []string {
	return sized([]string{"-test.short", "-test.skip=^TestRootMulti/(^|_to_)(dp|pr|sr|bs?S)"}, nil)
}

// parse adds the results in the output of a test binary to results.
func (g goTests) parse(t *testing.T, pkg, output string, results map[string]goResult) {
	t.Helper()
	cmd := exec.Command(g.converter)
	cmd.Stdin = strings.NewReader(output)
	events := json.NewDecoder(strings.NewReader(run(t, cmd)))
	for {
		var e struct{ Action, Test, Output string }
		err := events.Decode(&e)
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		name := pkg + " " + e.Test // the package itself has no Test
		r := results[name]
		r.output += e.Output
		if e.Action == "pass" || e.Action == "fail" || e.Action == "skip" {
			r.action = e.Action
		}
		results[name] = r
	}
}

// compareGoTests wants the same results, but for goDifferences, and what these do to a package's own result.
func compareGoTests(t *testing.T, want, got map[string]goResult) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if strings.HasSuffix(name, " ") {
			continue
		}
		expected := want[name].action
		if _, differs := goDifferences()[name]; differs {
			expected = "fail"
		}
		if got[name].action != expected {
			t.Errorf("%s: %q, want %q, natively %q\n%s", name, got[name].action, expected, want[name].action, tail(got[name].output, 4<<10))
		}
	}
	for name := range got {
		if _, known := want[name]; !known {
			t.Errorf("%s ran on the mount only", name)
		}
	}
	if len(want) < 100 {
		t.Errorf("only %d tests ran: %v", len(want), slices.Sorted(maps.Keys(want)))
	}
}
