package main

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"tunefs/fs"
	"tunefs/policy"
)

// findFilesystem says on what SOURCE lies.
func findFilesystem(source string) finding {
	const check = "SOURCE"
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, source, 0, unix.STATX_MNT_ID|unix.STATX_BTIME, &st); err != nil {
		return finding{check, false, err.Error(), ""}
	}
	f := finding{Check: check, OK: true, Result: source + ", on a filesystem of a type that the kernel does not tell"}
	mounts, _ := readMounts() // then the type stays unknown
	for _, m := range mounts {
		if st.Mask&unix.STATX_MNT_ID != 0 && uint64(m.id) == st.Mnt_id {
			f.Result = fmt.Sprintf("%s, on %s", source, m.fstype)
		}
	}
	f.Result += fmt.Sprintf("; reports a block size of %s", formatBytes(int(st.Blksize)))
	if st.Mask&unix.STATX_BTIME == 0 {
		f.Advice = "it has no birth times, so a file replaced by one with the same inode number may be noticed late"
	}
	return f
}

// tryMount mounts SOURCE for a moment, to see what auto chooses.
func tryMount(e env, source string) finding {
	const check = "--io=auto"
	m, dir, err := mountTemporarily(e, source)
	if err != nil {
		return finding{check, false, "cannot mount: " + err.Error(), ""}
	}
	f := finding{Check: check, OK: true, Result: "chooses " + m.IO().String()}
	if m.Reason() != "" {
		f.Result += ", since " + m.Reason()
	}
	if err := m.Unmount(); err != nil {
		_ = m.Detach() // a first error says why
		return finding{check, false, "cannot unmount: " + err.Error(), ""}
	}
	if !ends(m) {
		return finding{check, false, "does not end when unmounted", ""}
	}
	if err := os.Remove(dir); err != nil {
		f.Advice = err.Error()
	}
	return f
}

// mountTemporarily mounts source at a new directory, which is gone again if
// that fails. The directory may well be inside source: nobody goes there.
func mountTemporarily(e env, source string) (m mounted, dir string, err error) {
	h := thisHost()
	if err := h.checkDevice(); err != nil {
		return nil, "", err
	}
	if !h.privileged {
		if err := checkFusermount(); err != nil {
			return nil, "", err
		}
	}
	if dir, err = os.MkdirTemp("", "tunefs-doctor-"); err != nil {
		return nil, "", err
	}
	if m, err = e.mount(source, dir, fs.Options{Policy: policy.Policy{IO: policy.Auto}}); err != nil {
		_ = os.Remove(dir) // the first error is the one to tell
	}
	return m, dir, err
}

// ends waits for an unmounted mount to be given back.
func ends(m mounted) bool {
	done := make(chan struct{})
	go func() {
		m.Wait()
		close(done)
	}()
	select {
	case <-done:
		return true
	case <-time.After(patience):
		return false
	}
}

// tryFiles tries what SOURCE's filesystem can do, on files without a name:
// they vanish with their descriptors.
func tryFiles(source string) []finding {
	fd, err := nameless(source, 0)
	if err != nil {
		reason := "not tried: no file can be made there for it (" + err.Error() + ")"
		return []finding{
			{"O_DIRECT", false, reason, "give a SOURCE that you can write to"},
			{"user xattrs", false, reason, ""},
			{"reflink", false, reason, ""},
		}
	}
	defer unix.Close(fd)
	return []finding{tryDirect(source), tryXattr(fd), tryReflink(source, fd)}
}

// nameless opens a new file in dir that has no name.
func nameless(dir string, flags int) (int, error) {
	return unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC|flags, 0o600)
}

func tryDirect(source string) finding {
	const check = "O_DIRECT"
	fd, err := nameless(source, unix.O_DIRECT)
	if err != nil {
		return finding{check, false, "not possible: " + err.Error(), "put SOURCE on a disk filesystem such as ext4 or xfs"}
	}
	defer unix.Close(fd)
	var st unix.Statx_t
	err = unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &st)
	if err != nil || st.Mask&unix.STATX_DIOALIGN == 0 {
		return finding{check, true, "possible; the filesystem does not tell the alignment", ""}
	}
	if st.Dio_offset_align == 0 {
		return finding{check, false, "taken, but the filesystem does not do it", "put SOURCE on a disk filesystem such as ext4 or xfs"}
	}
	return finding{check, true, fmt.Sprintf("possible; aligned to %d bytes in memory, %d in the file", st.Dio_mem_align, st.Dio_offset_align), ""}
}

func tryXattr(fd int) finding {
	const check = "user xattrs"
	if err := unix.Fsetxattr(fd, "user.tunefs.doctor", []byte("1"), 0); err != nil {
		return finding{check, false, "not possible: " + err.Error(), "put SOURCE on a filesystem that has them, such as ext4 or xfs"}
	}
	return finding{check, true, "possible", ""}
}

// tryReflink clones a file of one block into another.
func tryReflink(source string, from int) finding {
	const check = "reflink"
	if _, err := unix.Write(from, make([]byte, 64<<10)); err != nil {
		return finding{check, false, "not tried: " + err.Error(), ""}
	}
	to, err := nameless(source, 0)
	if err != nil {
		return finding{check, false, "not tried: " + err.Error(), ""}
	}
	defer unix.Close(to)
	if err := unix.IoctlFileClone(to, from); err != nil {
		return finding{check, false, "not possible: " + err.Error(), "xfs and btrfs have it; without it copies are real copies"}
	}
	return finding{check, true, "possible", ""}
}
