package gds

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// abiChecks compares cufile_abi.h with cufile.h and prints the codes of the latter.
const abiChecks = `
#include <stdio.h>
#include "cufile.h"
#include "cufile_abi.h"

#define SAME(what, ours, theirs) _Static_assert((ours) == (theirs), what)
#define SAME_SIZE(ours, theirs) SAME(#ours, sizeof(ours), sizeof(theirs))
#define SAME_PLACE(our, field, their, name) \
	SAME(#field, offsetof(our, field), offsetof(their, name)); \
	SAME(#field " size", sizeof(((our *)0)->field), sizeof(((their *)0)->name))
#define SAME_TYPE(ours, function) \
	_Static_assert(__builtin_types_compatible_p(ours, __typeof__(&function)), #function)

SAME_SIZE(tunefs_cufile_status, CUfileError_t);
SAME_PLACE(tunefs_cufile_status, err, CUfileError_t, err);
SAME_PLACE(tunefs_cufile_status, cuda, CUfileError_t, cu_err);

SAME("fd type", TUNEFS_CUFILE_OPAQUE_FD, CU_FILE_HANDLE_TYPE_OPAQUE_FD);
SAME_SIZE(tunefs_cufile_descr, CUfileDescr_t);
SAME_PLACE(tunefs_cufile_descr, type, CUfileDescr_t, type);
SAME_PLACE(tunefs_cufile_descr, file.fd, CUfileDescr_t, handle.fd);
SAME_PLACE(tunefs_cufile_descr, file.handle, CUfileDescr_t, handle.handle);
SAME_PLACE(tunefs_cufile_descr, operations, CUfileDescr_t, fs_ops);

SAME_SIZE(tunefs_cufile_properties, CUfileDrvProps_t);
SAME_PLACE(tunefs_cufile_properties, nvfs.major, CUfileDrvProps_t, nvfs.major_version);
SAME_PLACE(tunefs_cufile_properties, nvfs.minor, CUfileDrvProps_t, nvfs.minor_version);
SAME_PLACE(tunefs_cufile_properties, nvfs.poll_threshold, CUfileDrvProps_t, nvfs.poll_thresh_size);
SAME_PLACE(tunefs_cufile_properties, nvfs.max_direct_io, CUfileDrvProps_t, nvfs.max_direct_io_size);
SAME_PLACE(tunefs_cufile_properties, nvfs.status, CUfileDrvProps_t, nvfs.dstatusflags);
SAME_PLACE(tunefs_cufile_properties, nvfs.control, CUfileDrvProps_t, nvfs.dcontrolflags);
SAME_PLACE(tunefs_cufile_properties, features, CUfileDrvProps_t, fflags);
SAME_PLACE(tunefs_cufile_properties, max_device_cache, CUfileDrvProps_t, max_device_cache_size);
SAME_PLACE(tunefs_cufile_properties, per_buffer_cache, CUfileDrvProps_t, per_buffer_cache_size);
SAME_PLACE(tunefs_cufile_properties, max_pinned, CUfileDrvProps_t, max_device_pinned_mem_size);
SAME_PLACE(tunefs_cufile_properties, max_batch, CUfileDrvProps_t, max_batch_io_size);
SAME_PLACE(tunefs_cufile_properties, max_batch_timeout, CUfileDrvProps_t, max_batch_io_timeout_msecs);

SAME_TYPE(tunefs_cufile_read, cuFileRead);
SAME_TYPE(tunefs_cufile_write, cuFileWrite);
SAME_TYPE(tunefs_cufile_handle_deregister, cuFileHandleDeregister);

/* The others differ in the names of structures alone; their arguments have to fit. */
CUfileError_t (*handle_register)(void **, CUfileDescr_t *) = cuFileHandleRegister;
CUfileError_t (*buf_register)(const void *, size_t, int) = cuFileBufRegister;
CUfileError_t (*buf_deregister)(const void *) = cuFileBufDeregister;
CUfileError_t (*get_properties)(CUfileDrvProps_t *) = cuFileDriverGetProperties;
CUfileError_t (*open_driver)(void) = cuFileDriverOpen;
#define TEXT(x) TEXT_(x)
#define TEXT_(x) #x

int main(void)
{
	puts(TEXT(cuFileDriverClose));
#define CUFILE_OP(code, name, text) printf("%d %s\n", code, #name);
	CUFILEOP_STATUS_ENTRIES
}
`

// TestCuFileABI compiles our declarations against NVIDIA's, of two versions.
func TestCuFileABI(t *testing.T) {
	for _, release := range []string{"bookworm", "trixie"} {
		t.Run(release, func(t *testing.T) {
			codes := runABIChecks(t, filepath.Join(debianPackages(t, release, "libcufile-dev"), "usr/include"))
			if !bytes.HasPrefix(codes, []byte("cuFileDriverClose_v2\n")) {
				t.Errorf("cuFileDriverClose is another function now: %s", codes)
			}
			for _, line := range regexp.MustCompile(`(?m)^(\d+) (\w+)$`).FindAllSubmatch(codes, -1) {
				var code int
				if _, err := fmt.Sscan(string(line[1]), &code); err != nil {
					t.Fatal(err)
				}
				// The last one only bounds the others, and so differs between versions.
				if name := string(line[2]); code != 0 && cufileCodes[code].name != name && name != "CU_FILE_IO_MAX_ERROR" {
					t.Errorf("%d is %s, not %q", code, name, cufileCodes[code].name)
				}
			}
		})
	}
}

// runABIChecks gives cufile.h the little it wants of cuda.h.
func runABIChecks(t *testing.T, include string) []byte {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"cuda.h":   "typedef enum { CUDA_SUCCESS } CUresult;\ntypedef void *CUstream;\n",
		"checks.c": abiChecks,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(dir, "checks")
	// The functions are only looked at, not called, so they need not be there.
	compile(t, program, "-std=gnu11", "-I", dir, "-I", include, "-I", ".", "-fPIE", "-pie",
		"-Wl,--unresolved-symbols=ignore-all", filepath.Join(dir, "checks.c"))
	out, err := exec.Command(program).Output()
	if err != nil {
		t.Fatal(err)
	}
	return out
}
