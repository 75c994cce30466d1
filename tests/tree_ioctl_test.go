package tests

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// struct fsxattr of linux/fs.h and its ioctls.
const (
	fsIocFsGetXattr = 0x801c581f
	fsIocFsSetXattr = 0x401c5820
	fsxattrBytes    = 28
	fsxattrProjid   = 12 // offset of fsx_projid

	xflagImmutable = 0x8
	xflagAppend    = 0x10
	xflagNoatime   = 0x40
	xflagNodump    = 0x80
)

// rawIoctl calls ioctl(2) with a pointer to buf.
func rawIoctl(fd int, cmd uintptr, buf []byte) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), cmd, uintptr(unsafe.Pointer(&buf[0]))) // safe: buf outlives the call
	if errno != 0 {
		return errno
	}
	return nil
}

// flagCase is an attempt of TestInodeFlags.
type flagCase struct {
	name string
	do   func(fd int) error
}

func flagCases() []flagCase {
	var cases []flagCase
	for _, flag := range inodeFlags {
		cases = append(cases,
			flagCase{"set " + flag.name, func(fd int) error { return changeFlags(fd, func(f int) int { return f | flag.bits }) }},
			flagCase{"clear " + flag.name, func(fd int) error { return changeFlags(fd, func(f int) int { return f &^ flag.bits }) }})
	}
	for name, flag := range map[string]uint32{"immutable": xflagImmutable, "append": xflagAppend, "noatime": xflagNoatime, "nodump": xflagNodump} {
		cases = append(cases,
			flagCase{"fsxattr set " + name, func(fd int) error { return changeFsxattr(fd, func(f uint32) uint32 { return f | flag }, 0) }},
			flagCase{"fsxattr clear " + name, func(fd int) error { return changeFsxattr(fd, func(f uint32) uint32 { return f &^ flag }, 0) }})
	}
	same := func(f uint32) uint32 { return f }
	return append(cases,
		flagCase{"set the same", func(fd int) error { return changeFlags(fd, func(f int) int { return f }) }},
		flagCase{"fsxattr set the same", func(fd int) error { return changeFsxattr(fd, same, 0) }},
		flagCase{"fsxattr set the project", func(fd int) error { return changeFsxattr(fd, same, 77) }})
}

func changeFlags(fd int, change func(int) int) error {
	have, err := unix.IoctlGetInt(fd, unix.FS_IOC_GETFLAGS)
	if err != nil {
		return err
	}
	return unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, change(have))
}

func changeFsxattr(fd int, change func(uint32) uint32, project uint32) error {
	buf := make([]byte, fsxattrBytes)
	if err := rawIoctl(fd, fsIocFsGetXattr, buf); err != nil {
		return err
	}
	binary.NativeEndian.PutUint32(buf, change(binary.NativeEndian.Uint32(buf)))
	if project != 0 {
		binary.NativeEndian.PutUint32(buf[fsxattrProjid:], project)
	}
	return rawIoctl(fd, fsIocFsSetXattr, buf)
}

// TestInodeFlags: each caller may change the flags that ext4 lets it change, and no other: an ordinary user can
// neither freeze a file nor thaw one, nor change those of others, though the daemon could.
func TestInodeFlags(t *testing.T) {
	requireRoot(t)
	m := mount(t, withMode("cached"), withArgs("--allow-other"))
	plain := scratch(t)
	for _, kind := range []string{"file", "folder"} {
		for who, u := range privCallers() {
			for _, before := range []int{0, fsImmutable, fsAppend} {
				for i, c := range flagCases() {
					name := fmt.Sprintf("%s-%s-%x-%d", kind, strings.ReplaceAll(who, " ", "-"), before, i)
					want := flagsChanged(plain, plain+"/"+name, kind, u, before, c)
					got := flagsChanged(m.Source, m.Path(name), kind, u, before, c)
					if got != want {
						t.Errorf("%s by %s on a %s with flags %x:\n got %s\nwant %s", c.name, who, kind, before, got, want)
					}
				}
			}
		}
	}
}

// flagsChanged makes an object at path, which lies in backing too, with some flags, and has u make the attempt.
func flagsChanged(backing, path, kind string, u user, before int, c flagCase) string {
	real := backing + path[strings.LastIndexByte(path, '/'):]
	if err := makeFlagged(real, kind, before); err != nil {
		return "preparing: " + err.Error()
	}
	err := as(u, 0, func() error {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return c.do(fd)
	})
	result := "ok"
	if err != nil {
		result = errorText(err)
	}
	f, err := os.Open(real)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	buf := make([]byte, fsxattrBytes)
	if err := rawIoctl(int(f.Fd()), fsIocFsGetXattr, buf); err != nil {
		return err.Error()
	}
	flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	return fmt.Sprintf("%s, flags %x %v, fsxattr %x", result, flags&settableFlags, err, buf)
}

func makeFlagged(path, kind string, flags int) error {
	var err error
	if kind == "file" {
		err = os.WriteFile(path, nil, 0o644)
	} else {
		err = os.Mkdir(path, 0o755)
	}
	if err = errors.Join(err, os.Chown(path, 4000, privGroup)); err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return changeFlags(int(f.Fd()), func(have int) int { return have | flags })
}

// TestUnknownIoctls: what is not about inode flags is not carried out on SOURCE, also not for root.
func TestUnknownIoctls(t *testing.T) {
	m := mount(t)
	must(t, os.WriteFile(m.Path("file"), []byte("hello"), 0o644))
	for name, cmd := range map[string]uintptr{
		"TCGETS":                 unix.TCGETS,
		"FS_IOC_GETVERSION":      0x80087601,
		"EXT4_IOC_GETRSVSZ":      0x80086605,
		"EXT4_IOC_GETSTATE":      0x40046629,
		"FS_IOC_GETFSLABEL":      0x81009431,
		"BLKGETSIZE64":           unix.BLKGETSIZE64,
		"nobody's":               0xc0ff4242,
		"without a size":         0x4242,
		"a hypervisor's KVM_RUN": 0xae80,
	} {
		for _, path := range []string{m.Path("file"), m.Dir} {
			f, err := os.Open(path)
			must(t, err)
			if err := rawIoctl(int(f.Fd()), cmd, make([]byte, 512)); !errors.Is(err, unix.ENOTTY) {
				t.Errorf("%s on %s gives %v, not ENOTTY", name, path, err)
			}
			f.Close()
		}
	}
}
