package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// eachUser runs f as root and as an ordinary user.
func eachUser(t *testing.T, f func(t *testing.T, u *user)) {
	t.Helper()
	t.Run("root", func(t *testing.T) {
		requireRoot(t)
		f(t, nil)
	})
	t.Run("user", func(t *testing.T) {
		u := ordinary()
		f(t, &u)
	})
}

// Each fault that a user makes is one line, and nothing is mounted.
func TestCLIFaults(t *testing.T) {
	eachUser(t, func(t *testing.T, u *user) {
		p := newPlace(t, u)
		file := filepath.Join(p.dir, "file")
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		inside := filepath.Join(p.src, "inside")
		makeDir(t, inside, u)
		link := filepath.Join(p.dir, "link")
		if err := os.Symlink(inside, link); err != nil {
			t.Fatal(err)
		}
		none := filepath.Join(p.dir, "none")
		for _, tc := range []struct {
			source, mountpoint, says string
		}{
			{none, p.mnt, "SOURCE " + none + " does not exist"},
			{p.src, none, "MOUNTPOINT " + none + " does not exist"},
			{file, p.mnt, "SOURCE " + file + " is not a directory but a regular file"},
			{p.src, file, "MOUNTPOINT " + file + " is not a directory but a regular file"},
			{p.src, inside, "is inside SOURCE"},
			{p.src, link, "is inside SOURCE"},
		} {
			p.wantFault(p.tunefs("mount", tc.source, tc.mountpoint), 1, tc.says)
			p.wantFault(p.tunefs("mount", "-f", tc.source, tc.mountpoint), 1, tc.says)
			p.wantFault(p.tunefs(tc.source, tc.mountpoint, "-o", "rw"), 1, tc.says)
		}
		p.wantFault(p.tunefs("mount", "--max-write=1G", p.src, p.mnt), 1, "fs.fuse.max_pages_limit=262144")
		p.wantFault(p.tunefs("mount", "--log-file="+none+"/log", p.src, p.mnt), 1, "choose another --log-file")
		p.wantFault(p.tunefs("mount", "--blksize=196608", p.src, p.mnt), 2, "use 128k or 256k")
		p.wantFault(p.tunefs(p.src, p.mnt, "-o", "rw,frobnicate"), 2, `unknown option "frobnicate"`)
		if left, err := mountsBelow(p.dir); err != nil || len(left) > 0 {
			t.Errorf("mounted: %v, %v", left, err)
		}
	})
}

func TestCLIFaultsOfUsers(t *testing.T) {
	u := ordinary()
	p := newPlace(t, &u)
	closed := filepath.Join(p.dir, "closed")
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	if allowed(t, "user_allow_other") {
		t.Log("user_allow_other is set: that fault cannot be made here")
	} else {
		p.wantFault(p.tunefs("mount", "--allow-other", p.src, p.mnt), 1, "--allow-other is for root only")
	}
	p.wantFault(p.tunefs("mount", closed, p.mnt), 1, "SOURCE "+closed+" cannot be read by user 65534")
	p.wantFault(p.tunefs("mount", closed+"/x", p.mnt), 1, "cannot be reached by user 65534")
	p.wantFault(p.tunefs("mount", p.src, closed), 1, "MOUNTPOINT "+closed+" is not user 65534's own")
	p.wantFault(p.tunefs("mount", "-o", "suid", p.src, p.mnt), 1, "-o suid is for root only")
	p.wantFault(p.tunefs("mount", "-o", "dev", p.src, p.mnt), 1, "-o dev is for root only")
	p.wantFault(p.tunefs("mount", "--io=passthrough", p.src, p.mnt), 1, "needs root")
	p.wantFault(p.tunefs("mount", "--readahead=1M", p.src, p.mnt), 1, "root")
	nameless := user{UID: 54321, GID: 54321}
	p.user = &nameless
	p.wantFault(p.tunefs("mount", p.src, p.dir), 1, "user 54321 has no name")
	if left := p.mounts(); len(left) > 0 {
		t.Errorf("mounted: %v", left)
	}
}

// allowed reports whether fuse.conf has the line.
func allowed(t *testing.T, line string) bool {
	t.Helper()
	b, err := os.ReadFile("/etc/fuse.conf")
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Contains("\n"+string(b)+"\n", "\n"+line+"\n")
}

// A machine without /dev/fuse or fusermount3, made in a mount namespace of its own.
func TestCLIFaultsOfMachines(t *testing.T) {
	u := ordinary()
	p := newPlace(t, &u)
	asUser := fmt.Sprintf("exec setpriv --reuid=%d --regid=%d --clear-groups", u.UID, u.GID)
	p.user = nil
	const emptyDev = "mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && "
	for _, tc := range []struct{ prepare, says string }{
		{emptyDev + "exec", "modprobe fuse"},
		{emptyDev + "mknod -m 600 /dev/fuse c 10 229 && " + asUser, "no permission to use /dev/fuse"},
		{"mount --bind /dev/null $(command -v fusermount3) && " + asUser, "install the package fuse3"},
	} {
		script := fmt.Sprintf("%s %s mount %s %s", tc.prepare, tunefsBinary(t), p.src, p.mnt)
		p.wantFault(p.run("unshare", "-m", "sh", "-c", script), 1, tc.says)
	}
}

// A mountpoint that serves already is refused, and goes on serving; one whose daemon was killed is
// named as such, and umount takes it away.
func TestCLIBusyAndDeadMountpoints(t *testing.T) {
	eachUser(t, func(t *testing.T, u *user) {
		p := newPlace(t, u)
		p.mountQuietly()
		p.wantFault(p.tunefs("mount", p.src, p.mnt), 1, "is a tunefs mount of "+p.src+" already")
		if n := len(p.mounts()); n != 1 {
			t.Fatalf("%d mounts", n)
		}
		daemon := p.daemon()
		daemon.signal(unix.SIGKILL)
		if !daemon.ended(10 * time.Second) {
			t.Fatal("the daemon survives")
		}
		p.wantFault(p.tunefs("mount", p.src, p.mnt), 1, "is a dead mount")
		p.wantOK(p.tunefs("umount", p.mnt))
		p.mountQuietly()
		p.wantOK(p.tunefs("umount", p.mnt))
	})
}

// mountQuietly mounts in the background, in a mode that every user gets.
func (p *cliPlace) mountQuietly(args ...string) {
	p.t.Helper()
	p.wantOK(p.tunefs(append(append([]string{"mount", "--io=cached"}, args...), p.src, p.mnt)...))
}

// Another filesystem at the mountpoint is covered, as mount(8) does it.
func TestCLIStacksOnOthers(t *testing.T) {
	requireRoot(t)
	p := newPlace(t, nil)
	if err := unix.Mount("none", p.mnt, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	p.wantFault(p.tunefs("umount", p.mnt), 1, "is not a tunefs mount but one of type tmpfs")
	p.mountQuietly()
	if m := p.mounts(); len(m) != 2 || m[0].Type != "fuse.tunefs" {
		t.Errorf("mounts: %v", m)
	}
	p.wantOK(p.tunefs("umount", p.mnt))
	if m := p.mounts(); len(m) != 1 || m[0].Type != "tmpfs" {
		t.Errorf("mounts: %v", m)
	}
}
