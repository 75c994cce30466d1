package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

var umountCommand = command{name: "umount", summary: "take such a mount away", run: runUmount}

const umountHelp = `Usage: tunefs umount [--lazy] MOUNTPOINT

Unmounts a tunefs mount and waits until its daemon has ended. A mount that is
in use stays, and you are told by whom. umount(8) and 'fusermount3 -u' unmount
too, but don't wait.
`

// patience is how long a daemon may take to end once it is unmounted.
const patience = 10 * time.Second

func runUmount(e env, args []string) error {
	f := newFlags(e, umountHelp)
	lazy := f.BoolP("lazy", "l", false, "hide the mount at once; who uses it goes on until done")
	if err := parseFlags(f, args); err != nil {
		return err
	}
	if f.NArg() != 1 {
		return usagef("wants MOUNTPOINT, but got %s; see 'tunefs umount --help'", countOperands(f.NArg()))
	}
	m, err := findTunefs(f.Arg(0))
	if err != nil {
		return err
	}
	daemons := watchDaemons(m.connection())
	defer daemons.close()
	copies := copiesOf(m)
	if err := unmount(m.point, *lazy); err != nil {
		if errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("%s is in use by %s; end that, or use --lazy", m.point, whoHolds(m.point, daemons.pids()...))
		}
		return err
	}
	if *lazy {
		return nil // nobody knows when its users are done
	}
	return daemons.await(e, m, copies)
}

// findTunefs returns the tunefs mount at path.
func findTunefs(path string) (mountEntry, error) {
	m, found, err := mountAt(path)
	switch {
	case err != nil:
		return mountEntry{}, err
	case found && m.fstype == fsType:
		return m, nil
	case found:
		return mountEntry{}, fmt.Errorf("%s is not a tunefs mount but one of type %s: umount(8) is for that", path, m.fstype)
	}
	if _, err := os.Lstat(path); err != nil {
		return mountEntry{}, fmt.Errorf("nothing is mounted there: %w", err)
	}
	return mountEntry{}, fmt.Errorf("nothing is mounted at %s: 'findmnt -t %s' lists the tunefs mounts", path, fsType)
}

// unmount unmounts what is at point, a path without symlinks. The error is
// unix.EBUSY if it is in use.
func unmount(point string, lazy bool) error {
	if !thisHost().privileged {
		return unmountAsUser(point, lazy)
	}
	flags := unix.UMOUNT_NOFOLLOW
	if lazy {
		flags |= unix.MNT_DETACH
	}
	err := unix.Unmount(point, flags)
	if err != nil && !errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("unmounting %s: %w", point, err)
	}
	return err
}

func unmountAsUser(point string, lazy bool) error {
	program, err := findFusermount()
	if err != nil {
		return checkFusermount()
	}
	args := []string{"-u", "--", point}
	if lazy {
		args = append([]string{"-z"}, args...)
	}
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C") // its words are read below
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		return nil
	case bytes.Contains(out, []byte("busy")):
		return unix.EBUSY
	}
	return fmt.Errorf("unmounting %s: %s", point, bytes.TrimSpace(out))
}

// daemons are the processes that serve one mount, held by descriptors since a
// pid may come to mean another process.
type daemons []daemon

type daemon struct{ pid, fd int }

// watchDaemons finds the daemons of a connection. There are none if they are
// another user's, or if the kernel is too old to tell.
func watchDaemons(connection string) daemons {
	var found daemons
	for _, pid := range daemonsOf(connection) {
		if fd, err := unix.PidfdOpen(pid, 0); err == nil {
			found = append(found, daemon{pid, fd})
		}
	}
	return found
}

func (ds daemons) close() {
	for _, d := range ds {
		_ = unix.Close(d.fd) // a pidfd has nothing to lose
	}
}

func (ds daemons) pids() []string {
	var pids []string
	for _, d := range ds {
		pids = append(pids, strconv.Itoa(d.pid))
	}
	return pids
}

// await returns when the daemons have ended, or when one of the copies of the
// unmounted m turns out to be left, which keeps them running.
func (ds daemons) await(e env, m mountEntry, copies []mountCopy) error {
	const step = 50 * time.Millisecond
	for waited := time.Duration(0); waited < patience; waited += step {
		pid := ds.running(step)
		if pid == 0 {
			return nil
		}
		if where := remaining(copies, m); where != "" {
			fmt.Fprintf(e.errw, "tunefs umount: %s is unmounted, but its daemon (pid %d) goes on: it is also mounted %s\n", m.point, pid, where)
			return nil
		}
	}
	return fmt.Errorf("%s is unmounted, but its daemon (pid %d) has not ended within %v: see its log", m.point, ds.running(0), patience)
}

// running waits at most timeout for the daemons to end, and returns the pid of
// one that has not; 0 if all have.
func (ds daemons) running(timeout time.Duration) int {
	for _, d := range ds {
		fds := []unix.PollFd{{Fd: int32(d.fd), Events: unix.POLLIN}}
		var n int
		err := ignoringEINTR(func() (err error) {
			n, err = unix.Poll(fds, int(timeout.Milliseconds()))
			return err
		})
		if err == nil && n == 0 {
			return d.pid
		}
	}
	return 0
}

// ignoringEINTR repeats call while a signal interrupts it.
func ignoringEINTR(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}
