package gds

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// CuFileError is a failure that cuFile itself reports. It unwraps to an errno.
type CuFileError struct {
	Op   string // the function of cuFile
	Code int    // above 5000
	CUDA int    // the CUDA driver's code, or 0
	Hint string // what it means here and what to do, or ""
}

func (e *CuFileError) Error() string {
	text := fmt.Sprintf("%s: cuFile error %d", e.Op, e.Code)
	if c, ok := cufileCodes[e.Code]; ok {
		text += " (" + c.name + ")"
	}
	if e.CUDA != 0 {
		text += fmt.Sprintf(", CUDA error %d", e.CUDA)
	}
	if e.Hint != "" {
		text += ": " + e.Hint
	}
	return text
}

// Unwrap is the errno that comes nearest, EIO if none does.
func (e *CuFileError) Unwrap() error {
	if c, ok := cufileCodes[e.Code]; ok {
		return c.errno
	}
	return unix.EIO
}

const (
	codeBase     = 5000 // no code is that small, and no errno that large
	codeNoDriver = 5001
	codeCUDA     = 5011
	codeInternal = 5030
	codeNewFD    = 5031
	codeSetup    = 5033
	cudaNoDevice = 100
)

// cufileCodes are the codes of cufile.h.
var cufileCodes = map[int]struct {
	name  string
	errno unix.Errno
}{
	codeNoDriver: {"CU_FILE_DRIVER_NOT_INITIALIZED", unix.ENODEV},
	5002:         {"CU_FILE_DRIVER_INVALID_PROPS", unix.EINVAL},
	5003:         {"CU_FILE_DRIVER_UNSUPPORTED_LIMIT", unix.ERANGE},
	5004:         {"CU_FILE_DRIVER_VERSION_MISMATCH", unix.ENODEV},
	5005:         {"CU_FILE_DRIVER_VERSION_READ_ERROR", unix.ENODEV},
	5006:         {"CU_FILE_DRIVER_CLOSING", unix.ESHUTDOWN},
	5007:         {"CU_FILE_PLATFORM_NOT_SUPPORTED", unix.ENOTSUP},
	5008:         {"CU_FILE_IO_NOT_SUPPORTED", unix.ENOTSUP},
	5009:         {"CU_FILE_DEVICE_NOT_SUPPORTED", unix.ENOTSUP},
	5010:         {"CU_FILE_NVFS_DRIVER_ERROR", unix.EIO},
	codeCUDA:     {"CU_FILE_CUDA_DRIVER_ERROR", unix.EIO},
	5012:         {"CU_FILE_CUDA_POINTER_INVALID", unix.EFAULT},
	5013:         {"CU_FILE_CUDA_MEMORY_TYPE_INVALID", unix.EFAULT},
	5014:         {"CU_FILE_CUDA_POINTER_RANGE_ERROR", unix.EFAULT},
	5015:         {"CU_FILE_CUDA_CONTEXT_MISMATCH", unix.EIO},
	5016:         {"CU_FILE_INVALID_MAPPING_SIZE", unix.EFAULT},
	5017:         {"CU_FILE_INVALID_MAPPING_RANGE", unix.EFAULT},
	5018:         {"CU_FILE_INVALID_FILE_TYPE", unix.ENOTSUP},
	5019:         {"CU_FILE_INVALID_FILE_OPEN_FLAG", unix.EBADF},
	5020:         {"CU_FILE_DIO_NOT_SET", unix.EINVAL},
	5022:         {"CU_FILE_INVALID_VALUE", unix.EINVAL},
	5023:         {"CU_FILE_MEMORY_ALREADY_REGISTERED", unix.EEXIST},
	5024:         {"CU_FILE_MEMORY_NOT_REGISTERED", unix.ENOENT},
	5025:         {"CU_FILE_PERMISSION_DENIED", unix.EACCES},
	5026:         {"CU_FILE_DRIVER_ALREADY_OPEN", unix.EALREADY},
	5027:         {"CU_FILE_HANDLE_NOT_REGISTERED", unix.EBADF},
	5028:         {"CU_FILE_HANDLE_ALREADY_REGISTERED", unix.EEXIST},
	5029:         {"CU_FILE_DEVICE_NOT_FOUND", unix.ENODEV},
	codeInternal: {"CU_FILE_INTERNAL_ERROR", unix.EIO},
	codeNewFD:    {"CU_FILE_GETNEWFD_FAILED", unix.EMFILE},
	codeSetup:    {"CU_FILE_NVFS_SETUP_ERROR", unix.ENODEV},
	5034:         {"CU_FILE_IO_DISABLED", unix.ENOTSUP},
	5035:         {"CU_FILE_BATCH_SUBMIT_FAILED", unix.EIO},
	5036:         {"CU_FILE_GPU_MEMORY_PINNING_FAILED", unix.ENOMEM},
	5037:         {"CU_FILE_BATCH_FULL", unix.EAGAIN},
	5038:         {"CU_FILE_ASYNC_NOT_SUPPORTED", unix.ENOTSUP},
	5039:         {"CU_FILE_IO_MAX_ERROR", unix.EIO},
}

