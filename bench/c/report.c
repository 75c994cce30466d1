/*
 * Writes LINES lines to OUT with fprintf, each about as long as a log's line.
 *
 * usage: report OUT LINES BYTES
 *
 * BYTES is the size of the stream's buffer.
 */
#include <stdio.h>
#include <stdlib.h>

static const char text[] = "The quick brown fox jumps over the lazy dog, and then it does the same thing again and again";

int main(int argc, char **argv)
{
	long lines, i;
	size_t size;
	FILE *out;

	if (argc != 4) {
		fprintf(stderr, "usage: report OUT LINES BYTES\n");
		return 2;
	}
	lines = atol(argv[2]);
	size = strtoul(argv[3], NULL, 10);
	if ((out = fopen(argv[1], "w")) == NULL) {
		perror(argv[1]);
		return 1;
	}
	if (size == 0 || setvbuf(out, malloc(size), _IOFBF, size) != 0) {
		fprintf(stderr, "report: no buffer of size %s\n", argv[3]);
		return 2;
	}
	for (i = 0; i < lines; i++)
		fprintf(out, "%08ld: %s\n", i, text);
	if (ferror(out) || fclose(out) != 0) {
		perror(argv[1]);
		return 1;
	}
	return 0;
}
