package main

import (
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sys/unix"
)

// claimPatience is how long a staged mount waits for another one of the same
// directory, which may be writing out its data after its unmount.
const claimPatience = 30 * time.Second

// claim keeps other staged mounts away from the directory source for as long
// as this process lives: two of them would write over each other's data. It
// waits for one that is unmounted already, and refuses while one is mounted.
func claim(source string, log *slog.Logger) error {
	fd, err := unix.Open(source, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("SOURCE %s: %w", source, err)
	}
	lock := func() error {
		return ignoringEINTR(func() error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) })
	}
	err = lock()
	for end := time.Now().Add(claimPatience); err == unix.EWOULDBLOCK; err = lock() {
		if point := mountOf(source); point != "" || time.Now().After(end) {
			unix.Close(fd)
			return inUse(source, point)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err != nil {
		log.Debug("SOURCE cannot be locked against other staged mounts", "source", source, "err", err)
		return unix.Close(fd)
	}
	return nil // the descriptor, and with it the lock, stays open until we end
}

func inUse(source, point string) error {
	if point == "" {
		return fmt.Errorf("SOURCE %s is in use by another staged mount, or still being written to by one that was unmounted: wait for that process to end", source)
	}
	return fmt.Errorf("SOURCE %s is mounted at %s already, and can be staged by one mount only: use that, or 'tunefs umount %s' first", source, point, point)
}

// mountOf is where a tunefs mount shows source, or "".
func mountOf(source string) string {
	mounts, err := readMounts()
	if err != nil {
		return ""
	}
	for _, m := range mounts {
		if m.fstype == fsType && m.source == source {
			return m.point
		}
	}
	return ""
}
