package tests

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
)

// stressors are the stressors of stress-ng that use files below --temp-path, with how often each does its
// work in a short run. Of the class filesystem these are left out: those that use other files (bind-mount,
// binderfs, dup, eventfd, ioprio, procfs), fiemap and verity, which the kernel has for no FUSE file, and
// dnotify, fanotify and inotify, whose kernel side never asks a filesystem anything.
func stressors() map[string]int {
	return map[string]int{
		"access": 100, "aio": 50, "aiol": 20, "chattr": 5, "chdir": 1, "chmod": 50, "chown": 50, "copy-file": 2,
		"dentry": 200, "dir": 500, "dirmany": 500, "fallocate": 5, "fcntl": 200,
		"file-ioctl": 200, "filename": 50, "flock": 2000, "fsize": 20, "fstat": 5, "getdent": 100, "handle": 100,
		"hdd": 100, "io": 2, "iomix": 200, "lease": 5, "link": 1, "locka": 2000, "lockf": 200, "lockofd": 2000,
		"mknod": 10, "mmap": 1, "msync": 10, "open": 100, "readahead": 100, "rename": 200, "revio": 200, "seek": 200,
		"sendfile": 20, "splice": 200, "symlink": 1, "sync-file": 1, "touch": 500, "utime": 200, "xattr": 5,
	}
}

// flagStressors make files immutable or append-only while they write to them, which a staged mount learns too late.
func flagStressors() []string { return []string{"chattr", "inode-flags"} }

// soakStressors need more time than a short run has: fpunch works until told to stop, and dirdeep and
// inode-flags may take all of it for their first round.
func soakStressors() []string { return []string{"dirdeep", "fpunch", "inode-flags"} }

// TestStress runs all stressors at once, each of which verifies what it does; a soak run then gives each
// of them five seconds with two instances.
func TestStress(t *testing.T) {
	requirePackages(t, "stress-ng")
	eachMode(t, func(t *testing.T, mode string) {
		m := programMount(t, mode)
		all, long := stressors(), soakStressors()
		if mode == "staged" {
			long = slices.DeleteFunc(long, func(name string) bool { return slices.Contains(flagStressors(), name) })
			maps.DeleteFunc(all, func(name string, _ int) bool { return slices.Contains(flagStressors(), name) })
		}
		var args []string
		for name, ops := range all {
			args = append(args, "--"+name, "1", "--"+name+"-ops", strconv.Itoa(ops))
		}
		stress(t, m.Dir, slices.Collect(maps.Keys(all)), append(args, "--timeout", "60")...)
		if !soak() {
			return
		}
		for _, name := range slices.Concat(slices.Sorted(maps.Keys(all)), long) {
			t.Run(name, func(t *testing.T) { stress(t, m.Dir, []string{name}, "--"+name, "2", "--timeout", "5") })
		}
	})
}

// stress runs stress-ng in dir and fails when a stressor fails or has done nothing.
func stress(t *testing.T, dir string, names []string, args ...string) {
	t.Helper()
	report := filepath.Join(scratch(t), "report")
	args = append(args, "--temp-path", dir, "--verify", "--metrics", "--yaml", report,
		"--chdir-dirs", "256", "--dirdeep-bytes", "1m", "--dirdeep-dirs", "3", "--fallocate-bytes", "64m", "--hdd-bytes", "8m",
		"--iomix-bytes", "4m", "--mmap-bytes", "4m", "--mmap-file", "--msync-bytes", "1m", "--readahead-bytes", "16m",
		"--seek-size", "4m", "--sync-file-bytes", "4m")
	out := run(t, exec.Command("stress-ng", args...))
	yaml, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		done := regexp.MustCompile(fmt.Sprintf(`stressor: %s\n *bogo-ops: [1-9]`, regexp.QuoteMeta(name)))
		if !done.Match(yaml) {
			t.Errorf("stressor %s has done nothing\n%s", name, tail(out, 4<<10))
		}
	}
}
