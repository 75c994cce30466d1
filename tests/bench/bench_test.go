// Package bench runs tunefs demo and tunefs bench as their users do, and looks at what they leave behind.
package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// limit is how long one command may take here: more than its own two minutes, for a machine that is busy.
const limit = 5 * time.Minute

// ordinaryUser is nobody: without privileges, but in /etc/passwd, where fusermount3 may look for a name.
const ordinaryUser = 65534

// tunefs is a run of the program in a scratch folder of its own.
type tunefs struct {
	*exec.Cmd
	scratch     string
	out, errout bytes.Buffer
}

// newTunefs builds the program and prepares a run of it; args are followed by the flag that names the scratch folder.
// Scratch is on a disk, because tmpfs is too much like a cache.
func newTunefs(t *testing.T, args ...string) *tunefs {
	t.Helper()
	dir, err := os.MkdirTemp(os.Getenv("TUNEFS_TEST_DIR"), "tunefs-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(filepath.Join(dir, "tunefs")); _ = os.RemoveAll(dir) })
	program, scratch := filepath.Join(dir, "tunefs"), filepath.Join(dir, "scratch")
	if out, err := exec.Command("go", "build", "-o", program, "tunefs/cmd/tunefs").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.Mkdir(scratch, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{dir, scratch} {
		if err := os.Chmod(folder, 0o777); err != nil { // whatever the umask
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	run := &tunefs{scratch: scratch}
	run.Cmd = exec.CommandContext(ctx, program, append(args, "--dir="+scratch)...)
	run.Cancel = func() error { return run.Process.Signal(syscall.SIGTERM) } // so that it unmounts
	run.WaitDelay = time.Minute
	run.Stdout, run.Stderr = &run.out, &run.errout
	return run
}

// asOrdinaryUser makes the run one of a user without privileges.
func (run *tunefs) asOrdinaryUser(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	// As the udev rule of Debian's fuse3 does, which a machine without udev lacks.
	if err := os.Chmod("/dev/fuse", 0o666); err != nil {
		t.Fatal(err)
	}
	run.Env = append(os.Environ(), "HOME="+run.scratch)
	run.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinaryUser, Gid: ordinaryUser}}
}

// mustSucceed runs it to its end.
func (run *tunefs) mustSucceed(t *testing.T) {
	t.Helper()
	if err := run.Run(); err != nil {
		t.Fatalf("%v\n%s", err, run.errout.String())
	}
}

// mountsBelow counts the mounts below dir.
func mountsBelow(t *testing.T, dir string) int {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(mounts), " "+dir+"/")
}

// requireNothingLeft fails if the run left mounts or files.
func (run *tunefs) requireNothingLeft(t *testing.T) {
	t.Helper()
	if n := mountsBelow(t, run.scratch); n != 0 {
		t.Errorf("%d mounts are left", n)
	}
	left, err := os.ReadDir(run.scratch)
	if err != nil || len(left) != 0 {
		t.Errorf("left in the scratch folder: %v, %v", left, err)
	}
}

func TestDemo(t *testing.T) {
	for _, user := range []string{"this user", "an ordinary user"} {
		t.Run(user, func(t *testing.T) {
			run := newTunefs(t, "demo", "--runs=1")
			if user == "an ordinary user" {
				run.asOrdinaryUser(t)
			}
			run.mustSucceed(t)
			run.requireNothingLeft(t)
			checkDemo(t, run.out.String())
		})
	}
}

// checkDemo looks for the request sizes that each program is known for.
func checkDemo(t *testing.T, out string) {
	t.Helper()
	for _, want := range []string{
		"getdelim loop, min(st_blksize, 128k): asks for 8k at 8k, 128k at 128k, 128k at 1M",
		"gawk", "Python", "GNU cat", "vs 8k", "in direct mode",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the demo does not show %q:\n%s", want, out)
		}
	}
}

func TestInterrupt(t *testing.T) {
	for _, test := range []struct {
		args   []string
		mounts int // how many there are when the signal comes
	}{
		{[]string{"demo"}, 6},
		{[]string{"bench", "metadata"}, 1},
	} {
		t.Run(test.args[0], func(t *testing.T) {
			run := newTunefs(t, test.args...)
			if err := run.Start(); err != nil {
				t.Fatal(err)
			}
			for begin := time.Now(); mountsBelow(t, run.scratch) < test.mounts && time.Since(begin) < time.Minute; {
				time.Sleep(50 * time.Millisecond)
			}
			time.Sleep(time.Second) // now programs run there
			if err := run.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			err := run.Wait()
			if err == nil || !strings.Contains(run.errout.String(), "interrupted") {
				t.Errorf("ended with %v and said:\n%s", err, run.errout.String())
			}
			run.requireNothingLeft(t)
		})
	}
}

func TestBench(t *testing.T) {
	report := filepath.Join(t.TempDir(), "report.json")
	run := newTunefs(t, "bench", "libc", "--runs=1", "--json="+report)
	run.mustSucceed(t)
	run.requireNothingLeft(t)
	data, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Rows []struct {
			Work, Subject string
			Median        float64
		}
	}
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Rows) < 8 {
		t.Errorf("only %d rows:\n%s", len(got.Rows), data)
	}
	for _, row := range got.Rows {
		if row.Median <= 0 {
			t.Errorf("%s with %s took %v", row.Work, row.Subject, row.Median)
		}
	}
}
