/*
 * Writes BYTES to FILE, which must not exist, SIZE bytes with each call, and prints the seconds from open to close.
 *
 * usage: writer HOW FILE BYTES SIZE
 *
 * HOW says what is done besides writing:
 *   fsync   fsync at the end
 *   direct  O_DIRECT, and fsync at the end
 *   sync    O_SYNC: every write goes to disk
 *   append  O_APPEND, as a logger does it
 *   reopen  O_APPEND, and the file is opened and closed for every write, as the shell does it with >>
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { DIRECT_ALIGNMENT = 4096 };

static const struct way {
	const char *name;
	int flags, sync_at_end, reopen;
} ways[] = {
	{"fsync", 0, 1, 0},
	{"direct", O_DIRECT, 1, 0},
	{"sync", O_SYNC, 0, 0},
	{"append", O_APPEND, 0, 0},
	{"reopen", O_APPEND, 0, 1},
};

static void check(int failed, const char *what)
{
	if (failed) {
		perror(what);
		exit(1);
	}
}

static const struct way *find_way(const char *name)
{
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
		if (strcmp(ways[i].name, name) == 0)
			return &ways[i];
	return NULL;
}

/* Bytes that no disk can compress or recognise as empty. The same every time. */
static unsigned char *noise(size_t size)
{
	uint64_t word = 1;
	void *buffer;

	check(posix_memalign(&buffer, DIRECT_ALIGNMENT, size) != 0, "memory");
	for (size_t i = 0; i < size; i++) {
		word ^= word << 13;
		word ^= word >> 7;
		word ^= word << 17;
		((unsigned char *)buffer)[i] = word;
	}
	return buffer;
}

static int open_file(const char *file, int flags)
{
	int fd = open(file, O_WRONLY | O_CREAT | flags, 0644);

	check(fd < 0, file);
	return fd;
}

static void write_file(const struct way *way, const char *file, long long bytes, size_t size, const unsigned char *buffer)
{
	int fd = open_file(file, O_EXCL | way->flags);

	for (long long done = 0; done < bytes; done += size) {
		if (way->reopen && done > 0) {
			check(close(fd) != 0, file);
			fd = open_file(file, way->flags);
		}
		check(write(fd, buffer, size) != (ssize_t)size, file);
	}
	if (way->sync_at_end)
		check(fsync(fd) != 0, "fsync");
	check(close(fd) != 0, file);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	const struct way *way = argc == 5 ? find_way(argv[1]) : NULL;
	long long bytes = way ? atoll(argv[3]) : 0;
	size_t size = way ? strtoul(argv[4], NULL, 10) : 0;
	const unsigned char *buffer;
	double begin;

	if (bytes <= 0 || size == 0 || bytes % size != 0) {
		fprintf(stderr, "usage: writer fsync|direct|sync|append|reopen FILE BYTES SIZE, with BYTES a multiple of SIZE\n");
		return 2;
	}
	buffer = noise(size);
	begin = now();
	write_file(way, argv[2], bytes, size, buffer);
	printf("%.6f\n", now() - begin);
	return 0;
}
