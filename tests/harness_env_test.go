package tests

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// user is an identity to run things as. Only one that mounts needs an entry in /etc/passwd.
type user struct {
	UID, GID uint32
	Groups   []uint32
}

// ordinary is a user with no privileges and no relation to any file of the machine: nobody, since
// fusermount3 serves only users that have a name.
func ordinary() user { return user{UID: 65534, GID: 65534} }

func (u user) credential() *syscall.Credential {
	return &syscall.Credential{Uid: u.UID, Gid: u.GID, Groups: u.Groups}
}

// command is a command that u runs. Only root can become somebody else.
func (u user) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: u.credential()}
	return cmd
}

// requireRoot skips a test that only root can run.
func requireRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

// requirePackages makes sure that Debian packages are installed, and installs what is missing. It never
// skips: a test that needs fio is not run by a machine without fio.
func requirePackages(t testing.TB, names ...string) {
	t.Helper()
	var missing []string
	for _, name := range names {
		out, err := exec.Command("dpkg-query", "-W", "-f=${Status}", name).Output()
		if err != nil || string(out) != "install ok installed" {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return
	}
	if os.Geteuid() != 0 {
		t.Fatalf("missing packages: as root, run apt-get install %s", strings.Join(missing, " "))
	}
	if err := installPackages(missing); err != nil {
		t.Fatal(err)
	}
}

// installPackages tries with the package lists that are there, then with fresh ones.
func installPackages(names []string) error {
	install := append([]string{"install", "-y", "--no-install-recommends"}, names...)
	if err := aptGet(install...); err == nil {
		return nil
	}
	if err := aptGet("update"); err != nil {
		return err
	}
	return aptGet(install...)
}

func aptGet(args ...string) error {
	args = append([]string{"-q", "-o", "DPkg::Lock::Timeout=600", "-o", "APT::Get::Lock::Timeout=600"}, args...)
	cmd := exec.Command("apt-get", args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("apt-get %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// modes are the I/O modes of tunefs mount that eachMode goes through.
func modes() []string { return []string{"passthrough", "cached", "direct", "staged"} }

// eachMode runs f as a subtest in every I/O mode; passthrough is skipped, with the reason, where kernel
// or privileges don't allow it.
func eachMode(t *testing.T, f func(t *testing.T, mode string)) {
	t.Helper()
	for _, mode := range modes() {
		t.Run(mode, func(t *testing.T) {
			if mode == "passthrough" {
				requirePassthrough(t)
			}
			f(t, mode)
		})
	}
}

// requirePassthrough skips a test where the kernel cannot let FUSE files pass through.
func requirePassthrough(t testing.TB) {
	t.Helper()
	if err := passthroughAllowed(); err != nil {
		t.Skipf("passthrough: %v", err)
	}
}

// passthroughAllowed asks the kernel, not tunefs, so that a fault of tunefs cannot make tests skip.
var passthroughAllowed = sync.OnceValue(func() error {
	if os.Geteuid() != 0 {
		return errors.New("only root may")
	}
	s, err := theSuite()
	if err != nil {
		return err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(s.dir, &st); err != nil {
		return err
	}
	if st.Type == unix.OVERLAYFS_SUPER_MAGIC {
		return errors.New("the scratch folder lies on a stacked filesystem")
	}
	flags, err := kernelFuseFlags(s.dir)
	if err != nil {
		return err
	}
	const fusePassthrough = 1 << 37
	if flags&fusePassthrough == 0 {
		return errors.New("the kernel does not offer it")
	}
	return nil
})

// kernelFuseFlags mounts a filesystem that never answers, just to read the capabilities that the kernel
// offers in its first request.
func kernelFuseFlags(parent string) (uint64, error) {
	dir, err := os.MkdirTemp(parent, "probe-")
	if err != nil {
		return 0, err
	}
	defer os.Remove(dir)
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	if err := unix.Mount("probe", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)); err != nil {
		return 0, err
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	return readInitFlags(fd)
}

// readInitFlags reads FUSE_INIT: a header of 40 bytes, then struct fuse_init_in.
func readInitFlags(fd int) (uint64, error) {
	var in struct {
		header                                   [40]byte
		major, minor, readahead, flags, moreFlag uint32
	}
	buf := make([]byte, 64<<10)
	n, err := unix.Read(fd, buf)
	if err != nil {
		return 0, err
	}
	if n < int(unsafe.Sizeof(in)) {
		return 0, fmt.Errorf("FUSE_INIT has %d bytes only", n)
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&in)), unsafe.Sizeof(in)), buf) // safe: in holds no pointers
	return uint64(in.moreFlag)<<32 | uint64(in.flags), nil
}
