package gds

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"tunefs/staging"
)

// backend writes and reads aligned extents of one file past its page cache.
type backend interface {
	way() way
	align() staging.Alignment
	// write may write less. EINVAL says that the file does not take such
	// extents after all.
	write(p []byte, off int64) (int, error)
	// read may read less, at the end of the file and elsewhere.
	read(p []byte, off int64) (int, error)
	close() error
}

// direct is O_DIRECT.
type direct struct {
	fd    int
	wants staging.Alignment
}

var errNoDirect = errors.New("the filesystem has no direct I/O for this file")

// openDirect opens the file behind fd once more, for what fd is open for. Where
// the file's mode forbids one of reading and writing by now, it is open for the
// other.
func openDirect(fd int) (*direct, error) {
	wants, err := directAlignment(fd)
	if err != nil {
		return nil, err
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return nil, fmt.Errorf("fcntl: %w", err)
	}
	access := flags & unix.O_ACCMODE
	d, err := openAgain(fd, access|unix.O_DIRECT)
	if err == unix.EACCES && access == unix.O_RDWR {
		d, err = openAgain(fd, unix.O_WRONLY|unix.O_DIRECT)
	}
	if err != nil {
		return nil, fmt.Errorf("open with O_DIRECT: %w", err)
	}
	return &direct{d, wants}, nil
}

// openAgain opens the file behind fd afresh, so that the flags are its own,
// whatever its name is by now.
func openAgain(fd, flags int) (again int, err error) {
	err = retry(func() (err error) {
		again, err = unix.Open("/proc/self/fd/"+strconv.Itoa(fd), flags|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		return err
	})
	return again, err
}

func (d *direct) way() way                 { return wayDirect }
func (d *direct) align() staging.Alignment { return d.wants }
func (d *direct) close() error             { return unix.Close(d.fd) }

func (d *direct) write(p []byte, off int64) (int, error) {
	return unix.Pwrite(d.fd, p, off)
}

func (d *direct) read(p []byte, off int64) (int, error) {
	return unix.Pread(d.fd, p, off)
}

// directAlignment is what direct I/O on the file behind fd wants: what the
// filesystem says, or else the logical block size of its device, or else what
// suits every device.
func directAlignment(fd int) (staging.Alignment, error) {
	const most = 4096
	var st unix.Statx_t
	err := retry(func() error {
		return unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &st)
	})
	if err != nil {
		return staging.Alignment{}, fmt.Errorf("statx: %w", err)
	}
	if st.Mask&unix.STATX_DIOALIGN != 0 {
		if st.Dio_offset_align == 0 {
			return staging.Alignment{}, errNoDirect
		}
		return staging.Alignment{Memory: int64(st.Dio_mem_align), Offset: int64(st.Dio_offset_align)}, nil
	}
	if n := logicalBlock(st.Dev_major, st.Dev_minor); n > 0 {
		return staging.Alignment{Memory: n, Offset: n}, nil
	}
	return staging.Alignment{Memory: most, Offset: most}, nil
}

// logicalBlock is the logical block size of a block device, in bytes, or 0 if
// it has none that can be used, or is no block device.
func logicalBlock(major, minor uint32) int64 {
	dev := fmt.Sprintf("/sys/dev/block/%d:%d", major, minor)
	for _, queue := range []string{"queue", "../queue"} { // of a disk, of a partition
		// The device is a symbolic link; only the kernel resolves .. after it.
		text, err := os.ReadFile(dev + "/" + filepath.FromSlash(queue) + "/logical_block_size")
		if err != nil {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err == nil && n >= 512 && n <= 4096 && n&(n-1) == 0 {
			return n
		}
	}
	return 0
}
