package tests

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// stagedCase is what programs do to files below dir, in words of what they see. On a staged mount it must be what it
// is in a plain folder, while data is staged and after it was flushed.
type stagedCase struct {
	name string
	do   func(dir string) (string, error)
}

func stagedCases() []stagedCase {
	return []stagedCase{
		{"sizes", caseSizes},
		{"blocks", caseBlocks},
		{"holes", caseHoles},
		{"truncate", caseTruncate},
		{"fallocate", caseFallocate},
		{"copy_file_range", caseCopyRange},
		{"names", caseNames},
		{"modes", caseModes},
		{"readers", caseReaders},
		{"write-only", caseWriteOnly},
		{"append", caseAppend},
		{"times", caseTimes},
		{"changes", caseChanges},
		{"mmap", caseMmap},
		{"unlinked", caseUnlinked},
	}
}

// TestStagedFiles compares what programs see of files with staged data with what they see in a plain folder, and
// afterwards what lies in SOURCE.
func TestStagedFiles(t *testing.T) {
	settings := map[string][]string{
		"close":         {"--stage-size=256k", "--stage-memory=8M"},
		"idle":          {"--flush-on=idle", "--flush-after=1h"},
		"idle, at once": {"--flush-on=idle", "--flush-after=1ms", "--stage-size=64k", "--stage-memory=256k", "--attr-timeout=0s"},
	}
	for name, args := range settings {
		t.Run(name, func(t *testing.T) {
			eachStager(t, func(t *testing.T, s *stagedSite) {
				s.start(append(args, "--blksize=native")...)
				for _, c := range stagedCases() {
					if c.name == "holes" && !keepsHoles(s.src) {
						continue
					}
					t.Run(c.name, func(t *testing.T) { compareCase(t, s, c) })
				}
				s.unmountClean()
			})
		})
	}
}

// compareCase runs a case on the mount and in a plain folder.
func compareCase(t *testing.T, s *stagedSite, c stagedCase) {
	plain := filepath.Join(plainDir(t), "dir")
	var want, got string
	folder := strings.ReplaceAll(c.name, " ", "-")
	must(t, s.do(func() (err error) {
		if err := os.Mkdir(s.path(folder), 0o755); err != nil {
			return err
		}
		got, err = c.do(s.path(folder))
		return err
	}))
	must(t, os.Mkdir(plain, 0o755))
	if s.user != nil {
		must(t, os.Chown(plain, int(s.user.UID), int(s.user.GID)))
	}
	must(t, s.do(func() (err error) {
		want, err = c.do(plain)
		return err
	}))
	if got != want {
		t.Errorf("it is\n%s\nwant\n%s", got, want)
	}
	must(t, s.do(func() error { return syncTree(s.path(folder)) }))
	names, err := filepath.Glob(s.backing(folder) + "/*")
	must(t, err)
	for _, name := range names {
		var shown, stored unix.Stat_t
		must(t, errors.Join(s.do(func() error { return unix.Stat(s.path(folder, filepath.Base(name)), &shown) }), unix.Stat(name, &stored)))
		if shown.Mtim != stored.Mtim {
			t.Errorf("%s has mtime %v, in SOURCE %v", filepath.Base(name), shown.Mtim, stored.Mtim)
		}
	}
	compareTrees(t, "in SOURCE", stagedView(t, s.backing(folder)), stagedView(t, plain))
}

// keepsHoles reports whether holes depend on nothing but what is written. XFS makes files larger than they need to be
// at moments of its own.
func keepsHoles(dir string) bool {
	var sfs unix.Statfs_t
	return unix.Statfs(dir, &sfs) != nil || sfs.Type != unix.XFS_SUPER_MAGIC
}

// syncTree syncs all files below dir.
func syncTree(dir string) error {
	names, err := filepath.Glob(dir + "/*")
	for _, name := range names {
		f, openErr := os.Open(name)
		if openErr != nil {
			if errors.Is(openErr, unix.EACCES) {
				continue
			}
			return openErr
		}
		err = errors.Join(err, f.Sync(), f.Close())
	}
	return err
}

// stagedView is viewTree without the times, which differ between the two runs; the cases compare those.
func stagedView(t *testing.T, dir string) treeView {
	t.Helper()
	view := viewTree(t, dir)
	for name, line := range view {
		before, after, _ := strings.Cut(line, " mtime ")
		_, after, _ = strings.Cut(after, " ")
		if !keepsHoles(dir) {
			after, _, _ = strings.Cut(after, " data ")
		}
		view[name] = before + " " + after
	}
	return view
}
