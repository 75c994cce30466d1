//go:build cgo

package gds

/*
#cgo LDFLAGS: -ldl
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "cufile_abi.h"

// The text of dlerror belongs to the thread, so it is copied before Go may change threads. The caller frees it.
static void *load(const char *name, char **why)
{
	void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (!library)
		*why = strdup(dlerror());
	return library;
}

static const char *file_of(void *library)
{
	struct link_map *map;
	return dlinfo(library, RTLD_DI_LINKMAP, &map) ? "" : map->l_name;
}

static tunefs_cufile_status plain(void *f) { return ((tunefs_cufile_plain)f)(); }

static tunefs_cufile_status get_version(void *f, int *version) { return ((tunefs_cufile_get_version)f)(version); }

static tunefs_cufile_status get_properties(void *f, tunefs_cufile_properties *p)
{
	return ((tunefs_cufile_get_properties)f)(p);
}

// A handle is no pointer for Go: its garbage collector must never look at one.
static tunefs_cufile_status handle_register(void *f, int fd, uintptr_t *handle)
{
	tunefs_cufile_descr descr = { .type = TUNEFS_CUFILE_OPAQUE_FD, .file.fd = fd };
	void *h = NULL;
	tunefs_cufile_status s = ((tunefs_cufile_handle_register)f)(&h, &descr);
	*handle = (uintptr_t)h;
	return s;
}

static void handle_deregister(void *f, uintptr_t handle) { ((tunefs_cufile_handle_deregister)f)((void *)handle); }

static tunefs_cufile_status buf_register(void *f, void *base, size_t n)
{
	return ((tunefs_cufile_buf_register)f)(base, n, 0);
}

static tunefs_cufile_status buf_deregister(void *f, void *base) { return ((tunefs_cufile_buf_deregister)f)(base); }

typedef struct {
	ssize_t n;
	int err; // errno, taken before Go may run anything else on this thread
} moved;

static moved io_read(void *f, uintptr_t handle, void *base, size_t n, off_t off, off_t skip)
{
	errno = 0;
	ssize_t r = ((tunefs_cufile_read)f)((void *)handle, base, n, off, skip);
	return (moved){ r, errno };
}

static moved io_write(void *f, uintptr_t handle, void *base, size_t n, off_t off, off_t skip)
{
	errno = 0;
	ssize_t r = ((tunefs_cufile_write)f)((void *)handle, base, n, off, skip);
	return (moved){ r, errno };
}
*/
import "C"

import (
	"errors"
	"fmt"
	"unsafe"
)

// libcufile is the loaded library. It stays loaded: it cannot be unloaded.
type libcufile struct {
	driverOpen, driverClose, getProperties unsafe.Pointer
	handleRegister, handleDeregister       unsafe.Pointer
	bufRegister, bufDeregister             unsafe.Pointer
	ioRead, ioWrite                        unsafe.Pointer
	getVersion                             unsafe.Pointer // nil before cuFile 1.8
	cuda                                   error          // why libcuda was not found, if it was not
}

// loadCuFile loads the library from path, or from where it is if that is empty,
// and says where that was.
func loadCuFile(path string) (cufileCalls, string, error) {
	l := new(libcufile)
	// libcufile asks the loader for libcuda by its name alone, and gets one
	// that is loaded already, so one in a folder of CUDA is loaded here. It
	// is libcufile that says whether it can do without.
	_, l.cuda = loadFirst(librariesNamed("libcuda.so.1"))
	places := []string{path}
	if path == "" {
		places = librariesNamed("libcufile.so.0")
	}
	library, err := loadFirst(places)
	if err != nil {
		return nil, "", fmt.Errorf("loading cuFile: %w; "+
			"install NVIDIA's GPUDirect Storage library, libcufile, or say where its file is", err)
	}
	file := C.GoString(C.file_of(library))
	if err := l.find(library); err != nil {
		return nil, "", fmt.Errorf("loading cuFile: %s %w", file, err)
	}
	return l, file, nil
}

// loadFirst loads the first of several files that can be. Its error is the
// first one's, the loader's, which knows most folders.
func loadFirst(places []string) (library unsafe.Pointer, first error) {
	for _, place := range places {
		library, err := load(place)
		if err == nil {
			return library, nil
		}
		if first == nil {
			first = err
		}
	}
	return nil, first
}

