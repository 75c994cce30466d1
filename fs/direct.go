package fs

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// noDirect in file.direct says that the backing filesystem has no O_DIRECT.
const noDirect = -1

// directAlign is what O_DIRECT wants at most of memory, offset and length on
// filesystems that are in use: a page. What is less aligned goes through the
// backing filesystem's cache.
const directAlign = 4096

// fdFor is the descriptor for a request on a handle with these flags, which are
// those of this moment: programs switch O_DIRECT on and off.
func (f *file) fdFor(flags uint32, buf []byte, off uint64) int {
	if flags&unix.O_DIRECT == 0 || !aligned(buf, off) {
		return f.fd
	}
	fd := f.direct.Load()
	if fd == 0 {
		fd = f.openDirect()
	}
	if fd == noDirect {
		return f.fd
	}
	return int(fd)
}

// openDirect opens the second descriptor, unless another request was faster.
func (f *file) openDirect() int32 {
	fd, err := unix.Open(procPath(f.fd), int(f.access)|unix.O_DIRECT|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		fd = noDirect
	}
	if !f.direct.CompareAndSwap(0, int32(fd)) && fd > 0 {
		close_(fd)
	}
	return f.direct.Load()
}

func aligned(buf []byte, off uint64) bool {
	return len(buf) > 0 && (uint64(uintptr(unsafe.Pointer(&buf[0])))|off|uint64(len(buf)))%directAlign == 0
}
