package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Filesystem says how one way to see a folder is mounted.
type Filesystem struct {
	Name string
	// Command mounts a folder: the words {source} and {mountpoint} in it stand for the two. It may stay for as long as
	// the mount does or end with 0 once it is there. Without a command programs work on the folder itself.
	Command []string
}

// Native is the folder itself, what others are compared with.
var Native = Filesystem{Name: "native"}

// ParseFilesystem reads NAME=COMMAND. The command is cut into words at spaces; it knows no quotes.
func ParseFilesystem(s string) (Filesystem, error) {
	name, command, _ := strings.Cut(s, "=")
	fsys := Filesystem{Name: name, Command: strings.Fields(command)}
	if name == "" || !strings.Contains(command, "{source}") || !strings.Contains(command, "{mountpoint}") {
		return Filesystem{}, fmt.Errorf("%q is not NAME=COMMAND with {source} and {mountpoint} in the command", s)
	}
	return fsys, nil
}

// Attached is a filesystem at work. Detach must be called in the end.
type Attached struct {
	Filesystem
	Dir   string        // where programs work
	Ready time.Duration // from starting the command until Dir answered

	source    string // the folder behind Dir
	complaint string // the file that takes what the command says
	command   *exec.Cmd
	ended     chan struct{} // closed when the command has ended
	endErr    error         // how; to be read when ended is closed
}

const (
	readyLimit   = 20 * time.Second
	readyPoll    = 200 * time.Microsecond
	unmountLimit = 5 * time.Second
	unmountPoll  = 20 * time.Millisecond
)

// Attach makes folders below dir, which must be empty, and mounts there what fsys says. If it fails nothing is left
// mounted.
func Attach(ctx context.Context, fsys Filesystem, dir string) (*Attached, error) {
	a := &Attached{
		Filesystem: fsys,
		source:     filepath.Join(dir, "source"),
		complaint:  filepath.Join(dir, "stderr"),
	}
	a.Dir = a.source
	if err := os.MkdirAll(a.source, 0o755); err != nil {
		return nil, err
	}
	if len(fsys.Command) == 0 {
		return a, nil
	}
	a.Dir = filepath.Join(dir, "mnt")
	if err := os.Mkdir(a.Dir, 0o755); err != nil {
		return nil, err
	}
	if err := a.mount(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("mounting %s: %w", fsys.Name, err), a.Detach())
	}
	return a, nil
}

// mount starts the command and waits until the mount answers.
func (a *Attached) mount(ctx context.Context) error {
	before, err := device(a.Dir)
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := a.start(); err != nil {
		return err
	}
	for time.Since(begin) < readyLimit && ctx.Err() == nil {
		if now, err := device(a.Dir); err == nil && now != before {
			a.Ready = time.Since(begin)
			return nil
		}
		if err := a.failure(); err != nil {
			return err
		}
		time.Sleep(readyPoll)
	}
	return cmp.Or(ctx.Err(), fmt.Errorf("no mount after %v", readyLimit))
}

// start starts the command, in a process group of its own: an interrupt from the terminal is for us, and we unmount.
func (a *Attached) start() error {
	words := strings.NewReplacer("{source}", a.source, "{mountpoint}", a.Dir)
	var argv []string
	for _, word := range a.Command {
		argv = append(argv, words.Replace(word))
	}
	// A file, because a pipe would stay open for as long as a daemon in the background does.
	complaint, err := os.Create(a.complaint)
	if err != nil {
		return err
	}
	defer complaint.Close()
	command := exec.Command(argv[0], argv[1:]...)
	command.Stderr = complaint
	command.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	if err := command.Start(); err != nil {
		return err
	}
	a.command, a.ended = command, make(chan struct{})
	go func() {
		a.endErr = command.Wait()
		close(a.ended)
	}()
	return nil
}

// failure says how the command failed, nil if it runs or went well.
func (a *Attached) failure() error {
	select {
	case <-a.ended:
	default:
		return nil
	}
	if a.endErr == nil {
		return nil
	}
	said, _ := os.ReadFile(a.complaint) // without it the exit status must do
	return errors.Join(a.endErr, lastLines(said))
}

// Pid is the process that the command runs in, 0 if there is none or it has ended.
func (a *Attached) Pid() int {
	if a.command == nil {
		return 0
	}
	select {
	case <-a.ended:
		return 0
	default:
		return a.command.Process.Pid
	}
}

// Detach unmounts, and waits until the command has ended; it kills one that does not end. A busy mount is waited for,
// and then detached.
func (a *Attached) Detach() error {
	if a.command == nil {
		return nil
	}
	err := a.unmount()
	select {
	case <-a.ended:
		return err
	case <-time.After(unmountLimit):
	}
	killErr := a.command.Process.Kill()
	<-a.ended
	return errors.Join(err, fmt.Errorf("%s did not end after its unmount", a.Name), killErr)
}

func (a *Attached) unmount() error {
	mounted, err := isMountpoint(a.Dir)
	for begin := time.Now(); mounted && err == nil; mounted, err = isMountpoint(a.Dir) {
		tried := unmountDir(a.Dir, time.Since(begin) > unmountLimit)
		if time.Since(begin) > 2*unmountLimit {
			return fmt.Errorf("unmounting %s: %w", a.Dir, tried)
		}
		time.Sleep(unmountPoll)
	}
	return err
}

// unmountDir unmounts dir once, lazily if that is asked for.
func unmountDir(dir string, lazy bool) error {
	if os.Geteuid() == 0 {
		flags := 0
		if lazy {
			flags = unix.MNT_DETACH
		}
		return unix.Unmount(dir, flags)
	}
	argv := []string{"fusermount3", "-u", dir}
	if lazy {
		argv = []string{"fusermount3", "-u", "-z", dir}
	}
	_, err := Exec(context.Background(), Command{Argv: argv})
	return err
}

// isMountpoint reads the kernel's list instead of asking dir, which does not answer if its daemon is gone.
func isMountpoint(dir string) (bool, error) {
	mount, err := findMount(func(m mountInfo) bool { return m.mountpoint == dir })
	return mount != nil, err
}

func device(path string) (uint64, error) {
	var st unix.Stat_t
	err := unix.Stat(path, &st)
	return st.Dev, err
}
