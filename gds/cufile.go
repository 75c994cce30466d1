package gds

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// CuFileOptions say how to open cuFile.
type CuFileOptions struct {
	// Library is the path of libcufile.so.0. If it is empty, the loader's
	// folders are searched, and then those where CUDA usually is.
	Library string
	// Log is told, once for each reason, that cuFile failed where the kernel
	// did not.
	Log *slog.Logger
}

// CuFile is NVIDIA's cuFile with its driver open. Its methods may be called from
// several goroutines at once, but Close only after all others have returned.
type CuFile struct {
	calls     cufileCalls
	info      CuFileInfo
	maxPiece  int // bytes
	log       onceLog
	home      cufileHome
	overruled atomic.Int64
	files     atomic.Int64 // registered and not deregistered
	pinned    pinnedMemory
}

// CuFileInfo is what the library says of itself.
type CuFileInfo struct {
	Path    string // of the library
	Version string // 1.9, for example; "before 1.8" for those that don't say
	// Module is the version of the kernel module nvidia-fs. Without it, when
	// this is empty, cuFile does plain direct I/O: its compatibility mode.
	Module    string
	MaxDirect int // bytes that one request of nvidia-fs carries at most
	MaxBatch  int // requests in one batch at most
}

// cufileCalls are the functions of libcufile that are used.
type cufileCalls interface {
	open() error
	close() error
	version() int // 1090 is 1.9.0; 0 if the library cannot tell
	properties() (cufileProperties, error)
	register(fd int) (handle uintptr, err error)
	deregister(handle uintptr)
	pin(base unsafe.Pointer, n int) error
	unpin(base unsafe.Pointer) error
	// read and write move n bytes between base+skip and the place off in the
	// file, or fewer. If base+skip is in pinned memory, base is its beginning.
	read(handle uintptr, base unsafe.Pointer, n int, off, skip int64) (int, error)
	write(handle uintptr, base unsafe.Pointer, n int, off, skip int64) (int, error)
}

type cufileProperties struct {
	nvfsMajor, nvfsMinor int
	maxDirect            int // bytes
	maxBatch             int
}

// cufileProcess is what libcufile is: one for the whole process.
var cufileProcess struct {
	sync.Mutex // held while it is opened, which changes the environment for a while
	opened     bool
}

// OpenCuFile loads cuFile and opens its driver. A process can do so once; what
// failed to load may be tried again.
//
// From then on the process must not fork, not even to run a program (os/exec):
// the library has threads and memory known to the driver that a child cannot
// have. And since it changes the environment of the process while it runs, no
// other thread may use that meanwhile.
//
// libcufile is kept from writing a log into the working directory: it goes to a
// private folder until Close, unless CUFILE_LOGFILE_PATH or the configuration
// (CUFILE_ENV_PATH_JSON or /etc/cufile.json) says where else. Some of its
// errors it also prints to standard error.
func OpenCuFile(o CuFileOptions) (*CuFile, error) {
	cufileProcess.Lock()
	defer cufileProcess.Unlock()
	if cufileProcess.opened {
		return nil, errors.New("cuFile was opened before, and a process can do that once")
	}
	home, err := newCuFileHome()
	if err != nil {
		return nil, fmt.Errorf("a folder for cuFile: %w", err)
	}
	c := &CuFile{log: onceLog{log: o.Log}, home: home}
	if err := c.start(o.Library); err != nil {
		return nil, errors.Join(err, home.remove())
	}
	return c, nil
}

func (c *CuFile) start(library string) (err error) {
	restore, err := c.home.setenv()
	if err != nil {
		return fmt.Errorf("a configuration for cuFile: %w", err)
	}
	defer restore()
	if c.calls, c.info.Path, err = loadCuFile(library); err != nil {
		return err
	}
	cufileProcess.opened = true
	if err := c.calls.open(); err != nil {
		if why := c.home.firstError(); why != "" {
			err = fmt.Errorf("%w; its log: %s", err, why)
		}
		return err
	}
	if err := c.learn(); err != nil {
		return errors.Join(err, c.calls.close())
	}
	return nil
}

// learn finds out what the open library can do.
func (c *CuFile) learn() error {
	c.info.Version = versionText(c.calls.version())
	p, err := c.calls.properties()
	if err != nil {
		return err
	}
	c.info.MaxDirect, c.info.MaxBatch = p.maxDirect, p.maxBatch
	if p.nvfsMajor != 0 || p.nvfsMinor != 0 {
		c.info.Module = fmt.Sprintf("%d.%d", p.nvfsMajor, p.nvfsMinor)
	}
	// More at a time would be cut up inside.
	c.maxPiece = max(p.maxDirect&^(pieceGrid-1), pieceGrid)
	return nil
}

// pieceGrid keeps pieces aligned for every filesystem, in bytes.
const pieceGrid = 64 << 10

// versionText reads 1000*major + 10*minor + patch.
func versionText(v int) string {
	switch {
	case v == 0:
		return "before 1.8"
	case v%10 != 0:
		return fmt.Sprintf("%d.%d.%d", v/1000, v%1000/10, v%10)
	}
	return fmt.Sprintf("%d.%d", v/1000, v%1000/10)
}

// Info is what the library says of itself.
func (c *CuFile) Info() CuFileInfo { return c.info }

// Overruled is how many requests failed in cuFile and were then done by the
// kernel, in whole or in part.
func (c *CuFile) Overruled() int64 { return c.overruled.Load() }

// Registered is how many files and pieces of memory are registered now.
func (c *CuFile) Registered() (files, memory int) {
	return int(c.files.Load()), c.pinned.len()
}

// Close closes the driver, after it has unpinned what memory is still pinned.
// While files are open it does nothing and returns EBUSY. Nothing may be done
// with c after it has closed.
func (c *CuFile) Close() error {
	if n := c.files.Load(); n > 0 {
		return fmt.Errorf("%d files are registered with cuFile: %w", n, unix.EBUSY)
	}
	return errors.Join(c.pinned.drop(c.calls), c.calls.close(), c.home.remove())
}

// tell logs, once for each text, that cuFile failed with err where the kernel
// did the same without an error.
func (c *CuFile) tell(err error) {
	c.overruled.Add(1)
	c.log.warn("cuFile failed and the kernel did its work; this is slower", err)
}
