/*
 * A stand-in for the CUDA driver, libcuda.so.1, for tests on machines without a GPU: as much of it as NVIDIA's
 * libcufile (1.4 and 1.9) asks for. It pretends to have one GPU, whose memory is memory of the host. With it the real
 * libcufile opens and works in its compatibility mode; it proves nothing about speed, nor about the way from a GPU to
 * a disk.
 *
 * What is got and given back is counted. If CUDA_STANDIN_COUNTS names a file, the counts are in it, as they stand at
 * any moment: for each kind in the order of enum kind, how many were got and how many given back, 8 bytes each.
 * Initialisations, the first kind, are not given back.
 *
 * Build: cc -shared -fPIC -Wl,-soname,libcuda.so.1 -o libcuda.so.1 cudastandin.c -lpthread
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef unsigned long long address;

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_CONTEXT = 201 };

enum kind { INITIALISATION, DEVICE_MEMORY, HOST_MEMORY, HOST_REGISTRATION, STREAM, EVENT, CONTEXT, KINDS };

struct count {
	uint64_t got, given;
};
static struct count private_counts[KINDS];
static struct count *counts = private_counts;

static void got(enum kind k) { __atomic_add_fetch(&counts[k].got, 1, __ATOMIC_RELAXED); }
static void given(enum kind k) { __atomic_add_fetch(&counts[k].given, 1, __ATOMIC_RELAXED); }

__attribute__((constructor)) static void share_counts(void)
{
	const char *path = getenv("CUDA_STANDIN_COUNTS");
	int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
	if (fd < 0)
		return;
	if (ftruncate(fd, sizeof private_counts) == 0) {
		void *m = mmap(NULL, sizeof private_counts, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (m != MAP_FAILED)
			counts = m;
	}
	close(fd);
}

/* Memory of the GPU. */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	address base;
	size_t size; /* 0: a free entry */
} memory[1024];

enum { ENTRIES = sizeof memory / sizeof memory[0], GRAIN = 64 << 10 };

/* The caller holds lock. */
static int entry_of(address p)
{
	for (int i = 0; i < ENTRIES; i++)
		if (p - memory[i].base < memory[i].size)
			return i;
	return -1;
}

