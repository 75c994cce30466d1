package staging

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Lost is a range that could not be written to the backing file.
type Lost struct {
	File *File
	Off  int64
	Len  int64
	Err  error // why; unwraps to a syscall.Errno where the backing's did
}

func (l Lost) String() string {
	return fmt.Sprintf("%d bytes at %d: %v", l.Len, l.Off, l.Err)
}

func writeError(off int64, n int, err error) error {
	return fmt.Errorf("write %d bytes at %d: %w", n, off, err)
}

func interrupted(err error) bool { return errors.Is(err, unix.EINTR) }
