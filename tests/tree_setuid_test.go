package tests

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// privUse is what is done to a file with setuid, setgid or a file capability.
type privUse struct {
	name string
	do   func(path string, fd int) error // fd is open for reading and writing
}

// privUses are done by somebody who may write to the file.
func privUses() []privUse {
	data := make([]byte, 5000)
	return []privUse{
		{"nothing", func(string, int) error { return nil }},
		{"write", func(_ string, fd int) error { return second(unix.Write(fd, data)) }},
		{"pwrite", func(_ string, fd int) error { return second(unix.Pwrite(fd, data[:1], 7)) }},
		{"pwrite past the end", func(_ string, fd int) error { return second(unix.Pwrite(fd, data[:1], 70000)) }},
		{"write of nothing", func(_ string, fd int) error { return second(unix.Pwrite(fd, nil, 7)) }},
		{"read", func(_ string, fd int) error { return second(unix.Pread(fd, data[:10], 0)) }},
		{"append", func(p string, _ int) error { return openWrite(p, unix.O_WRONLY|unix.O_APPEND, data[:10]) }},
		{"open for writing", func(p string, _ int) error { return openWrite(p, unix.O_WRONLY, nil) }},
		{"open O_TRUNC", func(p string, _ int) error { return openWrite(p, unix.O_WRONLY|unix.O_TRUNC, nil) }},
		{"open O_CREAT O_TRUNC", func(p string, _ int) error { return openWrite(p, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC, nil) }},
		{"truncate", func(p string, _ int) error { return unix.Truncate(p, 3) }},
		{"truncate to the same size", func(p string, _ int) error { return unix.Truncate(p, 8) }},
		{"ftruncate", func(_ string, fd int) error { return unix.Ftruncate(fd, 3) }},
		{"ftruncate to more", func(_ string, fd int) error { return unix.Ftruncate(fd, 30000) }},
		{"fallocate", func(_ string, fd int) error { return unix.Fallocate(fd, 0, 0, 9000) }},
		{"fallocate keep size", func(_ string, fd int) error { return unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, 0, 9000) }},
		{"punch hole", func(_ string, fd int) error {
			return unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE|unix.FALLOC_FL_PUNCH_HOLE, 0, 4096)
		}},
		{"copy_file_range", func(_ string, fd int) error {
			in, out := int64(0), int64(4096)
			return second(unix.CopyFileRange(fd, &in, fd, &out, 8, 0))
		}},
		{"mmap", mapWrite},
		{"setxattr", func(p string, _ int) error { return unix.Setxattr(p, "user.x", []byte("y"), 0) }},
		{"utimens", func(p string, _ int) error { return unix.UtimesNano(p, make([]unix.Timespec, 2)) }},
		{"link", func(p string, _ int) error { return unix.Link(p, p+".link") }},
		{"chmod to the same", chmodSame},
		{"chown to nobody else", func(p string, _ int) error { return unix.Chown(p, -1, -1) }},
		{"fchown to nobody else", func(_ string, fd int) error { return unix.Fchown(fd, -1, -1) }},
		{"chown to the same", chownSame},
		{"chown to own group", func(p string, _ int) error { return unix.Chown(p, -1, os.Getegid()) }},
		{"chgrp to the second group", func(p string, _ int) error { return unix.Chown(p, -1, secondGroup) }},
		{"chown to another", func(p string, _ int) error { return unix.Chown(p, 777, 777) }},
		{"setxattr of an ACL", func(p string, _ int) error { return unix.Setxattr(p, "system.posix_acl_access", sampleACL(), 0) }},
	}
}

func second[T any](_ T, err error) error { return err }

func openWrite(path string, flags int, data []byte) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if data == nil {
		return nil
	}
	return second(unix.Write(fd, data))
}

func mapWrite(_ string, fd int) error {
	m, err := unix.Mmap(fd, 0, 8, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	m[0] = 'X'
	return errors.Join(unix.Msync(m, unix.MS_SYNC), unix.Munmap(m))
}

func chmodSame(path string, _ int) error {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return err
	}
	return unix.Chmod(path, st.Mode&0o7777)
}

func chownSame(path string, _ int) error {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return err
	}
	return unix.Chown(path, int(st.Uid), int(st.Gid))
}

// sampleACL is "u::rwx,u:777:rwx,g::rwx,m::rwx,o::rwx" as setfacl(1) stores it.
func sampleACL() []byte {
	b := binary.LittleEndian.AppendUint32(nil, 2)
	for _, e := range [][3]uint32{{1, 7, ^uint32(0)}, {2, 7, 777}, {4, 7, ^uint32(0)}, {0x10, 7, ^uint32(0)}, {0x20, 7, ^uint32(0)}} {
		b = binary.LittleEndian.AppendUint16(b, uint16(e[0]))
		b = binary.LittleEndian.AppendUint16(b, uint16(e[1]))
		b = binary.LittleEndian.AppendUint32(b, e[2])
	}
	return b
}

