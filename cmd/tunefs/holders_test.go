package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestUnder(t *testing.T) {
	for _, tc := range []struct {
		dir, path string
		want      bool
	}{{"/a", "/a", true}, {"/a", "/a/b", true}, {"/a", "/ab", false}, {"/a/b", "/a", false}, {"/", "/a", true}, {"/a", "/a (deleted)", false}} {
		if got := under(tc.dir, tc.path); got != tc.want {
			t.Errorf("under(%s, %s) = %v", tc.dir, tc.path, got)
		}
	}
}

func TestWhoHolds(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if got := whoHolds(dir); got != "something that this user may not see" {
		t.Errorf("before anybody uses it: %s", got)
	}

	child := exec.Command("sleep", "60")
	child.Dir = dir
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = child.Process.Kill() // fails if it has ended, which is as good
		_ = child.Wait()
	}()
	want := "pid " + strconv.Itoa(child.Process.Pid) + " (sleep: working directory " + dir + ")"
	if got := whoHolds(dir); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := whoHolds(dir, strconv.Itoa(child.Process.Pid)); strings.Contains(got, "sleep") {
		t.Errorf("the exception is named: %q", got)
	}
}

func TestWhoHoldsFilesAndMaps(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "a file")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	self := strconv.Itoa(os.Getpid())
	if got := usesBelow(self, dir); got != "open file "+path {
		t.Errorf("got %q", got)
	}
	data, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if got := usesBelow(self, dir); got != "mapped file "+path {
		t.Errorf("got %q", got)
	}
	if err := unix.Munmap(data); err != nil {
		t.Fatal(err)
	}
	if got := usesBelow(self, dir); got != "" {
		t.Errorf("got %q", got)
	}
}

func TestHoldersAreBounded(t *testing.T) {
	holders, more := findHolders("/", nil)
	if len(holders) > maxHolders || (len(holders) < maxHolders && more) {
		t.Errorf("%d holders, more: %v", len(holders), more)
	}
}

// A device number is another filesystem's as soon as it is free: only a mount
// that was a copy before counts as one left over.
func TestRemainingCopies(t *testing.T) {
	root, ok, err := mountAt("/")
	if err != nil || !ok {
		t.Fatalf("no root: %v", err)
	}
	gone := root
	gone.id = -1 // so that the root itself passes for a copy
	copies := copiesOf(gone)
	if len(copies) == 0 {
		t.Fatal("the root is not found")
	}
	if where := remaining(copies, gone); where == "" {
		t.Error("a copy that is left is not found")
	}
	for i := range copies {
		copies[i].id = -2
	}
	if where := remaining(copies, gone); where != "" {
		t.Errorf("a new mount with the same device, %s, passes for a copy", where)
	}
}