int cuMemAlloc_v2(address *p, size_t n)
{
	int result = OUT_OF_MEMORY;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < ENTRIES && n; i++) {
		if (memory[i].size)
			continue;
		void *m = aligned_alloc(GRAIN, (n + GRAIN - 1) & -(size_t)GRAIN);
		if (m) {
			memory[i].size = n;
			*p = memory[i].base = (address)m;
			got(DEVICE_MEMORY);
			result = SUCCESS;
		}
		break;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

int cuMemFree_v2(address p)
{
	pthread_mutex_lock(&lock);
	int i = entry_of(p);
	if (i >= 0) {
		free((void *)memory[i].base);
		memory[i].size = 0;
		given(DEVICE_MEMORY);
	}
	pthread_mutex_unlock(&lock);
	return i < 0 ? INVALID_VALUE : SUCCESS;
}

int cuMemGetAddressRange_v2(address *base, size_t *n, address p)
{
	pthread_mutex_lock(&lock);
	int i = entry_of(p);
	if (i >= 0 && base)
		*base = memory[i].base;
	if (i >= 0 && n)
		*n = memory[i].size;
	pthread_mutex_unlock(&lock);
	return i < 0 ? INVALID_VALUE : SUCCESS;
}

/* Memory of the host. */

int cuMemHostAlloc(void **p, size_t n, unsigned flags)
{
	(void)flags;
	*p = aligned_alloc(4096, (n + 4095) & -(size_t)4096);
	if (!*p)
		return OUT_OF_MEMORY;
	got(HOST_MEMORY);
	return SUCCESS;
}
int cuMemAllocHost_v2(void **p, size_t n) { return cuMemHostAlloc(p, n, 0); }
int cuMemFreeHost(void *p)
{
	free(p);
	given(HOST_MEMORY);
	return SUCCESS;
}
int cuMemHostRegister_v2(void *p, size_t n, unsigned flags)
{
	(void)p, (void)n, (void)flags;
	got(HOST_REGISTRATION);
	return SUCCESS;
}
int cuMemHostUnregister(void *p)
{
	(void)p;
	given(HOST_REGISTRATION);
	return SUCCESS;
}
int cuMemHostGetDevicePointer_v2(address *d, void *p, unsigned flags)
{
	(void)flags;
	*d = (address)p;
	return SUCCESS;
}

int cuMemcpyHtoD_v2(address to, const void *from, size_t n)
{
	memcpy((void *)to, from, n);
	return SUCCESS;
}
int cuMemcpyDtoH_v2(void *to, address from, size_t n)
{
	memcpy(to, (void *)from, n);
	return SUCCESS;
}
int cuMemcpyHtoDAsync_v2(address to, const void *from, size_t n, void *stream)
{
	(void)stream;
	return cuMemcpyHtoD_v2(to, from, n);
}
int cuMemcpyDtoHAsync_v2(void *to, address from, size_t n, void *stream)
{
	(void)stream;
	return cuMemcpyDtoH_v2(to, from, n);
}

/* Contexts: there is one, and as in the real driver a thread has none before it sets it. */

static int the_context;
static __thread void *current;

int cuCtxCreate_v2(void **c, unsigned flags, int device)
{
	(void)flags, (void)device;
	*c = current = &the_context;
	got(CONTEXT);
	return SUCCESS;
}
int cuCtxDestroy_v2(void *c)
{
	(void)c;
	given(CONTEXT);
	return SUCCESS;
}
int cuDevicePrimaryCtxRetain(void **c, int device)
{
	(void)device;
	*c = &the_context;
	got(CONTEXT);
	return SUCCESS;
}
int cuDevicePrimaryCtxRelease_v2(int device)
{
	(void)device;
	given(CONTEXT);
	return SUCCESS;
}
int cuDevicePrimaryCtxRelease(int device) { return cuDevicePrimaryCtxRelease_v2(device); }
int cuCtxSetCurrent(void *c)
{
	current = c;
	return SUCCESS;
}
int cuCtxPushCurrent_v2(void *c) { return cuCtxSetCurrent(c); }
int cuCtxPopCurrent_v2(void **c)
{
	if (c)
		*c = current;
	current = NULL;
	return SUCCESS;
}
int cuCtxGetCurrent(void **c)
{
	*c = current;
	return SUCCESS;
}
int cuCtxGetDevice(int *device)
{
	*device = 0;
	return current ? SUCCESS : INVALID_CONTEXT;
}

static int stream_or_event;

int cuStreamCreateWithPriority(void **s, unsigned flags, int priority)
{
	(void)flags, (void)priority;
	*s = &stream_or_event;
	got(STREAM);
	return SUCCESS;
}
int cuStreamCreate(void **s, unsigned flags) { return cuStreamCreateWithPriority(s, flags, 0); }
int cuStreamDestroy_v2(void *s)
{
	(void)s;
	given(STREAM);
	return SUCCESS;
}
int cuEventCreate(void **e, unsigned flags)
{
	(void)flags;
	*e = &stream_or_event;
	got(EVENT);
	return SUCCESS;
}
int cuEventDestroy_v2(void *e)
{
	(void)e;
	given(EVENT);
	return SUCCESS;
}

/* The GPU, and what is known of addresses. */

int cuInit(unsigned flags)
{
	if (flags)
		return INVALID_VALUE;
	got(INITIALISATION);
	return SUCCESS;
}
int cuDriverGetVersion(int *v)
{
	*v = 12040;
	return SUCCESS;
}
int cuDeviceGetCount(int *n)
{
	*n = 1;
	return SUCCESS;
}
int cuDeviceGet(int *device, int i)
{
	*device = i;
	return i ? INVALID_VALUE : SUCCESS;
}
int cuDeviceGetName(char *name, int n, int device)
{
	(void)device;
	strncpy(name, "stand-in", n);
	return SUCCESS;
}
int cuDeviceGetUuid_v2(unsigned char *uuid, int device)
{
	(void)device;
	memset(uuid, 7, 16);
	return SUCCESS;
}
int cuDeviceGetAttribute(int *v, int attribute, int device)
{
	enum { UNIFIED_ADDRESSING = 41, COMPUTE_CAPABILITY_MAJOR = 75 };
	(void)device;
	*v = attribute == COMPUTE_CAPABILITY_MAJOR ? 8 : attribute == UNIFIED_ADDRESSING;
	return SUCCESS;
}
int cuGetErrorName(int error, const char **name)
{
	(void)error;
	*name = "CUDA_ERROR_OF_STAND_IN";
	return SUCCESS;
}

int cuPointerGetAttribute(void *data, int attribute, address p)
{
	enum { CTX = 1, MEMORY_TYPE, DEVICE_POINTER, HOST_POINTER, RANGE_START = 11, RANGE_SIZE, TYPE_DEVICE = 2 };
	address base;
	size_t size;
	/* The real driver, too, knows nothing of host memory that nobody registered. */
	if (cuMemGetAddressRange_v2(&base, &size, p) != SUCCESS)
		return INVALID_VALUE;
	switch (attribute) {
	case CTX:
		*(void **)data = &the_context;
		break;
	case MEMORY_TYPE:
		*(int *)data = TYPE_DEVICE;
		break;
	case DEVICE_POINTER:
	case HOST_POINTER:
		*(address *)data = p;
		break;
	case RANGE_START:
		*(address *)data = base;
		break;
	case RANGE_SIZE:
		*(size_t *)data = size;
		break;
	default:
		*(int *)data = 0;
	}
	return SUCCESS;
}
int cuPointerGetAttributes(unsigned n, const int *attributes, void **data, address p)
{
	for (unsigned i = 0; i < n; i++)
		if (cuPointerGetAttribute(data[i], attributes[i], p) != SUCCESS)
			*(address *)data[i] = 0;
	return SUCCESS;
}

/* libcufile wants to find these when it starts, and does without their work here. */
#define DOES_NOTHING(name) \
	int name(void) { return SUCCESS; }
DOES_NOTHING(cuCtxEnablePeerAccess)
DOES_NOTHING(cuCtxGetStreamPriorityRange)
DOES_NOTHING(cuDeviceCanAccessPeer)
DOES_NOTHING(cuEventElapsedTime)
DOES_NOTHING(cuEventQuery)
DOES_NOTHING(cuEventRecord)
DOES_NOTHING(cuEventSynchronize)
DOES_NOTHING(cuIpcCloseMemHandle)
DOES_NOTHING(cuIpcGetEventHandle)
DOES_NOTHING(cuIpcGetMemHandle)
DOES_NOTHING(cuIpcOpenEventHandle)
DOES_NOTHING(cuIpcOpenMemHandle)
DOES_NOTHING(cuIpcOpenMemHandle_v2)
DOES_NOTHING(cuLaunchHostFunc)
DOES_NOTHING(cuMemAllocManaged)
DOES_NOTHING(cuMemcpy)
DOES_NOTHING(cuMemcpyAsync)
DOES_NOTHING(cuMemcpyPeer)
DOES_NOTHING(cuMemcpyPeerAsync)
DOES_NOTHING(cuMemsetD8Async)
DOES_NOTHING(cuMemsetD8_v2)
DOES_NOTHING(cuPointerSetAttribute)
DOES_NOTHING(cuStreamSynchronize)
DOES_NOTHING(cuStreamWaitEvent)
DOES_NOTHING(cuStreamWaitValue32)
DOES_NOTHING(cuStreamWaitValue32_v2)
DOES_NOTHING(cuStreamWriteValue32)
DOES_NOTHING(cuStreamWriteValue32_v2)
