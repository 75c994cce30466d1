/*
 * What is used of the binary interface of libcufile.so.0, in declarations of our own, so that building needs no
 * header of CUDA. A test compares all of it with NVIDIA's cufile.h.
 */
#ifndef TUNEFS_CUFILE_ABI_H
#define TUNEFS_CUFILE_ABI_H

#include <stddef.h>
#include <sys/types.h>

typedef struct {
	int err;  /* 0, or a code above 5000 */
	int cuda; /* the CUDA driver's own, when err says that it is to blame */
} tunefs_cufile_status;

enum { TUNEFS_CUFILE_OPAQUE_FD = 1 };

typedef struct {
	int type;
	union {
		int fd;
		void *handle;
	} file;
	const void *operations;
} tunefs_cufile_descr;

typedef struct {
	struct {
		unsigned major, minor; /* of nvidia-fs; 0.0 without it */
		size_t poll_threshold, max_direct_io; /* KiB */
		unsigned status, control;
	} nvfs;
	unsigned features;
	unsigned max_device_cache, per_buffer_cache, max_pinned; /* KiB */
	unsigned max_batch, max_batch_timeout;
} tunefs_cufile_properties;

typedef tunefs_cufile_status (*tunefs_cufile_plain)(void);
typedef tunefs_cufile_status (*tunefs_cufile_get_version)(int *);
typedef tunefs_cufile_status (*tunefs_cufile_get_properties)(tunefs_cufile_properties *);
typedef tunefs_cufile_status (*tunefs_cufile_handle_register)(void **, tunefs_cufile_descr *);
typedef void (*tunefs_cufile_handle_deregister)(void *);
typedef tunefs_cufile_status (*tunefs_cufile_buf_register)(const void *, size_t, int);
typedef tunefs_cufile_status (*tunefs_cufile_buf_deregister)(const void *);
typedef ssize_t (*tunefs_cufile_read)(void *, void *, size_t, off_t, off_t);
typedef ssize_t (*tunefs_cufile_write)(void *, const void *, size_t, off_t, off_t);

#endif