func load(place string) (unsafe.Pointer, error) {
	name := C.CString(place)
	defer C.free(unsafe.Pointer(name))
	var why *C.char
	library := C.load(name, &why)
	if library == nil {
		defer C.free(unsafe.Pointer(why))
		return nil, errors.New(C.GoString(why))
	}
	return library, nil
}

// find looks up every function.
func (l *libcufile) find(library unsafe.Pointer) error {
	for _, s := range []struct {
		name string
		to   *unsafe.Pointer
	}{
		{"cuFileDriverOpen", &l.driverOpen},
		{"cuFileDriverClose_v2", &l.driverClose}, // what cufile.h makes of cuFileDriverClose
		{"cuFileDriverGetProperties", &l.getProperties},
		{"cuFileHandleRegister", &l.handleRegister},
		{"cuFileHandleDeregister", &l.handleDeregister},
		{"cuFileBufRegister", &l.bufRegister},
		{"cuFileBufDeregister", &l.bufDeregister},
		{"cuFileRead", &l.ioRead},
		{"cuFileWrite", &l.ioWrite},
	} {
		if *s.to = symbol(library, s.name); *s.to == nil {
			return fmt.Errorf("has no %s, so it cannot be used", s.name)
		}
	}
	l.getVersion = symbol(library, "cuFileGetVersion")
	// Streams came with the use of the host's memory, and are the only mark of
	// it: the function that tells the version is younger.
	if symbol(library, "cuFileStreamRegister") == nil {
		return errors.New("takes memory of the GPU alone; that of CUDA 12.2 and later takes the host's too")
	}
	return nil
}

func symbol(library unsafe.Pointer, name string) unsafe.Pointer {
	s := C.CString(name)
	defer C.free(unsafe.Pointer(s))
	return C.dlsym(library, s)
}

func status(op string, s C.tunefs_cufile_status) error {
	return statusError(op, int(s.err), int(s.cuda))
}

func (l *libcufile) open() error {
	err := status("cuFileDriverOpen", C.plain(l.driverOpen))
	if e, ok := err.(*CuFileError); ok {
		e.Hint = openHint(e, l.cuda)
	}
	return err
}

func (l *libcufile) close() error {
	return status("cuFileDriverClose", C.plain(l.driverClose))
}

func (l *libcufile) version() int {
	if l.getVersion == nil {
		return 0
	}
	var v C.int
	if s := C.get_version(l.getVersion, &v); s.err != 0 {
		return 0
	}
	return int(v)
}

func (l *libcufile) properties() (cufileProperties, error) {
	var p C.tunefs_cufile_properties
	err := status("cuFileDriverGetProperties", C.get_properties(l.getProperties, &p))
	return cufileProperties{
		nvfsMajor: int(p.nvfs.major),
		nvfsMinor: int(p.nvfs.minor),
		maxDirect: int(p.nvfs.max_direct_io) << 10,
		maxBatch:  int(p.max_batch),
	}, err
}

func (l *libcufile) register(fd int) (uintptr, error) {
	var h C.uintptr_t
	s := C.handle_register(l.handleRegister, C.int(fd), &h)
	return uintptr(h), status("cuFileHandleRegister", s)
}

func (l *libcufile) deregister(handle uintptr) {
	C.handle_deregister(l.handleDeregister, C.uintptr_t(handle))
}

func (l *libcufile) pin(base unsafe.Pointer, n int) error {
	return status("cuFileBufRegister", C.buf_register(l.bufRegister, base, C.size_t(n)))
}

func (l *libcufile) unpin(base unsafe.Pointer) error {
	return status("cuFileBufDeregister", C.buf_deregister(l.bufDeregister, base))
}

// Both are safe for memory of the Go heap too: it stays where it is during the
// call, holds no pointers, and the library keeps nothing of it.

func (l *libcufile) read(handle uintptr, base unsafe.Pointer, n int, off, skip int64) (int, error) {
	r := C.io_read(l.ioRead, C.uintptr_t(handle), base, C.size_t(n), C.off_t(off), C.off_t(skip))
	return ioResult("cuFileRead", int(r.n), int(r.err))
}

func (l *libcufile) write(handle uintptr, base unsafe.Pointer, n int, off, skip int64) (int, error) {
	r := C.io_write(l.ioWrite, C.uintptr_t(handle), base, C.size_t(n), C.off_t(off), C.off_t(skip))
	return ioResult("cuFileWrite", int(r.n), int(r.err))
}
