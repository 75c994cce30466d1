/*
 * Times what is done to names: creates FILES empty files in DIR, then stats, opens, renames and unlinks each.
 *
 * usage: metadata DIR FILES
 *
 * Prints a line for each: its name, and how many of them were done in a second.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void close_new(int fd, const char *name)
{
	if (fd < 0 || close(fd) != 0)
		die(name);
}

static void create_file(const char *name, const char *unused)
{
	(void)unused;
	close_new(open(name, O_CREAT | O_EXCL | O_WRONLY, 0644), name);
}

static void stat_file(const char *name, const char *unused)
{
	struct stat st;

	(void)unused;
	if (stat(name, &st) != 0)
		die(name);
}

static void open_file(const char *name, const char *unused)
{
	(void)unused;
	close_new(open(name, O_RDONLY), name);
}

static void rename_file(const char *name, const char *renamed)
{
	if (rename(name, renamed) != 0)
		die(name);
}

static void unlink_file(const char *unused, const char *renamed)
{
	(void)unused;
	if (unlink(renamed) != 0)
		die(renamed);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void time_all(const char *what, void (*act)(const char *, const char *), int files)
{
	char name[32], renamed[32];
	double begin = now();

	for (int i = 0; i < files; i++) {
		snprintf(name, sizeof name, "file-%06d", i);
		snprintf(renamed, sizeof renamed, "renamed-%06d", i);
		act(name, renamed);
	}
	printf("%s %.1f\n", what, files / (now() - begin));
}

int main(int argc, char **argv)
{
	int files = argc == 3 ? atoi(argv[2]) : 0;

	if (files <= 0) {
		fprintf(stderr, "usage: metadata DIR FILES\n");
		return 2;
	}
	if (chdir(argv[1]) != 0)
		die(argv[1]);
	time_all("create", create_file, files);
	time_all("stat", stat_file, files);
	time_all("open+close", open_file, files);
	time_all("rename", rename_file, files);
	time_all("unlink", unlink_file, files);
	return 0;
}
