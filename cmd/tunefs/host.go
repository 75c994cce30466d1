package main

import (
	"bufio"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// host is what the checks before a mount ask the machine; tests change it.
type host struct {
	privileged bool   // whether this thread may mount(2): CAP_SYS_ADMIN
	device     string // /dev/fuse
	conf       string // fuse.conf, for fusermount3
	pagesLimit string // the sysctl that limits a request, in pages
}

func thisHost() host {
	return host{
		privileged: hasCapability(unix.CAP_SYS_ADMIN),
		device:     "/dev/fuse",
		conf:       "/etc/fuse.conf",
		pagesLimit: "/proc/sys/fs/fuse/max_pages_limit",
	}
}

// hasCapability reports whether this thread has a capability in effect.
func hasCapability(capability int) bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData // two words of 32 bits in version 3
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false
	}
	return data[capability/32].Effective&(1<<(capability%32)) != 0
}

// userAllowOther reports whether fuse.conf lets users say allow_other.
func (h host) userAllowOther() bool {
	f, err := os.Open(h.conf)
	if err != nil {
		return false
	}
	defer f.Close() // nothing was written
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if strings.TrimSpace(lines.Text()) == "user_allow_other" {
			return true
		}
	}
	return false
}

// maxRequest is the most bytes that one request can carry.
func (h host) maxRequest() int {
	pages := 256 // fixed before Linux 6.13, which has no sysctl for it
	if n, err := readInt(h.pagesLimit); err == nil {
		pages = n
	}
	return pages * os.Getpagesize()
}

func readInt(path string) (int, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(b)))
}

// findFusermount finds the program that mounts for ordinary users.
func findFusermount() (string, error) { return exec.LookPath("fusermount3") }
