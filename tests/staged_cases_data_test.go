package tests

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// withFile runs do with a file of dir that is open with flags.
func withFile(dir, name string, flags int, do func(fd int) error) error {
	fd, err := unix.Open(filepath.Join(dir, name), flags|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return fmt.Errorf("open %s: %w", name, err)
	}
	return errors.Join(do(fd), unix.Close(fd))
}

const createNew = unix.O_RDWR | unix.O_CREAT | unix.O_EXCL

// sizeOf is a file's size.
func sizeOf(fd int) string {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return fmt.Sprintln("size", st.Size, err)
}

// caseSizes has the size follow each write, whoever asks.
func caseSizes(dir string) (saw string, err error) {
	return saw, withFile(dir, "file", createNew, func(fd int) error {
		for i, n := range []int{1, 100, 4096, 5000, 1 << 20, 3<<20 + 1} {
			if err := writeFD(fd, stagedBytes(i, n), int64(i)*3<<20); err != nil {
				return err
			}
			var st unix.Stat_t
			err := unix.Stat(filepath.Join(dir, "file"), &st)
			saw += sizeOf(fd) + fmt.Sprintln(st.Size, err)
			if err := pushFD(fd); err != nil {
				return err
			}
			saw += sizeOf(fd)
		}
		end, err := unix.Seek(fd, 0, unix.SEEK_END)
		saw += fmt.Sprintln("end", end, err)
		return nil
	})
}

// caseBlocks wants the right number of blocks after the close. Before, FUSE's kernel side does not keep count, but none
// at all would make programs take the file for one large hole.
func caseBlocks(dir string) (saw string, err error) {
	var before, after unix.Stat_t
	err = withFile(dir, "file", createNew, func(fd int) error {
		return errors.Join(writeFD(fd, stagedBytes(1, 3<<20), 0), pushFD(fd), unix.Fstat(fd, &before), unix.Fsync(fd), unix.Fstat(fd, &after))
	})
	saw = fmt.Sprintln(before.Blocks > 0, after.Blocks > 0)
	err = errors.Join(err, unix.Stat(filepath.Join(dir, "file"), &after))
	return saw + fmt.Sprintln(after.Blocks >= after.Size/512, after.Size), err
}

// caseHoles writes pieces far from each other and asks for the holes between.
func caseHoles(dir string) (saw string, err error) {
	return saw, withFile(dir, "file", createNew, func(fd int) error {
		for i, off := range []int64{5 << 20, 1 << 20, 40<<20 + 4096, 100 << 20} {
			if err := writeFD(fd, stagedBytes(i, 20<<10), off); err != nil {
				return err
			}
		}
		for off := int64(0); ; {
			data, err := unix.Seek(fd, off, unix.SEEK_DATA)
			saw += fmt.Sprintln("data", data, err)
			if err != nil {
				return nil
			}
			off, err = unix.Seek(fd, data, unix.SEEK_HOLE)
			saw += fmt.Sprintln("hole", off, err)
			if err != nil {
				return nil
			}
		}
	})
}

// readAll is a digest of what a reader finds.
func readAll(dir, name string) string {
	b, err := os.ReadFile(filepath.Join(dir, name))
	return fmt.Sprintf("%s: %d bytes, sum %x, error %v\n", name, len(b), sumOf(b), err != nil)
}

func sumOf(b []byte) (sum uint64) {
	for _, c := range b {
		sum = sum*1099511628211 + uint64(c) + 1
	}
	return sum
}

// caseTruncate cuts and lengthens while data is staged, by descriptor, by name and at open.
func caseTruncate(dir string) (saw string, err error) {
	return saw, withFile(dir, "file", createNew, func(fd int) error {
		path := filepath.Join(dir, "file")
		for i, size := range []int64{100000, 5, 1 << 20, 300001, 0, 4096, 2<<20 + 5} {
			if err := writeFD(fd, stagedBytes(i, 700001), int64(i)*100); err != nil {
				return err
			}
			if i%2 == 0 {
				if err := pushFD(fd); err != nil {
					return err
				}
			}
			cut := func() error { return unix.Ftruncate(fd, size) }
			if i%3 == 0 {
				cut = func() error { return unix.Truncate(path, size) }
			}
			if err := cut(); err != nil {
				return err
			}
			saw += sizeOf(fd) + readAll(dir, "file")
		}
		if err := withFile(dir, "file", unix.O_WRONLY|unix.O_TRUNC, func(fd int) error { return writeFD(fd, []byte("short"), 3) }); err != nil {
			return err
		}
		saw += sizeOf(fd) + readAll(dir, "file")
		return nil
	})
}

// caseFallocate uses those of fallocate's modes that FUSE has over staged data.
func caseFallocate(dir string) (saw string, err error) {
	return saw, withFile(dir, "file", createNew, func(fd int) error {
		for i, m := range []struct {
			mode    uint32
			off, n  int64
			staging int64
		}{
			{0, 1 << 20, 1 << 20, 0},
			{unix.FALLOC_FL_KEEP_SIZE, 3 << 20, 1 << 20, 100},
			{unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE, 5000, 70000, 0},
			{unix.FALLOC_FL_ZERO_RANGE, 100001, 300000, 4096},
			{unix.FALLOC_FL_ZERO_RANGE | unix.FALLOC_FL_KEEP_SIZE, 1 << 20, 8 << 20, 77},
		} {
			if err := writeFD(fd, stagedBytes(i, 500000), m.staging); err != nil {
				return err
			}
			if i%2 == 1 {
				if err := pushFD(fd); err != nil {
					return err
				}
			}
			saw += fmt.Sprintf("mode %x: %v\n", m.mode, unix.Fallocate(fd, m.mode, m.off, m.n)) + sizeOf(fd) + readAll(dir, "file")
		}
		return nil
	})
}

