package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// install makes a folder with tunefs in it under the name of a helper of mount(8), or its own.
func (p *cliPlace) install(name string) (dir string) {
	p.t.Helper()
	dir = filepath.Join(p.dir, "bin-"+name)
	makeDir(p.t, dir, nil)
	b, err := os.ReadFile(tunefsBinary(p.t))
	if err != nil {
		p.t.Fatal(err)
	}
	// A copy: a link's target would have to be reached past the folders that the tests cover.
	if err := os.WriteFile(filepath.Join(dir, name), b, 0o755); err != nil {
		p.t.Fatal(err)
	}
	return dir
}

// mount8Ways are the two ways in which mount(8) finds us, as commands that prepare a mount namespace:
// as /sbin/mount.fuse.tunefs, or through fuse3's own helper as a program called tunefs.
func mount8Ways(p *cliPlace) map[string]string {
	return map[string]string{
		"mount.fuse.tunefs": "mount --bind " + p.install("mount.fuse.tunefs") + " /usr/sbin",
		"mount.fuse3":       "mount --bind " + p.install("tunefs") + " /usr/local/bin",
	}
}

// inNamespace runs a script in a mount namespace of its own, where an error ends it.
func (p *cliPlace) inNamespace(script string) cliResult {
	p.t.Helper()
	return p.run("unshare", "-m", "sh", "-ec", script)
}

func eachMount8Way(t *testing.T, f func(t *testing.T, p *cliPlace, prepare string)) {
	requireRoot(t)
	requirePackages(t, "fuse3")
	p := newPlace(t, nil)
	p.write("a.db")
	p.write("b.txt")
	for name, prepare := range mount8Ways(p) {
		t.Run(name, func(t *testing.T) { f(t, p, prepare) })
	}
}

// look prints what a script of these tests has mounted.
const look = `stat -c '%%n %%o' *; grep -F '%[1]s ' /proc/self/mounts | cut -d' ' -f1-4`

func (p *cliPlace) look() string {
	return fmt.Sprintf("cd %[1]s; "+look+"; cd /", p.mnt)
}

func TestMount8(t *testing.T) {
	eachMount8Way(t, func(t *testing.T, p *cliPlace, prepare string) {
		for _, rule := range []string{`rule=*.db=4k\,io=direct`, `rule="*.db=4k,io=direct"`} {
			r := p.inNamespace(fmt.Sprintf("%s; mount -t fuse.tunefs -o 'blksize=1M,io=cached,allow_other,noatime,nofail,x-a.b,%s' %s %s; %s; umount %[4]s",
				prepare, rule, p.src, p.mnt, p.look()))
			p.wantOK(r)
			for _, says := range []string{"a.db 4096\n", "b.txt 1048576\n", p.src + " " + p.mnt + " fuse.tunefs rw,", "noatime", "allow_other"} {
				if !strings.Contains(r.out, says) {
					t.Errorf("%s: no %q in %s", rule, says, r.out)
				}
			}
		}
	})
}

func TestMount8Refusals(t *testing.T) {
	eachMount8Way(t, func(t *testing.T, p *cliPlace, prepare string) {
		for options, says := range map[string]string{
			"blksize=3000":      "use 2k or 4k",
			"rw,blksise=4k":     `unknown option "blksise"; did you mean blksize?`,
			"allow_root":        "use allow_other",
			"ro,io=fast,nosuid": "unknown I/O mode",
		} {
			p.wantFault(p.inNamespace(fmt.Sprintf("%s; mount -t fuse.tunefs -o %s %s %s", prepare, options, p.src, p.mnt)), 2, says)
		}
		r := p.inNamespace(fmt.Sprintf("%s; mount -t fuse.tunefs %s/none %s", prepare, p.src, p.mnt))
		p.wantFault(r, 1, "SOURCE "+p.src+"/none does not exist")
	})
}

// A line in /etc/fstab works for root, and with the option user for everybody.
func TestFstab(t *testing.T) {
	eachMount8Way(t, func(t *testing.T, p *cliPlace, prepare string) {
		fstab := filepath.Join(p.dir, "fstab")
		line := fmt.Sprintf("%s %s fuse.tunefs noauto,user,nofail,_netdev,x-systemd.automount,blksize=1M,io=cached,rule=*.db=4k\\,io=direct 0 0\n", p.src, p.mnt)
		if err := os.WriteFile(fstab, []byte(line), 0o644); err != nil {
			t.Fatal(err)
		}
		u := ordinary()
		openFuseDevice(t)
		if err := os.Chown(p.mnt, int(u.UID), int(u.GID)); err != nil {
			t.Fatal(err)
		}
		script := fmt.Sprintf("mount %[1]s; %[2]s; umount %[1]s", p.mnt, p.look())
		for who, become := range map[string]string{
			"root": "sh -ec", "user": fmt.Sprintf("setpriv --reuid=%d --regid=%d --clear-groups sh -ec", u.UID, u.GID),
		} {
			r := p.inNamespace(fmt.Sprintf("%s; mount --bind %s /etc/fstab; exec %s \"$(cat <<'END'\n%s\nEND\n)\"", prepare, fstab, become, script))
			p.wantOK(r)
			for _, says := range []string{"a.db 4096\n", "b.txt 1048576\n", p.src + " " + p.mnt + " fuse.tunefs rw,nosuid,nodev,noexec"} {
				if !strings.Contains(r.out, says) {
					t.Errorf("%s: no %q in %s", who, says, r.out)
				}
			}
		}
	})
}

// mount(8)'s -f only pretends.
func TestMount8Fake(t *testing.T) {
	requireRoot(t)
	p := newPlace(t, nil)
	helper := filepath.Join(p.install("mount.fuse.tunefs"), "mount.fuse.tunefs")
	p.wantOK(p.run(helper, p.src, p.mnt, "-f", "-n", "-v", "-o", "rw", "-t", "fuse.tunefs"))
	p.wantFault(p.run(helper, p.src+"/none", p.mnt, "-f"), 1, "does not exist")
	if m := p.mounts(); len(m) > 0 {
		t.Errorf("mounts: %v", m)
	}
}