// statusError is the error of a status that a function of cuFile returned.
func statusError(op string, code, cuda int) error {
	if code == 0 {
		return nil
	}
	return &CuFileError{Op: op, Code: code, CUDA: cuda}
}

// ioResult decodes what cuFileRead or cuFileWrite returned, and errno after it.
// -1 says that errno has the error, which may be an errno or a code of cuFile;
// other negative results are either of them, negated.
func ioResult(op string, n, errno int) (int, error) {
	if n >= 0 {
		return n, nil
	}
	code := -n
	if n == -1 {
		code = errno
	}
	switch {
	case code > codeBase:
		return 0, &CuFileError{Op: op, Code: code}
	case code == 0:
		return 0, fmt.Errorf("%s: failed without a reason: %w", op, unix.EIO)
	}
	return 0, fmt.Errorf("%s: %w", op, unix.Errno(code))
}

// hinted adds a hint to a failure of cuFile, and leaves other errors alone.
func hinted(err error, hint string) error {
	var e *CuFileError
	if !errors.As(err, &e) {
		return err
	}
	with := *e
	with.Hint = hint
	return &with
}

// codeOf is the code of a failure of cuFile, or 0.
func codeOf(err error) int {
	var e *CuFileError
	if errors.As(err, &e) {
		return e.Code
	}
	return 0
}

// openHint explains why the driver could not be opened; noCUDA is why libcuda
// was not found, if it was not.
func openHint(err *CuFileError, noCUDA error) string {
	switch {
	case err.Code == codeNoDriver:
		return "the kernel module nvidia-fs is not loaded, and the configuration of cuFile " +
			"does not let it do without (allow_compat_mode)"
	case err.Code == codeSetup && noCUDA != nil:
		return fmt.Sprintf("the CUDA driver is missing (%v); "+
			"install NVIDIA's driver, or give the container its libraries", noCUDA)
	case err.Code == codeSetup:
		return "the CUDA driver, libcuda.so.1, is not one that this libcufile can use"
	case err.Code == codeCUDA && err.CUDA == cudaNoDevice:
		return "the CUDA driver finds no GPU; nvidia-smi should list one, and a container has to be given it"
	}
	return ""
}

// registerHint explains why the file behind fd could not be registered.
func registerHint(err error, fd int) error {
	switch codeOf(err) {
	case codeInternal:
		return udevHint(err, fd)
	case codeNewFD:
		return hinted(err, "cuFile opens a file by its name once more, and this one has none any more, or has one "+
			"that does not lead to it here")
	}
	return err
}

// udevHint explains why cuFile could not learn what the file behind fd is on.
func udevHint(err error, fd int) error {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return err
	}
	major, minor := unix.Major(st.Dev), unix.Minor(st.Dev)
	if major == 0 {
		return hinted(err, "its filesystem is on no block device, and cuFile takes few such; "+
			"tmpfs and overlayfs are not among them")
	}
	record := fmt.Sprintf("/run/udev/data/b%d:%d", major, minor)
	if unix.Access(record, unix.R_OK) != nil {
		return hinted(err, "cuFile asks udev about the block device of its filesystem, and udev has no record of it: "+
			"run udev, or give the container /run/udev, or write "+record+
			" with the lines I:1, E:ID_FS_USAGE=filesystem, E:ID_FS_TYPE=(its type) and G:systemd")
	}
	return err
}