// caseCopyRange copies staged data onto staged data, within a file and between two.
func caseCopyRange(dir string) (saw string, err error) {
	err = withFile(dir, "from", createNew, func(from int) error {
		return withFile(dir, "to", createNew, func(to int) error {
			err := errors.Join(writeFD(from, stagedBytes(1, 900000), 10), writeFD(to, stagedBytes(2, 300000), 0), pushFD(from))
			if err != nil {
				return err
			}
			for i, fds := range [][2]int{{from, to}, {to, from}, {from, from}} {
				in, out := int64(i)*1000, 1<<20+int64(i)*400000
				n, err := copyAll(fds[0], &in, fds[1], &out, 300000)
				saw += fmt.Sprintln("copied", n, err) + sizeOf(fds[1]) + readAll(dir, "from") + readAll(dir, "to")
				if err := writeFD(fds[0], stagedBytes(i, 100000), 1<<20); err != nil {
					return err
				}
			}
			return nil
		})
	})
	return saw, err
}

// copyAll is copy_file_range(2) until all is done.
func copyAll(from int, in *int64, to int, out *int64, n int) (done int, err error) {
	for done < n {
		m, err := unix.CopyFileRange(from, in, to, out, n-done, 0)
		if err != nil || m == 0 {
			return done, err
		}
		done += m
	}
	return done, nil
}

// caseReaders: another handle sees each write at once.
func caseReaders(dir string) (saw string, err error) {
	return saw, withFile(dir, "file", createNew, func(writer int) error {
		return withFile(dir, "file", unix.O_RDONLY, func(reader int) error {
			return withFile(dir, "file", unix.O_RDWR, func(other int) error {
				for i := range 40 {
					off, b := int64(i)*30011, make([]byte, 50000)
					if err := writeFD([]int{writer, other}[i%2], stagedBytes(i, 40000), off); err != nil {
						return err
					}
					if i%5 == 0 {
						if err := pushFD(writer); err != nil {
							return err
						}
					}
					n, err := unix.Pread(reader, b, off)
					saw += fmt.Sprintf("%d: %d, %x, %v, %s", i, n, sumOf(b[:n]), err, sizeOf(reader))
				}
				return nil
			})
		})
	})
}

// caseWriteOnly writes files that may not be read.
func caseWriteOnly(dir string) (saw string, err error) {
	for _, mode := range []uint32{0o200, 0o222, 0o600} {
		name := fmt.Sprintf("%o", mode)
		err := withFile(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, func(fd int) error {
			return errors.Join(unix.Fchmod(fd, mode), writeFD(fd, stagedBytes(int(mode), 123456), 77))
		})
		if err != nil {
			return saw, err
		}
		err = withFile(dir, name, unix.O_WRONLY, func(fd int) error {
			err := errors.Join(writeFD(fd, stagedBytes(1, 5001), 4000), pushFD(fd), writeFD(fd, stagedBytes(2, 1), 200000))
			saw += sizeOf(fd)
			return err
		})
		if err != nil {
			return saw, err
		}
		if err := os.Chmod(filepath.Join(dir, name), 0o644); err != nil {
			return saw, err
		}
		saw += readAll(dir, name)
	}
	return saw, nil
}

// caseAppend mixes handles that append with others.
func caseAppend(dir string) (saw string, err error) {
	return saw, withFile(dir, "file", createNew|unix.O_APPEND, func(appends int) error {
		return withFile(dir, "file", unix.O_RDWR, func(fd int) error {
			for i := range 30 {
				b := stagedBytes(i, 5000+i)
				n, err := unix.Write(appends, b)
				saw += fmt.Sprintln(n, err) + sizeOf(fd)
				if err := writeFD(fd, b, int64(i)*9000); err != nil {
					return err
				}
				saw += sizeOf(appends) + readAll(dir, "file")
			}
			return nil
		})
	})
}

// caseMmap stores through a mapping, and reads through it what is written.
func caseMmap(dir string) (saw string, err error) {
	return saw, withFile(dir, "file", createNew, func(fd int) error {
		const size = 600001
		if err := writeFD(fd, stagedBytes(1, size), 0); err != nil {
			return err
		}
		m, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			return err
		}
		defer unix.Munmap(m)
		for i := range 20 {
			copy(m[i*20000:], stagedBytes(i, 3000))
			if err := writeFD(fd, stagedBytes(i+50, 4000), int64(i)*20000+2000); err != nil {
				return err
			}
			saw += fmt.Sprintf("%x %s", sumOf(m), readAll(dir, "file"))
			if i%4 == 0 {
				saw += fmt.Sprintln(unix.Msync(m, unix.MS_SYNC))
			}
		}
		copy(m, "the last store")
		return nil
	})
}
