package fs

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// ioctlBuffer calls ioctl(2) with a pointer to buf, which must be as large as
// cmd says.
func ioctlBuffer(fd int, cmd uint, buf []byte) error {
	// Safe because buf outlives the call and its size was checked against cmd.
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(cmd), uintptr(unsafe.Pointer(&buf[0])))
	if errno != 0 {
		return errno
	}
	return nil
}
