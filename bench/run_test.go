package bench

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestExec(t *testing.T) {
	run, err := Exec(t.Context(), Command{Argv: []string{"sh", "-c", `test "$COLOUR" = green`}, Env: []string{"COLOUR=green"}})
	if err != nil || run.Exit != 0 || run.Wall <= 0 {
		t.Errorf("Exec = %+v, %v", run, err)
	}
	out, err := Output(t.Context(), Command{Argv: []string{"echo", "hello"}})
	if err != nil || string(out) != "hello\n" {
		t.Errorf("Output = %q, %v", out, err)
	}
}

func TestExecFailure(t *testing.T) {
	run, err := Exec(t.Context(), Command{Argv: []string{"sh", "-c", "echo no luck >&2; exit 3"}})
	if err == nil || !strings.Contains(err.Error(), "no luck") || run.Exit != 3 {
		t.Errorf("Exec = exit %d, %v; want 3 and an error that says why", run.Exit, err)
	}
	if _, err := Exec(t.Context(), Command{Argv: []string{"/no/such/program"}}); err == nil {
		t.Error("a program that is not there ran")
	}
}

func TestExecCancelled(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err := Exec(ctx, Command{Argv: []string{"sleep", "60"}})
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) > killDelay {
		t.Errorf("error %v after %v", err, time.Since(begin))
	}
}
