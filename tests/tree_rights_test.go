package tests

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The tests here are about rights that a daemon of root could lend to an ordinary user when SOURCE changes
// between the kernel's check and the daemon's call.

// TestCreateOpensNoStrangersFile: a file that only root may open appears just when a user creates one of its name.
// Natively open(O_CREAT) is then refused like any other open.
func TestCreateOpensNoStrangersFile(t *testing.T) {
	requireRoot(t)
	for name, flags := range map[string]int{"open": unix.O_RDWR, "truncate": unix.O_WRONLY | unix.O_TRUNC} {
		t.Run(name, func(t *testing.T) {
			m := mount(t, withMode("cached"), withArgs("--allow-other"))
			must(t, os.Chmod(m.Source, 0o777))
			secret, late := m.Backing("secret"), m.Backing("late")
			must(t, writeFile(secret, raceSecret, 0o600))
			stop := make(chan struct{})
			flipped := make(chan error)
			go func() { flipped <- flip(secret, late, stop) }()
			end := time.Now().Add(pickLong(1500*time.Millisecond, 20*time.Second))
			err := as(ordinary(), 0, func() error { return createUntil(end, m.Path("late"), flags) })
			close(stop)
			if err := errors.Join(err, <-flipped); err != nil {
				t.Error(err)
			}
			if got, err := os.ReadFile(secret); err != nil || string(got) != raceSecret {
				t.Errorf("the file is now %q, %v", got, err)
			}
		})
	}
}

// flip has a name appear for a file that exists, and disappear again.
func flip(file, name string, stop chan struct{}) error {
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		if err := unix.Link(file, name); !oneOf(err, unix.EEXIST) {
			return err
		}
		if err := unix.Unlink(name); !oneOf(err, unix.ENOENT) {
			return err
		}
	}
}

// createUntil creates path again and again, and fails when that opens a file that has content.
func createUntil(end time.Time, path string, flags int) error {
	created, refused := 0, 0
	for time.Now().Before(end) {
		fd, err := unix.Open(path, flags|unix.O_CREAT|unix.O_CLOEXEC, 0o644)
		switch {
		case errors.Is(err, unix.EACCES):
			refused++
			continue
		case errors.Is(err, unix.ESTALE) || errors.Is(err, unix.ENOENT):
			continue
		case err != nil:
			return err
		}
		var st unix.Stat_t
		err = unix.Fstat(fd, &st)
		unix.Close(fd)
		if err != nil {
			return err
		}
		if st.Uid == 0 {
			return fmt.Errorf("open of root's file with mode %o gave a descriptor", st.Mode&0o7777)
		}
		created++
		if err := unix.Unlink(path); !oneOf(err, unix.ENOENT, unix.ESTALE) {
			return err
		}
	}
	if created == 0 || refused == 0 {
		return fmt.Errorf("no race: %d times created, %d times refused", created, refused)
	}
	return nil
}

// TestStickyFolder: in a sticky folder a user removes and renames only what is the user's, also when the name has
// become another's file since the kernel learnt it.
func TestStickyFolder(t *testing.T) {
	requireRoot(t)
	for name, attack := range map[string]func(path string) error{
		"unlink":      unix.Unlink,
		"rename":      func(p string) error { return unix.Rename(p, p+"2") },
		"rename over": func(p string) error { return unix.Rename(p+" mine", p) },
	} {
		t.Run(name, func(t *testing.T) {
			m := mount(t, withMode("cached"), withArgs("--allow-other", "--attr-timeout=60s", "--entry-timeout=60s"))
			must(t, unix.Chmod(m.Source, unix.S_ISVTX|0o777))
			file := m.Path("file")
			must(t, as(ordinary(), 0, func() error {
				return errors.Join(writeFile(file, "mine", 0o644), writeFile(file+" mine", "mine", 0o644))
			}))
			must(t, os.Rename(m.Backing("file"), m.Backing("elsewhere")))
			must(t, writeFile(m.Backing("file"), "root's", 0o644))
			err := as(ordinary(), 0, func() error { return attack(file) })
			if err == nil {
				t.Error("it worked")
			}
			if got, err := os.ReadFile(m.Backing("file")); err != nil || string(got) != "root's" {
				t.Errorf("root's file is now %q, %v", got, err)
			}
		})
	}
}
