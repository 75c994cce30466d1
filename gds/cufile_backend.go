package gds

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"tunefs/staging"
)

// cufile writes and reads a file through cuFile.
type cufile struct {
	lib    *CuFile
	direct *direct // its descriptor is the registered one
	handle uintptr
}

var _ backend = (*cufile)(nil)

// openCuFile opens the file behind fd once more, for cuFile.
func openCuFile(lib *CuFile, fd int) (*cufile, error) {
	d, err := openDirect(fd)
	if err != nil {
		return nil, err
	}
	handle, err := lib.register(d.fd)
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	return &cufile{lib, d, handle}, nil
}

// register tells cuFile about a descriptor of direct I/O.
func (c *CuFile) register(fd int) (uintptr, error) {
	if err := clearNonblock(fd); err != nil {
		return 0, err
	}
	handle, err := c.calls.register(fd)
	if err != nil {
		return 0, registerHint(err, fd)
	}
	c.files.Add(1)
	return handle, nil
}

// clearNonblock takes O_NONBLOCK off, which cuFile does not suffer (5019) and
// files on disks don't need.
func clearNonblock(fd int) error {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags&^unix.O_NONBLOCK)
	}
	if err != nil {
		return fmt.Errorf("fcntl: %w", err)
	}
	return nil
}

func (f *cufile) way() way { return wayCuFile }

// align wants whole pages even where half of one would do: what is not aligned
// goes through a descriptor that cuFile opens by the name which the file has, or
// had, and behind which there may be another file.
func (f *cufile) align() staging.Alignment {
	a := f.direct.align()
	return staging.Alignment{Memory: max(a.Memory, cufileGrid), Offset: max(a.Offset, cufileGrid)}
}

// cufileGrid is what cuFile takes for aligned, in bytes.
const cufileGrid = 4096

// close deregisters the descriptor first: cuFile tells files apart by its number.
func (f *cufile) close() error {
	f.lib.calls.deregister(f.handle)
	f.lib.files.Add(-1)
	return f.direct.close()
}

func (f *cufile) write(p []byte, off int64) (int, error) {
	return f.move(p, off, f.lib.calls.write, f.direct.write)
}

func (f *cufile) read(p []byte, off int64) (int, error) {
	return f.move(p, off, f.lib.calls.read, f.direct.read)
}

// cufileMove is the type of cufileCalls' read and write.
type cufileMove func(handle uintptr, base unsafe.Pointer, n int, off, skip int64) (int, error)

// move goes through p in pieces, until all of it is done, nothing goes on, or
// what is left would not be aligned.
//
// When cuFile fails, the kernel is asked to do the rest, since its word is the
// one to believe: where a filesystem is full, cuFile says EIO instead of ENOSPC,
// and does not say how much of a piece it has written.
func (f *cufile) move(p []byte, off int64, cu cufileMove, kernel func([]byte, int64) (int, error)) (int, error) {
	done := 0
	for done < len(p) {
		piece := p[done:min(done+f.lib.maxPiece, len(p))]
		base, skip := f.lib.pinned.place(piece)
		n, err := cu(f.handle, base, len(piece), off+int64(done), skip)
		if errors.Is(err, unix.EINTR) {
			return done, unix.EINTR
		}
		if err != nil {
			n, kernelErr := kernel(p[done:], off+int64(done))
			if kernelErr == nil {
				f.lib.tell(err)
			}
			return done + max(n, 0), kernelErr
		}
		done += n
		if n == 0 || int64(n)%f.align().Offset != 0 {
			break
		}
	}
	return done, nil
}
