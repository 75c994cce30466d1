package tests

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// caseNames renames, renames over, links and unlinks files with staged data.
func caseNames(dir string) (saw string, err error) {
	path := func(name string) string { return filepath.Join(dir, name) }
	for i, name := range []string{"a", "b", "c", "d"} {
		err := withFile(dir, name, createNew, func(fd int) error {
			return errors.Join(writeFD(fd, stagedBytes(i, 100000+i), int64(i)), pushFD(fd))
		})
		if err != nil {
			return saw, err
		}
	}
	err = withFile(dir, "a", unix.O_RDWR, func(fd int) error {
		err := errors.Join(writeFD(fd, stagedBytes(9, 5000), 3000), os.Rename(path("a"), path("b")), os.Link(path("b"), path("e")),
			writeFD(fd, stagedBytes(10, 5000), 300000), os.Remove(path("b")), exchange(path("c"), path("d")), os.Rename(path("d"), path("a")))
		saw += readAll(dir, "e") + readAll(dir, "a") + readAll(dir, "c") + readAll(dir, "b") + sizeOf(fd)
		return err
	})
	return saw + readAll(dir, "e"), err
}

// caseModes: what a program sets after a write stays, and a write takes privileges off.
func caseModes(dir string) (saw string, err error) {
	return saw, withFile(dir, "file", createNew, func(fd int) error {
		mode := func() string {
			var st unix.Stat_t
			err := unix.Fstat(fd, &st)
			return fmt.Sprintf("mode %o, %v\n", st.Mode, err)
		}
		for i, bits := range []uint32{0o4755, 0o6777, 0o2755, 0o644} {
			if err := errors.Join(writeFD(fd, stagedBytes(i, 70000), int64(i)*50000), unix.Fchmod(fd, bits)); err != nil {
				return err
			}
			saw += mode()
			if err := unix.Fsync(fd); err != nil {
				return err
			}
			saw += mode()
			if err := errors.Join(writeFD(fd, []byte("x"), 5), unix.Fsync(fd)); err != nil {
				return err
			}
			saw += mode()
			if err := errors.Join(writeFD(fd, []byte("y"), 7), pushFD(fd), unix.Fchmod(fd, 0o4711)); err != nil {
				return err
			}
			saw += mode()
		}
		return nil
	})
}

// caseTimes: a time that was set stays, whatever leaves later, until the next write.
func caseTimes(dir string) (saw string, err error) {
	old := unix.NsecToTimespec(987654321_123456789)
	return saw, withFile(dir, "file", createNew, func(fd int) error {
		mtime := func(what string) {
			var st unix.Stat_t
			err := unix.Fstat(fd, &st)
			saw += fmt.Sprintln(what, st.Mtim == old, time.Since(time.Unix(st.Mtim.Unix())) < time.Minute, err)
		}
		set := func() error { return futimens(fd, &[2]unix.Timespec{{Nsec: unix.UTIME_OMIT}, old}) }
		for i := range 3 {
			if err := writeFD(fd, stagedBytes(i, 100000), int64(i)*100000); err != nil {
				return err
			}
			mtime("written")
			if i == 1 {
				if err := pushFD(fd); err != nil {
					return err
				}
			}
			if err := set(); err != nil {
				return err
			}
			mtime("set")
			time.Sleep(10 * time.Millisecond)
			mtime("later")
			if err := unix.Fsync(fd); err != nil {
				return err
			}
			mtime("synced")
		}
		return nil
	})
}

// caseChanges: what changes a file moves its time, and what does not change it leaves that alone.
func caseChanges(dir string) (saw string, err error) {
	path := filepath.Join(dir, "file")
	changes := []struct {
		name string
		do   func(fd int) error
	}{
		{"write", func(fd int) error { return writeFD(fd, []byte("hello"), 10) }},
		{"write nothing", func(fd int) error { return writeFD(fd, nil, 10) }},
		{"push", pushFD},
		{"fsync", unix.Fsync},
		{"truncate at open", func(int) error {
			return withFile(dir, "file", unix.O_RDWR|unix.O_TRUNC, func(int) error { return nil })
		}},
		{"write again", func(fd int) error { return writeFD(fd, stagedBytes(1, 100000), 0) }},
		{"ftruncate", func(fd int) error { return unix.Ftruncate(fd, 50000) }},
		{"truncate", func(int) error { return unix.Truncate(path, 60000) }},
		{"fallocate", func(fd int) error { return unix.Fallocate(fd, 0, 0, 80000) }},
		{"punch", func(fd int) error {
			return unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 4096, 8192)
		}},
		{"append", func(int) error {
			return withFile(dir, "file", unix.O_WRONLY|unix.O_APPEND, func(fd int) error { return second(unix.Write(fd, []byte("x"))) })
		}},
		{"chmod", func(fd int) error { return unix.Fchmod(fd, 0o600) }},
		{"link", func(int) error { return os.Link(path, path+"2") }},
		{"rename", func(int) error { return os.Rename(path+"2", path+"3") }},
		{"read", func(fd int) error { return readFD(fd, make([]byte, 1000), 0) }},
		{"copy", func(fd int) error {
			in, out := int64(0), int64(200000)
			return second(copyAll(fd, &in, fd, &out, 10000))
		}},
		{"touch", func(int) error { return unix.UtimesNanoAt(unix.AT_FDCWD, path, nil, 0) }},
		{"set", func(int) error { return os.Chtimes(path, time.Unix(5, 6), time.Unix(7, 8)) }},
		{"close", func(int) error { return withFile(dir, "file", unix.O_RDWR, func(int) error { return nil }) }},
	}
	return saw, withFile(dir, "file", createNew, func(fd int) error {
		var last, st unix.Stat_t
		for _, c := range changes {
			err := unix.Stat(path, &last)
			time.Sleep(15 * time.Millisecond) // longer than the kernel's clock for times takes to move
			if err := errors.Join(err, c.do(fd), unix.Stat(path, &st)); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			saw += fmt.Sprintln(c.name, st.Mtim != last.Mtim, time.Since(time.Unix(st.Mtim.Unix())) < time.Minute)
		}
		return nil
	})
}

// caseUnlinked uses a file that has no name any more, and one that never had.
func caseUnlinked(dir string) (saw string, err error) {
	use := func(fd int) error {
		b := make([]byte, 200000)
		err := errors.Join(writeFD(fd, stagedBytes(1, 200000), 100), pushFD(fd), unix.Ftruncate(fd, 150000), writeFD(fd, stagedBytes(2, 7), 160000),
			readFD(fd, b, 0), unix.Fsync(fd))
		saw += fmt.Sprintf("%x %s", sumOf(b), sizeOf(fd))
		return err
	}
	err = withFile(dir, "file", createNew, func(fd int) error {
		return errors.Join(writeFD(fd, stagedBytes(3, 50000), 0), os.Remove(filepath.Join(dir, "file")), use(fd))
	})
	if err != nil {
		return saw, err
	}
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return saw, err
	}
	err = errors.Join(use(fd), unix.Linkat(unix.AT_FDCWD, fdPath(fd), unix.AT_FDCWD, filepath.Join(dir, "linked"), unix.AT_SYMLINK_FOLLOW), unix.Close(fd))
	return saw + readAll(dir, "linked"), err
}
