/*
 * Does OPERATIONS system calls on a thousand files in DIR, over and over: stat, open, read, write and close, and now and
 * then unlink.
 *
 * usage: churn DIR OPERATIONS
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILES = 1000, CALLS_PER_TURN = 5, TURNS_PER_UNLINK = 10 };

static void check(int failed, const char *what)
{
	if (failed) {
		perror(what);
		exit(1);
	}
}

static void turn(long number)
{
	static char data[4096];
	char name[32];
	struct stat st;
	int fd;

	snprintf(name, sizeof name, "file-%ld", number % FILES);
	fd = open(name, O_RDWR | O_CREAT, 0644);
	check(fd < 0, "open");
	check(write(fd, data, sizeof data) != sizeof data, "write");
	check(pread(fd, data, sizeof data, 0) != sizeof data, "read");
	check(close(fd) != 0, "close");
	check(stat(name, &st) != 0, "stat");
	/* The files of every tenth of a thousand, another tenth each time round. */
	if ((number + number / FILES) % TURNS_PER_UNLINK == 0)
		check(unlink(name) != 0, "unlink");
}

int main(int argc, char **argv)
{
	long operations = argc == 3 ? atol(argv[2]) : 0;

	if (operations <= 0) {
		fprintf(stderr, "usage: churn DIR OPERATIONS\n");
		return 2;
	}
	check(chdir(argv[1]) != 0, argv[1]);
	for (long i = 0; i < operations / CALLS_PER_TURN; i++)
		turn(i);
	return 0;
}
