package main

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// examineHost looks at the machine and at what this process may do.
func examineHost(h host) []finding {
	return []finding{
		{Check: "kernel", OK: true, Result: "Linux " + kernelRelease()},
		h.findDevice(),
		h.findPrivileges(),
		findMounter(h),
		h.findAllowOther(),
		h.findPassthrough(kernelConfig()),
		{Check: "writeback", OK: true, Result: "every kernel that has the rest has it; --io=staged uses it, without passthrough"},
		h.findRequestSize(),
		findPipeSize(h.maxRequest()),
		findURing("/sys/module/fuse/parameters/enable_uring"),
		findFileLimit(),
	}
}

func (h host) findDevice() finding {
	f := finding{Check: h.device, OK: true, Result: "can be opened"}
	if err := h.checkDevice(); err != nil {
		f.OK = false
		f.Result, f.Advice, _ = strings.Cut(err.Error(), ": ")
	}
	return f
}

func (h host) findPrivileges() finding {
	if h.privileged {
		return finding{"privileges", true, fmt.Sprintf("user %d with CAP_SYS_ADMIN: mounts directly", os.Geteuid()), ""}
	}
	return finding{"privileges", true, fmt.Sprintf("user %d without CAP_SYS_ADMIN: mounts through fusermount3, without passthrough", os.Geteuid()),
		"run as root for passthrough, suid, dev and readahead"}
}

func findMounter(h host) finding {
	path, err := findFusermount()
	if err != nil {
		return finding{"fusermount3", h.privileged, "not installed; only ordinary users need it", "install the package fuse3"}
	}
	fi, err := os.Stat(path)
	if err != nil || fi.Mode()&os.ModeSetuid == 0 {
		return finding{"fusermount3", h.privileged, path + " is not setuid root, so it cannot mount for users", "run 'chmod u+s " + path + "' as root"}
	}
	return finding{"fusermount3", true, path, ""}
}

func (h host) findAllowOther() finding {
	switch {
	case h.userAllowOther():
		return finding{"allow-other", true, "for everybody", ""}
	case h.privileged:
		return finding{"allow-other", true, "for root only", fmt.Sprintf("for users, add the line 'user_allow_other' to %s", h.conf)}
	}
	return finding{"allow-other", false, "for root only", fmt.Sprintf("as root, add the line 'user_allow_other' to %s", h.conf)}
}

// findPassthrough says what can be known without a mount; config is the
// kernel's, nil if unknown.
func (h host) findPassthrough(config map[string]bool) finding {
	const check = "passthrough"
	switch {
	case config != nil && !config["CONFIG_FUSE_PASSTHROUGH"]:
		return finding{check, false, "this kernel is built without it", "use a kernel of 6.9 or newer with CONFIG_FUSE_PASSTHROUGH; or --io=cached"}
	case !h.privileged:
		return finding{check, false, "only root (CAP_SYS_ADMIN) may use it", "mount as root; else auto uses cached"}
	case config == nil:
		return finding{check, true, "allowed, if this kernel has it (6.9 or newer)", "'tunefs doctor SOURCE' tries it"}
	}
	return finding{check, true, "the kernel has it, and you may use it", ""}
}

// kernelConfig reads which FUSE options this kernel was built with; nil if
// that is nowhere to be found.
func kernelConfig() map[string]bool {
	if f, err := os.Open("/proc/config.gz"); err == nil {
		defer f.Close() // nothing was written
		if z, err := gzip.NewReader(f); err == nil {
			return parseConfig(z)
		}
	}
	f, err := os.Open("/boot/config-" + kernelRelease())
	if err != nil {
		return nil
	}
	defer f.Close() // nothing was written
	return parseConfig(f)
}

func parseConfig(r io.Reader) map[string]bool {
	on := make(map[string]bool)
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), "=")
		if strings.HasPrefix(name, "CONFIG_FUSE") {
			on[name] = value == "y" || value == "m"
		}
	}
	return on
}

func (h host) findRequestSize() finding {
	f := finding{Check: "request size", OK: true, Result: "at most " + formatBytes(h.maxRequest())}
	if _, err := os.Stat(h.pagesLimit); err != nil {
		f.Advice = "fixed before Linux 6.13"
	} else {
		f.Advice = "for 16M requests with --max-write=16M: sysctl fs.fuse.max_pages_limit=4096"
	}
	return f
}

// findPipeSize compares the largest pipe with the largest request, which is
// spliced through one where possible.
func findPipeSize(request int) finding {
	const path = "/proc/sys/fs/pipe-max-size"
	n, err := readInt(path)
	if err != nil {
		return finding{"pipe size", false, err.Error(), ""}
	}
	f := finding{Check: "pipe size", OK: n >= request, Result: "at most " + formatBytes(n)}
	if !f.OK {
		f.Advice = fmt.Sprintf("sysctl fs.pipe-max-size=%d, to carry the largest request", request)
	}
	return f
}

func findURing(parameter string) finding {
	const check = "io_uring"
	b, err := os.ReadFile(parameter)
	switch value := strings.TrimSpace(string(b)); {
	case err != nil:
		return finding{check, false, "this kernel has no FUSE over io_uring", "use Linux 6.14 or newer; tunefs does without"}
	case value == "Y" || value == "1":
		return finding{check, true, "switched on", ""}
	}
	return finding{check, false, "there, but switched off", "as root: echo 1 > " + parameter}
}

// findFileLimit looks at the limit on descriptors, of which the tree keeps a
// bounded cache: a low one makes it slower, not fail.
func findFileLimit() finding {
	const few = 1024
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return finding{"open files", false, err.Error(), ""}
	}
	f := finding{Check: "open files", OK: true, Result: fmt.Sprintf("at most %d, can be raised to %d", l.Cur, l.Max)}
	if l.Max <= few {
		f.Advice = "raise it (ulimit -Hn, or nofile in /etc/security/limits.conf) for large trees"
	}
	return f
}
