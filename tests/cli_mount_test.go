package tests

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// blksize is what stat shows for path to the place's user.
func (p *cliPlace) blksize(path string) string {
	p.t.Helper()
	r := p.run("stat", "-c", "%o", path)
	p.wantOK(r)
	return strings.TrimSpace(r.out)
}

func (p *cliPlace) write(name string) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.src, name), []byte(name), 0o644); err != nil {
		p.t.Fatal(err)
	}
}

// The command returns when the mount answers, and not before: whoever comes next finds it.
func TestCLIBackgroundMountAnswers(t *testing.T) {
	eachUser(t, func(t *testing.T, u *user) {
		p := newPlace(t, u)
		p.write("file")
		for range 10 {
			p.mountQuietly("--blksize=64k")
			if got := p.blksize(filepath.Join(p.mnt, "file")); got != "65536" {
				t.Errorf("st_blksize is %s", got)
			}
			daemon := p.daemon()
			p.wantOK(p.tunefs("umount", p.mnt))
			if !daemon.ended(0) {
				t.Error("umount has returned before the daemon had ended")
			}
		}
	})
}

// A daemon keeps no directory busy, no terminal open, and nothing of its caller.
func TestCLIDaemonLetsGo(t *testing.T) {
	requireRoot(t)
	p := newPlace(t, nil)
	p.wantOK(p.tunefs("mount", "--io=cached", "--log-file=log", "src", "mnt"))
	m, err := mountsBelow(p.mnt)
	if err != nil || len(m) != 1 || m[0].Source != p.src || m[0].Type != "fuse.tunefs" {
		t.Fatalf("relative paths give %v, %v", m, err)
	}
	var pid int
	names, _ := filepath.Glob("/proc/[0-9]*/cwd")
	for _, name := range names {
		b, _ := os.ReadFile(filepath.Join(filepath.Dir(name), "cmdline"))
		if dir, _ := os.Readlink(name); dir == p.dir {
			t.Errorf("%s has its working directory here", b)
		}
		if args := string(b); strings.HasSuffix(args, "\x00--log-file=log\x00src\x00mnt\x00") {
			fmt.Sscanf(name, "/proc/%d/cwd", &pid)
		}
	}
	for fd, want := range []string{"/dev/null", "/dev/null", filepath.Join(p.dir, "log")} {
		if got, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, fd)); err != nil || got != want {
			t.Errorf("descriptor %d of the daemon is %s, %v; want %s", fd, got, err, want)
		}
	}
	if sid, err := unix.Getsid(pid); err != nil || sid != pid {
		t.Errorf("the daemon %d is in session %d, %v", pid, sid, err)
	}
	p.wantOK(p.tunefs("umount", "mnt"))
	log, err := os.ReadFile(filepath.Join(p.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, says := range []string{"msg=mounted source=" + p.src + " mountpoint=" + p.mnt, "blksize=128k", "io=cached", "msg=unmounted"} {
		if !strings.Contains(string(log), says) {
			t.Errorf("the log lacks %q:\n%s", says, log)
		}
	}
}

// Where passthrough is not allowed, auto says so and uses cached.
func TestCLIAutoSaysWhatItUses(t *testing.T) {
	u := ordinary()
	p := newPlace(t, &u)
	r := p.tunefs("mount", p.src, p.mnt)
	if r.code != 0 || r.stderr != "tunefs mount: auto uses cached, not passthrough: it needs root (CAP_SYS_ADMIN)\n" {
		t.Errorf("exit %d: %s", r.code, r.stderr)
	}
	p.wantOK(p.tunefs("umount", p.mnt))

	requirePassthrough(t)
	root := newPlace(t, nil)
	root.wantOK(root.tunefs("mount", root.src, root.mnt))
	root.wantOK(root.tunefs("umount", root.mnt))
}

// MOUNTPOINT may be SOURCE itself, and is reached below symlinks.
func TestCLIMountOverSource(t *testing.T) {
	eachUser(t, func(t *testing.T, u *user) {
		p := newPlace(t, u)
		p.write("file")
		link := filepath.Join(p.dir, "link")
		if err := os.Symlink("src", link); err != nil {
			t.Fatal(err)
		}
		p.wantOK(p.tunefs("mount", "--io=cached", "--blksize=1M", p.src, link))
		if got := p.blksize(filepath.Join(p.src, "file")); got != "1048576" {
			t.Errorf("st_blksize is %s", got)
		}
		p.wantOK(p.tunefs("umount", link))
		if got := p.blksize(filepath.Join(p.src, "file")); got == "1048576" {
			t.Error("it is still mounted")
		}
	})
}

// A SOURCE with a command's name is mounted by its path.
func TestCLISourceNamedLikeACommand(t *testing.T) {
	requireRoot(t)
	p := newPlace(t, nil)
	makeDir(t, filepath.Join(p.dir, "mount"), nil)
	p.wantOK(p.tunefs("./mount", "mnt", "-o", "io=cached"))
	if m := p.mounts(); len(m) != 1 || m[0].Source != filepath.Join(p.dir, "mount") {
		t.Errorf("mounts: %v", m)
	}
	p.wantOK(p.tunefs("umount", "mnt"))
}

func TestCLIReadOnly(t *testing.T) {
	eachUser(t, func(t *testing.T, u *user) {
		for _, args := range [][]string{{"--ro"}, {"-o", "rw,ro"}} {
			p := newPlace(t, u)
			p.mountQuietly(args...)
			if r := p.run("touch", filepath.Join(p.mnt, "x")); r.code == 0 || !strings.Contains(r.stderr, "Read-only") {
				t.Errorf("%q: exit %d: %s", args, r.code, r.stderr)
			}
			p.wantOK(p.tunefs("umount", p.mnt))
		}
	})
}

// doctor tries a real mount, and leaves neither files nor mounts.
func TestCLIDoctor(t *testing.T) {
	eachUser(t, func(t *testing.T, u *user) {
		p := newPlace(t, u)
		r := p.tunefs("doctor", "--json", p.src)
		p.wantOK(r)
		var found []struct{ Check, Result string }
		if err := json.Unmarshal([]byte(r.out), &found); err != nil {
			t.Fatal(err)
		}
		var auto string
		for _, f := range found {
			if f.Check == "--io=auto" {
				auto = f.Result
			}
		}
		if !strings.HasPrefix(auto, "chooses ") || (u != nil && auto != "chooses cached, since it needs root (CAP_SYS_ADMIN)") {
			t.Errorf("auto: %q", auto)
		}
		left, err := os.ReadDir(p.src)
		if err != nil || len(left) > 0 {
			t.Errorf("in SOURCE: %v, %v", left, err)
		}
		if temps, _ := filepath.Glob(filepath.Join(os.TempDir(), "tunefs-doctor-*")); len(temps) > 0 {
			t.Errorf("left: %v", temps)
		}
		p.wantOK(p.tunefs("doctor"))
	})
}