// The groups that the files and the callers of TestPrivilegedBits belong to.
const (
	privGroup   = 4001
	secondGroup = 4002
)

// withCapability, together with a mode, is a file that has a capability too.
const withCapability = 1 << 20

// privCallers are those who use it: the owner in the file's group and outside, somebody in the group, a stranger, root.
func privCallers() map[string]user {
	return map[string]user{
		"owner":              {UID: 4000, GID: 4000, Groups: []uint32{secondGroup}},
		"owner in the group": {UID: 4000, GID: 4000, Groups: []uint32{privGroup, secondGroup}},
		"group":              {UID: 4003, GID: privGroup},
		"stranger":           {UID: 4004, GID: 4004},
		"root":               {},
	}
}

// privCase is one combination of TestPrivilegedBits.
type privCase struct {
	who  string
	bits uint32
	use  privUse
}

func (c privCase) String() string {
	return fmt.Sprintf("%s by %s on mode %o", c.use.name, c.who, c.bits)
}

func privCases() []privCase {
	var cases []privCase
	for who := range privCallers() {
		for _, bits := range []uint32{0o6777, 0o2767, 0o4666, 0o2676, withCapability | 0o777, withCapability | 0o6777} {
			for _, use := range privUses() {
				cases = append(cases, privCase{who, bits, use})
			}
		}
	}
	return cases
}

// TestPrivilegedBits: what takes setuid, setgid and capabilities off a file on a plain filesystem does so on the
// mount, and nothing else does: every use, by everybody, on every kind of file, compared with a plain folder.
func TestPrivilegedBits(t *testing.T) {
	requireRoot(t)
	plain := scratch(t)
	must(t, os.Chmod(plain, 0o777))
	want := map[string]string{}
	for _, c := range privCases() {
		want[c.String()] = c.result(plain)
	}
	eachMode(t, func(t *testing.T, mode string) {
		for _, timeout := range pickLong([]string{"60s"}, []string{"0s", "1s", "60s"}) {
			m := mount(t, withMode(mode), withArgs("--allow-other", "--attr-timeout="+timeout))
			must(t, os.Chmod(m.Source, 0o777))
			for _, c := range privCases() {
				want := want[c.String()]
				if c.use.name == "mmap" && mode != "passthrough" {
					// The pages reach SOURCE by a write(2), which always takes capabilities.
					want = strings.Replace(want, "capability true", "capability false", 1)
				}
				if c.use.access() == unix.O_RDONLY {
					// The kernel has the capability removed before it asks for the rest, which is refused.
					want = strings.Replace(want, "capability true", "capability false", 1)
				}
				got := c.result(m.Dir)
				if got != want {
					// The kernel tells of a close after it has returned; till then the file is open for writing.
					got = c.result(m.Dir)
				}
				if got != want {
					t.Errorf("timeout %s, %v:\n got %s\nwant %s", timeout, c, got, want)
				}
			}
			m.Unmount()
		}
	})
}

// access is how the file is open meanwhile. To a FUSE daemon a chown(2) to nobody looks as what comes before a write
// of the kernel's own while the file is open for writing, and passes for that.
func (u privUse) access() int {
	if strings.HasSuffix(u.name, "chown to nobody else") {
		return unix.O_RDONLY
	}
	return unix.O_RDWR
}

// result makes a file in dir, has it used and describes what came of it.
func (c privCase) result(dir string) string {
	path := dir + "/" + strings.ReplaceAll(c.String(), " ", "-")
	if err := makePrivileged(path, c.bits); err != nil {
		return "preparing: " + err.Error()
	}
	err := as(privCallers()[c.who], 0, func() error {
		fd, err := unix.Open(path, c.use.access()|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return c.use.do(path, fd)
	})
	result := "ok"
	if err != nil {
		result = errorText(err)
	}
	// What an execve(2) right now would go by, after its own check of the permission.
	_ = unix.Access(path, unix.X_OK)
	var cached unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_STATX_DONT_SYNC, unix.STATX_MODE, &cached); err != nil {
		return err.Error()
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return err.Error()
	}
	_, capErr := unix.Getxattr(path, "security.capability", nil)
	return fmt.Sprintf("%s, mode %o (%o for execve), owner %d:%d, capability %v", result, st.Mode, cached.Mode, st.Uid, st.Gid, capErr == nil)
}

func makePrivileged(path string, bits uint32) error {
	if err := os.WriteFile(path, []byte("contents"), 0o600); err != nil {
		return err
	}
	err := errors.Join(unix.Chown(path, 4000, privGroup), unix.Chmod(path, bits&0o7777))
	if err != nil || bits&withCapability == 0 {
		return err
	}
	capability := binary.LittleEndian.AppendUint32(nil, 0x02000001) // VFS_CAP_REVISION_2, effective
	capability = append(binary.LittleEndian.AppendUint32(capability, 1<<unix.CAP_NET_RAW), make([]byte, 12)...)
	return unix.Setxattr(path, "security.capability", capability, 0)
}
