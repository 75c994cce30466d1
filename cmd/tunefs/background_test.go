package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// childSays starts a shell in the child's place and awaits its report.
func childSays(t *testing.T, script string) (report, error) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	child := exec.Command("sh", "-c", script)
	child.ExtraFiles = []*os.File{w}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return awaitReport(r, child)
}

func TestAwaitReport(t *testing.T) {
	for _, tc := range []struct{ script, notice, fault string }{
		{`echo '{}' >&3`, "", ""},
		{`echo '{"Notice":"slow"}' >&3; sleep 1`, "slow", ""},
		{`echo '{"Error":"no such thing"}' >&3; exit 1`, "", "no such thing"},
		{`exit 3`, "", "died before it had mounted anything: exit status 3"},
		{`kill -9 $$`, "", "died before it had mounted anything: signal: killed"},
		{`exit 0`, "", "died before it had mounted anything: exit status 0"},
		{`printf '{"Err' >&3; exit 2`, "", "exit status 2"},
	} {
		rep, err := childSays(t, tc.script)
		wantFault(t, tc.script, err, tc.fault)
		if rep.Notice != tc.notice {
			t.Errorf("%s: notice %q", tc.script, rep.Notice)
		}
	}
}

func TestAnswers(t *testing.T) {
	wantFault(t, "not FUSE", answers(t.TempDir()), "somebody has unmounted it")
	wantFault(t, "nothing", answers("/nonexistent"), "does not answer")
}

func TestNotice(t *testing.T) {
	if got := notice(&fakeMount{}); got != "auto uses cached, not passthrough: it is a fake" {
		t.Errorf("got %q", got)
	}
}

// The whole way of a fault: found by the child, told by the parent.
func TestDaemonReportsFaults(t *testing.T) {
	e, _, errw := testEnv(nil)
	if code := run([]string{"tunefs", "mount", "/nonexistent", t.TempDir()}, e); code != exitFailure {
		t.Errorf("exit %d", code)
	}
	if got := errw.String(); strings.Count(got, "\n") != 1 || !strings.HasPrefix(got, "tunefs mount: SOURCE /nonexistent does not exist") {
		t.Errorf("said %q", got)
	}
}
