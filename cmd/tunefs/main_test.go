package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"tunefs/fs"
)

// testEnv is an env whose mounts all fail with err, and what it prints.
func testEnv(err error) (e env, out, errw *bytes.Buffer) {
	out, errw = new(bytes.Buffer), new(bytes.Buffer)
	mount := func(string, string, fs.Options) (mounted, error) { return nil, err }
	return env{out: out, errw: errw, mount: mount}, out, errw
}

func TestExitCodes(t *testing.T) {
	for _, tc := range []struct {
		line string
		code int
		says string // on stderr; for code 0 on stdout
	}{
		{"tunefs", exitUsage, "tunefs help"},
		{"tunefs --help", exitOK, "Commands:"},
		{"tunefs help", exitOK, "Commands:"},
		{"tunefs help mount", exitOK, "Usage: tunefs mount"},
		{"tunefs help help", exitOK, "Commands:"},
		{"tunefs help mout", exitUsage, "tunefs mount"},
		{"tunefs mount --help", exitOK, "--max-write"},
		{"tunefs umount --help", exitOK, "--lazy"},
		{"tunefs doctor --help", exitOK, "--json"},
		{"tunefs version", exitOK, "kernel "},
		{"tunefs --version", exitOK, "kernel "},
		{"tunefs version now", exitUsage, "no operands"},
		{"tunefs unmount", exitUsage, "did you mean 'tunefs umount'?"},
		{"tunefs unmount /mnt", exitUsage, "did you mean 'tunefs umount'?"},
		{"tunefs mout --blksize=8k a b", exitUsage, "did you mean 'tunefs mount'?"},
		{"tunefs mount", exitUsage, "0 operands"},
		{"tunefs mount a", exitUsage, "1 operand"},
		{"tunefs mount a b c", exitUsage, "3 operands"},
		{"tunefs mount --blksiz=8k a b", exitUsage, "did you mean --blksize?"},
		{"tunefs mount -x a b", exitUsage, "unknown shorthand flag"},
		{"tunefs mount --attr-timeout=-1s a b", exitUsage, "negative"},
		{"tunefs mount /nonexistent /mnt", exitFailure, "SOURCE /nonexistent does not exist"},
		{"tunefs /nonexistent /mnt", exitFailure, "SOURCE /nonexistent does not exist"},
		{"tunefs /nonexistent /mnt -o blksize=3000", exitUsage, "2k or 4k"},
		{"tunefs -o ro /nonexistent /mnt", exitFailure, "SOURCE /nonexistent does not exist"},
		{"/sbin/mount.fuse.tunefs /nonexistent /mnt -o rw,noatime", exitFailure, "SOURCE /nonexistent does not exist"},
		{"/sbin/mount.fuse.tunefs mount /mnt -fnv -t fuse.tunefs", exitFailure, "SOURCE /"},
		{"/sbin/mount.tunefs /nonexistent /mnt -o frob", exitUsage, `unknown option "frob"`},
		{"tunefs umount", exitUsage, "0 operands"},
		{"tunefs umount /proc", exitFailure, "of type proc"},
		{"tunefs umount /usr/bin", exitFailure, "nothing is mounted"},
		{"tunefs umount /nonexistent", exitFailure, "nothing is mounted"},
		{"tunefs doctor a b", exitUsage, "2 operands"},
		{"tunefs doctor /nonexistent", exitFailure, "does not exist"},
	} {
		e, out, errw := testEnv(errors.New("no mount in this test"))
		code := run(strings.Fields(tc.line), e)
		said := errw.String()
		if tc.code == exitOK {
			said = out.String() + said
		}
		if code != tc.code || !strings.Contains(said, tc.says) {
			t.Errorf("%s: exit %d, said %q; want exit %d and %q", tc.line, code, said, tc.code, tc.says)
		}
		if tc.code != exitOK && strings.Count(said, "\n") != 1 {
			t.Errorf("%s: said %q: not one line", tc.line, said)
		}
	}
}

// A directory with a command's name is mounted by its path.
func TestSourceNamedLikeACommand(t *testing.T) {
	c, args, err := choose([]string{"tunefs", "./mount", "/mnt"})
	if err != nil || c.name != "mount" || len(args) != 2 || args[0] != "./mount" {
		t.Errorf("got command %q with %q, error %v", c.name, args, err)
	}
}

func TestNearest(t *testing.T) {
	names := []string{"mount", "umount", "doctor", "version", "demo", "help"}
	for word, want := range map[string]string{"mout": "mount", "unmount": "umount", "docter": "doctor", "HELP": "help", "vers": "version"} {
		if got := nearest(word, names); got != want {
			t.Errorf("nearest(%q) = %q, want %q", word, got, want)
		}
	}
}

func TestEdits(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "abc", 0}, {"kitten", "sitting", 3}, {"ab", "ba", 2}} {
		if got := edits(tc.a, tc.b); got != tc.want {
			t.Errorf("edits(%q, %q) = %d, want %d", tc.a, tc.b, got, tc.want)
		}
	}
}
