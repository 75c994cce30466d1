package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"tunefs/fs"
	"tunefs/policy"
)

// mounted is a mount that this process serves; *fs.Mounted is one.
type mounted interface {
	Wait()
	Unmount() error
	Detach() error
	IO() policy.IO
	Reason() string
	Gone() <-chan struct{}
	Staged() int64
	GiveUp()
	Lost() int64
}

// mountFunc mounts, so that flags and signals can be tested without a mount.
type mountFunc func(source, mountpoint string, o fs.Options) (mounted, error)

func mountFS(source, mountpoint string, o fs.Options) (mounted, error) {
	m, err := fs.Mount(source, mountpoint, o)
	if err != nil {
		return nil, err // not m: a nil *fs.Mounted is not a nil mounted
	}
	return m, nil
}

var mountCommand = command{name: "mount", summary: "show a directory at another place, at the block size you choose", run: runMount}

func runMount(e env, args []string) error {
	s, err := parseMount(e, args)
	switch {
	case err != nil:
		return err
	case s.readyFD != 0:
		return runDaemon(e, &s)
	case s.foreground:
		return serve(e, &s, func(mounted) error { return nil })
	}
	return startDaemon(e, &s, args)
}

// helperCommand is mount as mount(8) calls it.
var helperCommand = command{name: "mount", run: runHelper}

// runHelper is /sbin/mount.fuse.tunefs. It has flags of its own: -f is a mount
// that only pretends, not one in the foreground.
func runHelper(e env, args []string) error {
	f := newFlags(e, mountHelp)
	options := f.StringArrayP("options", "o", nil, "options, separated by commas")
	fake := f.BoolP("fake", "f", false, "check everything, but don't mount")
	f.BoolP("no-mtab", "n", false, "nothing: there is no mtab to write")
	f.BoolP("verbose", "v", false, "nothing: what there is to say is said anyway")
	f.StringP("types", "t", "", "nothing: there is one type only")
	if err := parseFlags(f, args); err != nil {
		return err
	}
	var mountArgs []string
	for _, list := range *options {
		mountArgs = append(mountArgs, "--options="+list)
	}
	mountArgs = append(append(mountArgs, "--"), f.Args()...)
	if !*fake {
		return runMount(e, mountArgs)
	}
	s, err := parseMount(e, mountArgs)
	if err != nil {
		return err
	}
	return preflight(&s)
}

// serve checks, mounts, calls ready once the mount answers, and returns when
// it has been unmounted: by anybody, or by us at a signal. If ready fails the
// mount is taken back.
func serve(e env, s *settings, ready func(mounted) error) error {
	if err := preflight(s); err != nil {
		return err
	}
	var err error
	if s.mountpoint, err = resolve(s.mountpoint); err != nil {
		return err
	}
	log, err := openLog(s, e.errw)
	if err != nil {
		return err
	}
	// From here on a signal must not end us and leave a dead mount behind.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT)
	defer signal.Stop(signals)
	signal.Ignore(unix.SIGHUP)

	s.options.Log = log
	if s.options.Policy.IO == policy.Staged {
		if s.options.Staging, err = s.staging.start(s.source, log); err != nil {
			return err
		}
	}
	m, err := e.mount(s.source, s.mountpoint, s.options)
	if err != nil {
		return err
	}
	log.Info("mounted", s.describe(m)...)
	if err := ready(m); err != nil {
		log.Error("giving the mount up: whoever wanted it cannot be told", "mountpoint", s.mountpoint, "error", err)
		return errors.Join(err, m.Detach())
	}
	w := &watch{mounted: m, mountpoint: s.mountpoint, log: log}
	w.untilUnmounted(signals)
	log.Info("unmounted", "mountpoint", s.mountpoint)
	if n := m.Lost(); n > 0 {
		log.Error("not all that programs wrote is in SOURCE", "mountpoint", s.mountpoint, "bytes", n)
		return fmt.Errorf("%d bytes that programs wrote below %s could not be written to %s; the log says which", n, s.mountpoint, s.source)
	}
	return nil
}

// notice is what the user should know of the mount's mode; "" if all is as asked.
func notice(m mounted) string {
	if m.Reason() == "" {
		return ""
	}
	return fmt.Sprintf("auto uses %s, not passthrough: %s", m.IO(), m.Reason())
}
