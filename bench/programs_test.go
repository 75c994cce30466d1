package bench

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestProgramName(t *testing.T) {
	for _, test := range []struct{ name, says, want string }{
		{"cat", "cat (GNU coreutils) 9.1\nCopyright", "GNU cat 9.1"},
		{"cat", "cat (uutils coreutils) 0.2.2", "cat 0.2.2"},
		{"gawk", "GNU Awk 5.2.1, API 3.2, PMA Avon 8-g1, (GNU MPFR 4.2.0, GNU MP 6.2.1)", "gawk 5.2.1"},
		{"python3", "Python 3.11.2", "Python 3.11.2"},
		{"cat", "", "cat"},
	} {
		if got := programName(test.name, test.says); got != test.want {
			t.Errorf("programName(%q, %q) = %q, want %q", test.name, test.says, got, test.want)
		}
	}
}

// requireCompiler skips where there is no C compiler, as on a machine where only Go is installed.
func requireCompiler(t *testing.T) {
	t.Helper()
	if _, err := FindCompiler(); err != nil {
		t.Skip(err)
	}
}

func TestProgramsCopy(t *testing.T) {
	requireCompiler(t)
	programs, missing := FindPrograms(t.Context(), t.TempDir())
	if missing != nil {
		t.Logf("not tested: %v", missing)
	}
	for _, program := range programs {
		if _, err := Exec(t.Context(), program.Command("c/loop.c")); err != nil {
			t.Errorf("%s: %v", program.Name, err)
		}
		if _, err := Exec(t.Context(), program.Command("/no/such/file")); err == nil {
			t.Errorf("%s: no complaint about a file that isn't there", program.Name)
		}
	}
}

func TestLoopCopiesExactly(t *testing.T) {
	requireCompiler(t)
	dir := t.TempDir()
	loop, err := Compile(t.Context(), "loop", dir)
	if err != nil {
		t.Fatal(err)
	}
	want := "first\n\nno newline at the end, and a NUL\x00"
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	if err := os.WriteFile(in, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, buffer := range []string{"own", "stat", "1", "131072"} {
		if _, err := Exec(t.Context(), Command{Argv: []string{loop, in, out, buffer}}); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(out); err != nil || string(got) != want {
			t.Errorf("buffer %s: copied %q, %v", buffer, got, err)
		}
	}
	for _, args := range [][]string{{in}, {in, out, "none"}, {in, "/dev/full"}} {
		if _, err := Exec(t.Context(), Command{Argv: append([]string{loop}, args...)}); err == nil {
			t.Errorf("loop %v: no error", args)
		}
	}
}

func TestSmallPrograms(t *testing.T) {
	requireCompiler(t)
	dir := t.TempDir()
	for _, test := range []struct {
		program string
		args    []string
	}{
		{"report", []string{filepath.Join(dir, "report.txt"), "100", "8192"}},
		{"churn", []string{dir, "5000"}},
	} {
		program, err := Compile(t.Context(), test.program, dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Exec(t.Context(), Command{Argv: append([]string{program}, test.args...)}); err != nil {
			t.Error(err)
		}
		if _, err := Exec(t.Context(), Command{Argv: []string{program}}); err == nil {
			t.Errorf("%s without arguments: no error", test.program)
		}
	}
	report, err := os.ReadFile(filepath.Join(dir, "report.txt"))
	if err != nil || strings.Count(string(report), "\n") != 100 {
		t.Errorf("the report has %d lines, %v", strings.Count(string(report), "\n"), err)
	}
}

func TestNoCompiler(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("CC", "")
	if _, err := Compile(t.Context(), "loop", t.TempDir()); !errors.Is(err, ErrNoCompiler) {
		t.Errorf("error %v", err)
	}
	found, missing := FindPrograms(t.Context(), t.TempDir())
	if len(found) != 0 || !errors.Is(missing, exec.ErrNotFound) || !errors.Is(missing, ErrNoCompiler) {
		t.Errorf("found %v, missing %v", found, missing)
	}
}
