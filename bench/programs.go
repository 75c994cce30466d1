package bench

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// Program is a program that reads a file from beginning to end.
type Program struct {
	Name    string // with its version, where it has one
	Command func(file string) Command
}

// nullDevice takes what programs write: what is measured is reading.
const nullDevice = "/dev/null"

// plainLocale makes programs take bytes as they are, so that nothing but buffers differs.
var plainLocale = []string{"LC_ALL=C"}

// pythonCopy copies the file that is its argument to standard output, line by line.
const pythonCopy = `import sys
with open(sys.argv[1], "rb") as lines:
    sys.stdout.buffer.writelines(lines)`

// FindPrograms returns programs whose buffers differ: a getdelim/fwrite loop in C with the C library's own buffer and
// with min(st_blksize, 128 KiB), cat, gawk and Python. It compiles the loop into dir, which must be absolute. Programs
// that this machine lacks are left out, and missing says which.
func FindPrograms(ctx context.Context, dir string) (found []Program, missing error) {
	var problems []error
	loop, err := Compile(ctx, "loop", dir)
	if err == nil {
		found = append(found, loopPrograms(ctx, loop)...)
	}
	problems = append(problems, err)
	for _, find := range []func(context.Context) (Program, error){findCat, findGawk, findPython} {
		program, err := find(ctx)
		if err == nil {
			found = append(found, program)
		}
		problems = append(problems, err)
	}
	return found, errors.Join(problems...)
}

// loopPrograms are the two ways to run the compiled loop.
func loopPrograms(ctx context.Context, loop string) []Program {
	libc := "libc"
	if version, err := Output(ctx, Command{Argv: []string{"getconf", "GNU_LIBC_VERSION"}}); err == nil {
		libc = strings.TrimSpace(string(version))
	}
	with := func(buffer string) func(string) Command {
		return func(file string) Command { return Command{Argv: []string{loop, file, nullDevice, buffer}} }
	}
	return []Program{
		{Name: "getdelim loop, " + libc + "'s own buffer", Command: with("own")},
		{Name: "getdelim loop, min(st_blksize, 128k)", Command: with("stat")},
	}
}

func findCat(ctx context.Context) (Program, error) {
	path, version, err := findVersion(ctx, "cat")
	return Program{Name: version, Command: func(file string) Command {
		return Command{Argv: []string{path, file}}
	}}, err
}

func findGawk(ctx context.Context) (Program, error) {
	path, version, err := findVersion(ctx, "gawk")
	return Program{Name: version, Command: func(file string) Command {
		return Command{Argv: []string{path, "{ print }", file}, Env: plainLocale}
	}}, err
}

func findPython(ctx context.Context) (Program, error) {
	path, version, err := findVersion(ctx, "python3")
	if err != nil {
		return Program{}, err
	}
	// Version managers put a script in the way that takes longer than what is measured.
	real, err := Output(ctx, Command{Argv: []string{path, "-c", "import sys; print(sys.executable)"}})
	if interpreter := strings.TrimSpace(string(real)); filepath.IsAbs(interpreter) {
		path = interpreter
	}
	return Program{Name: version, Command: func(file string) Command {
		return Command{Argv: []string{path, "-I", "-S", "-c", pythonCopy, file}, Env: plainLocale}
	}}, err
}

// findVersion finds a program in PATH and what to call it.
func findVersion(ctx context.Context, name string) (path, version string, err error) {
	path, err = exec.LookPath(name)
	if err != nil {
		return "", "", err
	}
	says, err := Output(ctx, Command{Argv: []string{path, "--version"}, Env: plainLocale})
	return path, programName(name, string(says)), err
}

var versionNumber = regexp.MustCompile(`\d+\.\d+(\.\d+)*`)

// programName makes "GNU cat 9.1" of the name cat and of what cat --version says.
func programName(name, says string) string {
	firstLine, _, _ := strings.Cut(says, "\n")
	if name == "python3" {
		name = "Python"
	}
	if strings.Contains(firstLine, "GNU coreutils") {
		name = "GNU " + name
	}
	if number := versionNumber.FindString(firstLine); number != "" {
		name += " " + number
	}
	return name
}
