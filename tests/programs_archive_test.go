package tests

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// copiers are programs that copy everything in the folder $1 into the folder $2, with all that they can
// preserve.
func copiers() map[string]string {
	return map[string]string{
		"tar":      `tar --create --format=posix --sparse --xattrs --xattrs-include='*' --acls --numeric-owner --directory="$1" --file=- . | tar --extract --preserve-permissions --sparse --xattrs --xattrs-include='*' --acls --numeric-owner --directory="$2" --file=-`,
		"rsync":    `rsync -aHAXS "$1/" "$2/"`,
		"cp":       `cp -a "$1/." "$2/"`,
		"cp-holes": `cp -a --sparse=always --reflink=never "$1/." "$2/"`,
		"move":     `mkdir "$2.moving" && cp -a "$1/." "$2.moving/" && rmdir "$2" && mv "$2.moving" "$2"`,
	}
}

// TestArchive copies a tree that has everything onto the mount, inside it, and off it again. Each copy
// must be what the same program makes of the tree on a plain folder.
func TestArchive(t *testing.T) {
	requirePackages(t, "tar", "rsync", "acl", "attr", "libcap2-bin")
	people := map[string]*user{"ordinary": unprivileged()}
	if os.Geteuid() == 0 {
		people["root"] = nil
	}
	for who, u := range people {
		t.Run(who, func(t *testing.T) {
			home := filepath.Join(scratch(t), "home")
			makeDir(t, home, u)
			a := archiver{user: u, home: home}
			a.makeTree(t, a.folder(t, home, "tree"))
			for name, script := range copiers() {
				a.copy(t, script, filepath.Join(home, "tree"), a.folder(t, home, name))
			}
			eachMode(t, func(t *testing.T, mode string) {
				m := mountFor(t, u, mode)
				for name, script := range copiers() {
					t.Run(name, func(t *testing.T) { a.roundTrip(t, m, name, script) })
				}
			})
		})
	}
}

// archiver copies as user below home, where the tree and a native copy of each copier lie.
type archiver struct {
	user *user
	home string
}

// folder makes a folder of the user's, on a mount too where only the user may look.
func (a archiver) folder(t *testing.T, elem ...string) string {
	t.Helper()
	dir := filepath.Join(elem...)
	run(t, program(a.user, "mkdir", dir))
	return dir
}

func (a archiver) copy(t *testing.T, script, from, to string) {
	t.Helper()
	cmd := program(a.user, "bash", "-o", "pipefail", "-ec", script, "copier", from, to)
	cmd.Dir = a.home
	run(t, cmd)
}

func (a archiver) roundTrip(t *testing.T, m *mounted, name, script string) {
	in, within, out := a.folder(t, m.Dir, name), a.folder(t, m.Dir, name+"-again"), a.folder(t, scratchOf(t, a.user), "out")
	want := viewTree(t, filepath.Join(a.home, name))
	a.copy(t, script, filepath.Join(a.home, "tree"), in)
	compareTrees(t, "SOURCE", viewTree(t, m.Backing(name)), want)
	if a.user == nil {
		compareTrees(t, "the mount", viewTree(t, in), want)
	}
	a.copy(t, script, in, within)
	compareTrees(t, "copied on the mount", viewTree(t, m.Backing(name+"-again")), want)
	a.copy(t, script, in, out)
	compareTrees(t, "copied off the mount", viewTree(t, out), want)
}

// scratchOf is a scratch folder that u can write to.
func scratchOf(t *testing.T, u *user) string {
	t.Helper()
	dir := filepath.Join(scratch(t), "own")
	makeDir(t, dir, u)
	return dir
}

// makeTree fills dir with what copiers find hard, as far as the user is allowed to make it.
func (a archiver) makeTree(t *testing.T, dir string) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	write := func(name string, content []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o640); err != nil {
			t.Fatal(err)
		}
	}
	write(strings.Repeat("n", 255), nil)
	write("blank and\nnewline \\ \xff", []byte("odd"))
	for i := range 40 {
		sub := filepath.Join(dir, fmt.Sprintf("sub%d", i%4), strings.Repeat("deep/", i%9))
		if err := os.MkdirAll(sub, 0o755); err != nil {
			t.Fatal(err)
		}
		content := make([]byte, random.IntN(40_000))
		for j := range content {
			content[j] = byte(random.Uint32())
		}
		if err := os.WriteFile(filepath.Join(sub, fmt.Sprintf("file%d", i)), content, 0o600|os.FileMode(i)); err != nil {
			t.Fatal(err)
		}
	}
	makeSparse(t, filepath.Join(dir, "sparse"))
	if err := unix.Mknod(filepath.Join(dir, "socket"), unix.S_IFSOCK|0o640, 0); err != nil {
		t.Fatal(err)
	}
	script := specialObjects
	if a.user == nil {
		script += privilegedObjects
	} else if err := chownAll(dir, *a.user); err != nil {
		t.Fatal(err)
	}
	cmd := program(a.user, "bash", "-exc", script)
	cmd.Dir = dir
	run(t, cmd)
	dateTree(t, dir)
}

// specialObjects makes what needs no privilege.
const specialObjects = `
ln sub1/deep/file1 hardlink; ln hardlink sub2/hardlink; ln -s nowhere dangling; ln -s sub1 link; ln link linked-link
mkfifo fifo; mkdir -m 0700 empty; chmod 1777 sub3; chmod 0400 sub0/file0; chmod 06755 hardlink
setfattr -n user.text -v value hardlink; setfattr -n user.empty sub1; setfattr -n user.binary -v 0x00ff0a00 sub0
setfattr -n user.large -v "$(printf %03000d 7)" sparse
setfacl -m u:daemon:rw,g:games:r,m::rx hardlink; setfacl -m u:games:rwx,d:u:games:rwx,d:g:daemon:r-x,d:o::- sub1
`

// privilegedObjects makes what only root can make.
const privilegedObjects = `
mknod null c 1 3; mknod disk b 7 200; chown -h 1234:4321 dangling; chown 7:8 hardlink; chmod 06755 hardlink
chown 4000000000:4000000001 sub2/hardlink sub3; chmod 02775 sub2; setfattr -n trusted.secret -v x sub2
cp /bin/true capable; setcap cap_net_raw,cap_chown+ep capable; setfattr -h -n trusted.link -v y dangling
`

// makeSparse makes a file of data between holes, with one of each at the ends.
func makeSparse(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for i := range int64(5) {
		if _, err := f.WriteAt(bytes.Repeat([]byte{byte('a' + i)}, 8192), 1<<20*i+i*4096); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Truncate(8 << 20); err != nil {
		t.Fatal(err)
	}
}

// chownAll gives everything below dir to u.
func chownAll(dir string, u user) error {
	return exec.Command("chown", "-R", "-h", fmt.Sprintf("%d:%d", u.UID, u.GID), dir).Run()
}

// dateTree gives all objects times of their own, down to nanoseconds; from before 1970 too.
func dateTree(t *testing.T, dir string) {
	t.Helper()
	i := int64(0)
	for name := range viewTree(t, dir) {
		i++
		date := unix.NsecToTimespec(time.Unix(-1000+i*1_000_003, 123_456_789*i%1_000_000_000).UnixNano())
		if err := unix.UtimesNanoAt(unix.AT_FDCWD, filepath.Join(dir, name), []unix.Timespec{date, date}, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			t.Fatal(err)
		}
	}
}
