// Command tunefs shows a directory at another place with the st_blksize that
// its user chooses. This package turns words and flags into settings, checks
// what can be checked beforehand, mounts, waits, unmounts and exits; nothing
// below it ends the process.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"
)

// The exit codes; scripts rely on them.
const (
	exitOK      = 0
	exitFailure = 1 // what was asked for could not be done
	exitUsage   = 2 // what was asked for makes no sense
)

// env is what a command may use of the world outside; tests put their own in.
type env struct {
	out, errw io.Writer // results; everything else (notices, progress, errors)
	mount     mountFunc
}

// command is one word of the command line.
type command struct {
	name, summary string
	run           func(e env, args []string) error // args: what follows the word
}

// commands lists every command, in the order in which help shows them.
func commands() []command {
	return []command{
		mountCommand,
		umountCommand,
		doctorCommand,
		demoCommand,
		benchCommand,
		versionCommand,
		{name: "help", summary: "explain a command: tunefs help mount", run: runHelp},
	}
}

// defaultPath is where programs are looked for when nobody says: mount(8) runs
// us without a PATH.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func main() {
	if os.Getenv("PATH") == "" {
		_ = os.Setenv("PATH", defaultPath) // cannot fail for such a name
	}
	os.Exit(run(os.Args, env{out: os.Stdout, errw: os.Stderr, mount: mountFS}))
}

// run does what argv (the program's name first) asks for and returns the exit
// code. It prints a command's error, once.
func run(argv []string, e env) int {
	c, args, err := choose(argv)
	if err == nil {
		err = c.run(e, args)
	}
	if err == nil || errors.Is(err, pflag.ErrHelp) {
		return exitOK
	}
	if errors.Is(err, errReported) {
		return exitFailure
	}
	name := "tunefs"
	if c.name != "" {
		name += " " + c.name
	}
	fmt.Fprintf(e.errw, "%s: %s\n", name, strings.TrimSpace(err.Error()))
	if errors.As(err, new(usageError)) {
		return exitUsage
	}
	return exitFailure
}

// choose finds the command that argv asks for, and its arguments. Without a
// command's word, SOURCE and MOUNTPOINT mean mount: that is how mount(8) and
// mount.fuse3(8) call a filesystem.
func choose(argv []string) (command, []string, error) {
	args := argv[1:]
	switch filepath.Base(argv[0]) {
	case "mount.fuse.tunefs", "mount.tunefs":
		return helperCommand, args, nil
	}
	if len(args) == 0 {
		return command{}, nil, usagef("what to do? tunefs mount SOURCE MOUNTPOINT; 'tunefs help' says what else there is")
	}
	switch word := args[0]; word {
	case "-h", "--help":
		return findCommand("help"), args[1:], nil
	case "-V", "--version":
		return versionCommand, args[1:], nil
	default:
		if c := findCommand(word); c.name != "" {
			return c, args[1:], nil
		}
		if looksLikeMount(args) {
			return mountCommand, args, nil
		}
		return command{}, nil, unknownCommand(word)
	}
}

// looksLikeMount tells a SOURCE from a mistyped command: a path has a slash or
// exists. What begins with a flag can only be a mount.
func looksLikeMount(args []string) bool {
	if strings.HasPrefix(args[0], "-") {
		return true
	}
	if len(args) < 2 {
		return false
	}
	_, err := os.Lstat(args[0])
	return err == nil || strings.Contains(args[0], "/")
}

func unknownCommand(word string) error {
	var names []string
	for _, c := range commands() {
		names = append(names, c.name)
	}
	return usagef("%q is neither a command nor a directory to mount; did you mean 'tunefs %s'? ('tunefs help' lists the commands)",
		word, nearest(word, names))
}

func findCommand(name string) command {
	for _, c := range commands() {
		if c.name == name {
			return c
		}
	}
	return command{}
}

const mainHelp = `tunefs shows a directory at a second place, with the block size (st_blksize)
that you choose. Programs there see and use that size; the data stays where it is.

  tunefs mount --blksize=128k ~/data ~/view    show ~/data at ~/view
  stat -c '%o %n' ~/view/*                     the size that programs now see
  tunefs umount ~/view                         and away again

Commands:
`

func runHelp(e env, args []string) error {
	if len(args) > 0 {
		c := findCommand(args[0])
		switch c.name {
		case "":
			return unknownCommand(args[0])
		case "help":
		default:
			return c.run(e, []string{"--help"})
		}
	}
	io.WriteString(e.out, mainHelp)
	for _, c := range commands() {
		fmt.Fprintf(e.out, "  %-8s %s\n", c.name, c.summary)
	}
	fmt.Fprint(e.out, `
'tunefs SOURCE MOUNTPOINT -o blksize=128k' is the same as mount, for mount(8) and
fstab. A SOURCE that is called like a command needs its path: tunefs ./mount /mnt
Exit status: 0 done, 1 failed, 2 wrong usage.
`)
	return nil
}
