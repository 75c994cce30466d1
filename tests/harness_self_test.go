package tests

import (
	"os"
	"testing"
)

// TestMountServes is the smallest use of the harness: it fails first when the mount itself is broken.
func TestMountServes(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		m := mount(t, withMode(mode))
		if err := os.WriteFile(m.Path("file"), []byte("hello"), 0o644); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(m.Backing("file"))
		if err != nil || string(got) != "hello" {
			t.Errorf("SOURCE has %q, %v", got, err)
		}
	})
}

// TestUserMountServes does the same with the rights of an ordinary user, through fusermount3.
func TestUserMountServes(t *testing.T) {
	requireRoot(t)
	requirePackages(t, "fuse3")
	u := ordinary()
	m := mount(t, asUser(u), withMode("cached"))
	if out, err := u.command("sh", "-c", "echo hello > "+m.Path("file")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got, err := os.ReadFile(m.Backing("file"))
	if err != nil || string(got) != "hello\n" {
		t.Errorf("SOURCE has %q, %v", got, err)
	}
}
