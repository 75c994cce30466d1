package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// A background mount is served by a process of its own: the program starts
// itself again, in a new session, and waits at a pipe for one report. The
// child's --ready-fd is that pipe.

// reportFD is the child's end: the first of exec.Cmd's ExtraFiles.
const reportFD = 3

// report is what the child says once: mounted, or why not.
type report struct {
	Error  string `json:",omitempty"`
	Notice string `json:",omitempty"`
}

// errReported ends a child whose error the parent prints.
var errReported = errors.New("the parent has been told")

// startDaemon starts the child for a mount command with these arguments, and
// returns when its mount answers.
func startDaemon(e env, s *settings, args []string) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close() // nothing was written to it
	cmd := exec.Command("/proc/self/exe", append([]string{"mount", "--foreground", fmt.Sprint("--ready-fd=", reportFD)}, args...)...)
	cmd.Args[0] = "tunefs" // not what mount(8) may have called us
	cmd.ExtraFiles = []*os.File{w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if f, ok := e.errw.(*os.File); ok {
		cmd.Stderr = f // until the child is ready: a crash shows
	}
	err = cmd.Start()
	w.Close() // the child has its own
	if err != nil {
		return fmt.Errorf("cannot start the daemon: %w", err)
	}
	rep, err := awaitReport(r, cmd)
	if err != nil {
		return err
	}
	if rep.Notice != "" {
		fmt.Fprintf(e.errw, "tunefs mount: %s\n", rep.Notice)
	}
	return answers(s.mountpoint)
}

// awaitReport reads the child's report. A child that failed, or died without
// a word, has ended when it returns.
func awaitReport(r io.Reader, child *exec.Cmd) (report, error) {
	var rep report
	err := json.NewDecoder(r).Decode(&rep)
	switch {
	case err == nil && rep.Error == "":
		return rep, child.Process.Release()
	case err == nil:
		_ = child.Wait() // its status says no more than its report
		return report{}, errors.New(rep.Error)
	}
	return report{}, fmt.Errorf("the daemon died before it had mounted anything: %v", describeExit(child))
}

func describeExit(child *exec.Cmd) string {
	if err := child.Wait(); err != nil {
		return err.Error()
	}
	return "exit status 0"
}

// runDaemon is the child: serve, with a report to the parent in front. What
// happens after that goes to the log.
func runDaemon(e env, s *settings) error {
	pipe := os.NewFile(uintptr(s.readyFD), "ready-fd")
	unix.CloseOnExec(s.readyFD)
	// No directory shall be busy because somebody once stood there.
	if err := os.Chdir("/"); err != nil {
		return err
	}
	reported := false
	err := serve(e, s, func(m mounted) error {
		if err := s.leaveStderr(); err != nil {
			return err
		}
		reported = true
		return send(pipe, report{Notice: notice(m)})
	})
	if err != nil && !reported {
		_ = send(pipe, report{Error: err.Error()}) // if nobody reads it, nobody can be told
		return errReported
	}
	return err
}

// send sends the one report and closes the pipe.
func send(pipe *os.File, r report) error {
	return errors.Join(json.NewEncoder(pipe).Encode(r), pipe.Close())
}

// leaveStderr gives the terminal back: what the runtime prints in a crash goes
// to the log file, or nowhere.
func (s *settings) leaveStderr() error {
	name := s.logFile
	if name == "" {
		name = os.DevNull
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	return errors.Join(unix.Dup3(int(f.Fd()), unix.Stderr, 0), f.Close())
}

// answers checks that a FUSE mount at path answers.
func answers(path string) error {
	var st unix.Statfs_t
	if err := ignoringEINTR(func() error { return unix.Statfs(path, &st) }); err != nil {
		return fmt.Errorf("mounted %s, but it does not answer: %w", path, err)
	}
	if st.Type != unix.FUSE_SUPER_MAGIC {
		return fmt.Errorf("mounted %s, but somebody has unmounted it at once", path)
	}
	return nil
}
