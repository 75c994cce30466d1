package tests

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// occupy has a process of the place's user read a file on the mount, and returns it and a function
// that has it go on.
func (p *cliPlace) occupy() (holder *process, release func()) {
	p.t.Helper()
	p.write("held")
	cmd := exec.Command("sh", "-c", "exec 3<"+filepath.Join(p.mnt, "held")+"; echo; read line; read line <&3; echo \"$line\"")
	if p.user != nil {
		cmd.SysProcAttr = p.user.command("sh").SysProcAttr
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	ready := make([]byte, 1)
	if _, err := out.Read(ready); err != nil {
		p.t.Fatal(err)
	}
	holder = watchProcess(p.t, cmd.Process.Pid)
	return holder, func() {
		p.t.Helper()
		if _, err := in.Write([]byte("\n")); err != nil {
			p.t.Error(err)
		}
		rest := make([]byte, 100)
		if n, err := out.Read(rest); err != nil || string(rest[:n]) != "held\n" {
			p.t.Errorf("the holder has read %q, %v", rest[:n], err)
		}
		if err := cmd.Wait(); err != nil {
			p.t.Error(err)
		}
	}
}

func TestCLIUmountOfABusyMount(t *testing.T) {
	eachUser(t, func(t *testing.T, u *user) {
		p := newPlace(t, u)
		p.mountQuietly()
		daemon := p.daemon()
		holder, release := p.occupy()
		p.wantFault(p.tunefs("umount", p.mnt), 1, fmt.Sprintf("is in use by pid %d (sh: open file %s/held)", holder.pid, p.mnt))
		if len(p.mounts()) != 1 {
			t.Fatal("it is unmounted")
		}
		p.wantOK(p.tunefs("umount", "--lazy", p.mnt))
		if m := p.mounts(); len(m) > 0 {
			t.Errorf("mounts: %v", m)
		}
		if daemon.ended(0) {
			t.Error("the daemon has left its last user alone")
		}
		release()
		if !daemon.ended(10 * time.Second) {
			t.Error("the daemon outlives its last user")
		}
	})
}

// A signal unmounts.
func TestCLISignalUnmounts(t *testing.T) {
	eachUser(t, func(t *testing.T, u *user) {
		for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGINT} {
			p := newPlace(t, u)
			p.mountQuietly()
			daemon := p.daemon()
			daemon.signal(unix.SIGHUP) // means nothing
			daemon.signal(sig)
			if !daemon.ended(10*time.Second) || len(p.mounts()) > 0 {
				t.Errorf("%v: mounts: %v", sig, p.mounts())
			}
		}
	})
}

// The first signal names who holds a busy mount, which stays; the second detaches it, and it is served
// until its last user has gone. In the foreground, to see the exit status.
func TestCLISignalsOnABusyMount(t *testing.T) {
	eachUser(t, func(t *testing.T, u *user) {
		p := newPlace(t, u)
		logName := filepath.Join(p.dir, "stderr")
		log, err := os.Create(logName)
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		cmd := exec.Command(tunefsBinary(t), "mount", "--foreground", "--io=cached", p.src, p.mnt)
		cmd.Stderr = log
		if u != nil {
			cmd.SysProcAttr = u.command("").SysProcAttr
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		daemon := watchProcess(t, cmd.Process.Pid)
		defer func() {
			if t.Failed() {
				b, err := os.ReadFile(logName)
				t.Logf("the log: %s%v", b, err)
			}
		}()
		logged := func(says string) func() bool {
			return func() bool {
				b, err := os.ReadFile(logName)
				return err == nil && strings.Contains(string(b), says)
			}
		}
		eventually(t, "it is mounted", logged("msg=mounted"))
		holder, release := p.occupy()

		daemon.signal(unix.SIGTERM)
		eventually(t, "the holder is named", logged(fmt.Sprintf("pid %d (sh: open file %s/held)", holder.pid, p.mnt)))
		if len(p.mounts()) != 1 {
			t.Error("it is unmounted")
		}
		daemon.signal(unix.SIGTERM)
		eventually(t, "it is detached", func() bool { return len(p.mounts()) == 0 })
		if daemon.ended(100 * time.Millisecond) {
			t.Error("the daemon has left its last user alone")
		}
		release()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the daemon ended with %v", err)
		}
	})
}

// A mount that was copied into another mount namespace keeps its daemon: umount says so, and does not
// wait for what may never come.
func TestCLIUmountSaysThatAnotherNamespaceHasIt(t *testing.T) {
	requireRoot(t)
	p := newPlace(t, nil)
	p.mountQuietly()
	daemon := p.daemon()
	other := exec.Command("unshare", "-m", "--propagation=private", "sh", "-c", "echo; read line")
	in, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	r := p.tunefs("umount", p.mnt)
	want := fmt.Sprintf("its daemon (pid %d) goes on: it is also mounted in the mount namespace of pid %d (sh)\n", daemon.pid, other.Process.Pid)
	if r.code != 0 || !strings.Contains(r.stderr, want) {
		t.Errorf("exit %d: %s", r.code, r.stderr)
	}
	if err := in.Close(); err != nil {
		t.Error(err)
	}
	_ = other.Wait() // read fails at the end of its input
	if !daemon.ended(10 * time.Second) {
		t.Error("the daemon outlives the other namespace")
	}
}

// The same for one that was bound elsewhere.
func TestCLIUmountSaysThatItIsBoundElsewhere(t *testing.T) {
	requireRoot(t)
	p := newPlace(t, nil)
	p.mountQuietly()
	daemon := p.daemon()
	bound := filepath.Join(p.dir, "bound")
	makeDir(t, bound, nil)
	if err := unix.Mount(p.mnt, bound, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	r := p.tunefs("umount", p.mnt)
	if r.code != 0 || !strings.Contains(r.stderr, "it is also mounted at "+bound+"\n") {
		t.Errorf("exit %d: %s", r.code, r.stderr)
	}
	p.wantOK(p.tunefs("umount", bound))
	if !daemon.ended(0) {
		t.Error("umount has returned before the daemon had ended")
	}
}

// What umount must not touch.
func TestCLIUmountOfOthers(t *testing.T) {
	requireRoot(t)
	p := newPlace(t, nil)
	p.wantFault(p.tunefs("umount", p.mnt), 1, "nothing is mounted at "+p.mnt)
	p.wantFault(p.tunefs("umount", p.dir+"/none"), 1, "nothing is mounted there")
	p.wantFault(p.tunefs("umount", "/proc"), 1, "/proc is not a tunefs mount but one of type proc")

	// Somebody else's mount is not an ordinary user's to take away.
	p.mountQuietly("--allow-other")
	u := ordinary()
	p.user = &u
	p.wantFault(p.tunefs("umount", p.mnt), 1, "unmounting "+p.mnt)
	p.user = nil
	p.wantOK(p.tunefs("umount", p.mnt))
}
