package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// coldMiB is the size of the file that is read from the disk.
const coldMiB = 1 << 10

// coldReadRows reads a file from beginning to end that no memory of this machine holds.
func (s *Setup) coldReadRows(ctx context.Context, writer string) ([]Row, error) {
	if kind, err := filesystemType(s.Dir); err != nil || kind == "tmpfs" {
		return nil, err // memory is all there is
	}
	filesystems := []Filesystem{
		Native, s.tunefs("staged", "staged"), s.tunefs("staged, direct reads", "staged", "--direct-reads"),
	}
	var all []Row
	err := s.withAll(ctx, filesystems, func(subjects []*Attached) error {
		for _, subject := range subjects {
			if err := writeBehind(ctx, writer, subject, coldMiB); err != nil {
				return err
			}
		}
		for _, size := range []string{"128k", "1m"} {
			job := fioJob{work: "cold read by " + size, rw: "read", bs: size, mib: coldMiB, unit: MiBPerSecond, cold: true}
			more, err := s.fioRows(ctx, "staged reads", job, subjects)
			if err != nil {
				return err
			}
			all = append(all, more...)
		}
		return nil
	})
	return all, err
}

// forget makes the kernel drop what it has in memory of the subject's file, on both sides of the mount. Dropping all
// caches would be left to root, and slow down whatever else runs.
func (a *Attached) forget() error {
	for _, dir := range []string{a.Dir, a.source} {
		if err := dropCached(filepath.Join(dir, stagedFile)); err != nil {
			return err
		}
	}
	return nil
}

// dropCached drops the pages of a file, which must be clean, and sees whether they are gone.
func dropCached(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		return fmt.Errorf("dropping %s from memory: %w", path, err)
	}
	var left unix.Cachestat_t
	err = unix.Cachestat(uint(file.Fd()), &unix.CachestatRange{}, &left, 0)
	switch {
	case errors.Is(err, unix.ENOSYS):
		return nil // before Linux 6.5 it cannot be asked
	case err != nil:
		return fmt.Errorf("what is in memory of %s: %w", path, err)
	case left.Cache > 0:
		return fmt.Errorf("%s: %d pages stay in memory", path, left.Cache)
	}
	return nil
}
