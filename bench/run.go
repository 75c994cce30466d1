package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Command is a program to run.
type Command struct {
	Argv   []string  // the program, found in PATH if it has no slash, and its arguments
	Env    []string  // KEY=VALUE, added to this process's environment
	Stdout io.Writer // nil is /dev/null itself, not a pipe
}

// Run is one finished run of a command.
type Run struct {
	Command
	Wall, User, Sys time.Duration
	Exit            int // the exit status; -1 if a signal ended it
}

// killDelay is how long a killed program's pipes may stay open before its run is given up.
const killDelay = 5 * time.Second

// Exec runs c to its end, with an empty standard input. A program that does not exit with 0 is an error that carries
// the end of what it said on standard error; the Run is then filled as far as it went. Cancelling ctx kills the
// program, and the error is ctx's.
func Exec(ctx context.Context, c Command) (Run, error) {
	run := Run{Command: c, Exit: -1}
	var complaint bytes.Buffer
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	cmd.Env = append(os.Environ(), c.Env...)
	cmd.Stdout = c.Stdout
	cmd.Stderr = &complaint
	cmd.WaitDelay = killDelay

	start := time.Now()
	err := cmd.Run()
	run.Wall = time.Since(start)
	if state := cmd.ProcessState; state != nil {
		run.User, run.Sys, run.Exit = state.UserTime(), state.SystemTime(), state.ExitCode()
	}
	switch {
	case err == nil:
		return run, nil
	case ctx.Err() != nil:
		return run, ctx.Err()
	}
	return run, errors.Join(fmt.Errorf("%s: %w", strings.Join(c.Argv, " "), err), lastLines(complaint.Bytes()))
}

// Output runs c and returns what it wrote to standard output.
func Output(ctx context.Context, c Command) ([]byte, error) {
	var out bytes.Buffer
	c.Stdout = &out
	_, err := Exec(ctx, c)
	return out.Bytes(), err
}

// lastLines makes an error of the last lines of a program's complaint, nil if it made none.
func lastLines(complaint []byte) error {
	const most = 5
	text := strings.TrimSpace(string(complaint))
	if text == "" {
		return nil
	}
	lines := strings.Split(text, "\n")
	return errors.New(strings.Join(lines[max(0, len(lines)-most):], "\n"))
}
