package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestParseMounts(t *testing.T) {
	mounts, err := parseMounts(strings.NewReader(
		"22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n" +
			"39 22 0:41 / /mnt/with\\040blank rw master:3 propagate_from:2 - fuse.tunefs /src\\134x rw,user_id=0\n" +
			"40 39 0:42 / /mnt/with\\040blank rw - tmpfs none rw\n" +
			"41 22 0:43 / /empty rw - tmpfs  rw\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := mountEntry{id: 39, device: "0:41", point: "/mnt/with blank", fstype: "fuse.tunefs", source: `/src\x`}
	if len(mounts) != 4 || mounts[1] != want || mounts[1].connection() != "41" {
		t.Errorf("got %+v", mounts)
	}
	if top, ok := topmost(mounts, "/mnt/with blank"); !ok || top.fstype != "tmpfs" {
		t.Errorf("on top is %+v", top)
	}
	if _, err := parseMounts(strings.NewReader("22 1 254:0 /\n")); err == nil {
		t.Error("half a line was taken")
	}
}

func TestMountAt(t *testing.T) {
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("/proc/../proc", link); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{"/": true, "/proc": true, "/proc/": true, link: true, "/proc/self": false, "/nonexistent": false} {
		m, got, err := mountAt(path)
		if err != nil || got != want {
			t.Errorf("mountAt(%s) = %+v, %v, %v; want %v", path, m, got, err, want)
		}
	}
}

func TestResolve(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"abs": dir, "rel": "abs/there", "loop": "loop"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"abs": dir, "rel": dir + "/there", "there": dir + "/there", "abs/x": dir + "/x"} {
		if got, err := resolve(filepath.Join(dir, name)); err != nil || got != want {
			t.Errorf("resolve(%s) = %s, %v; want %s", name, got, err, want)
		}
	}
	if _, err := resolve(filepath.Join(dir, "loop")); err == nil || !strings.Contains(err.Error(), unix.ELOOP.Error()) {
		t.Errorf("a loop gives %v", err)
	}
}
