/*
 * Copies a file line by line: reads with getdelim, writes with fwrite.
 *
 * usage: loop IN OUT [own | stat | BYTES]
 *
 * The last word chooses the buffer of both streams:
 *   own    what the C library takes by itself (the default)
 *   stat   min(st_blksize, 128 KiB) of each stream's file, as in the patch to glibc
 *   BYTES  that many
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>

#define LARGEST_STAT_BUFFER (128 * 1024)

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static size_t buffer_size(FILE *stream, const char *choice)
{
	struct stat st;

	if (strcmp(choice, "stat") != 0)
		return strtoul(choice, NULL, 10);
	if (fstat(fileno(stream), &st) != 0)
		die("fstat");
	return st.st_blksize < LARGEST_STAT_BUFFER ? (size_t)st.st_blksize : LARGEST_STAT_BUFFER;
}

/* The buffer is ours because glibc ignores the size when it allocates one itself. */
static void set_buffer(FILE *stream, const char *choice)
{
	size_t size;

	if (strcmp(choice, "own") == 0)
		return;
	size = buffer_size(stream, choice);
	if (size == 0 || setvbuf(stream, malloc(size), _IOFBF, size) != 0) {
		fprintf(stderr, "loop: no buffer of size %s\n", choice);
		exit(2);
	}
}

int main(int argc, char **argv)
{
	const char *choice = argc > 3 ? argv[3] : "own";
	char *line = NULL;
	size_t room = 0;
	ssize_t got;
	FILE *in, *out;

	if (argc < 3 || argc > 4) {
		fprintf(stderr, "usage: loop IN OUT [own | stat | BYTES]\n");
		return 2;
	}
	if ((in = fopen(argv[1], "r")) == NULL)
		die(argv[1]);
	if ((out = fopen(argv[2], "w")) == NULL)
		die(argv[2]);
	set_buffer(in, choice);
	set_buffer(out, choice);

	while ((got = getdelim(&line, &room, '\n', in)) > 0)
		if (fwrite(line, 1, got, out) != (size_t)got)
			die(argv[2]);
	if (ferror(in))
		die(argv[1]);
	if (fclose(out) != 0)
		die(argv[2]);
	return 0;
}
