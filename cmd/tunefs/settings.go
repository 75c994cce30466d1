package main

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"tunefs/fs"
	"tunefs/policy"
)

// settings is a mount command line, understood.
type settings struct {
	source, mountpoint string // absolute
	options            fs.Options
	staging            stagingFlags
	foreground         bool
	logFile            string // absolute; empty: stderr in the foreground, else syslog
	logLevel           slog.Level
	readyFD            int // where a background daemon reports; 0 if it is none
}

// The defaults of flags.
const (
	// defaultBlksize is the size for which libc's buffered loops have been
	// measured to gain, and the one that ZFS reports; larger ones gain little.
	defaultBlksize  = 128 << 10
	defaultTimeout  = time.Second
	defaultMaxWrite = 1 << 20
)

const mountHelp = `Usage: tunefs mount [flags] SOURCE MOUNTPOINT
   or: tunefs SOURCE MOUNTPOINT -o option,option...

Shows the directory SOURCE at the directory MOUNTPOINT, with the block size
(st_blksize) that you choose. Returns when the mount answers.

  tunefs mount ~/data ~/view                         128k for every file
  tunefs mount --blksize=1M --io=direct ~/data ~/view
                                                     every read(2) and write(2) is one request
  tunefs mount --io=staged ~/data ~/view             many small writes become few large ones
  tunefs mount --rule '**/*.log=4k' --rule 'big/**=4M,io=direct' ~/data ~/view
                                                     some files otherwise; the first match decides
  mount -t fuse.tunefs -o blksize=128k,ro /srv/data /mnt
  /srv/data /mnt fuse.tunefs noauto,blksize=1M,allow_other 0 0
                                                     the same by mount(8), and a line in /etc/fstab

SIZE is a power of two like 8k, 128KiB, 1M or 131072; the name of a filesystem
that reports it (ext4, xfs, btrfs: 4k, zfs: 128k, nfs: 512k, cifs: 1M, cephfs,
lustre: 4M); or native, for what the files in SOURCE report themselves.

MODE says how data travels. passthrough: the kernel moves it, at native speed
(root only). cached: through the page cache and tunefs. direct: each system call
is one request to tunefs, for seeing what programs really ask for. staged: writes
are gathered and reach SOURCE as large aligned extents. auto is passthrough where
that is allowed, else cached.

RULE is GLOB=SIZE[,io=direct|cached]; GLOB is matched against the path below
MOUNTPOINT, where ** stands for any number of directories.

-o takes mount(8)'s own options (ro, noexec, noatime, noauto, x-...) and every
flag below as name=value. A comma in a value is written \, or the value is put
in double quotes: -o 'rule=*.db=4k\,io=direct' or -o 'rule="*.db=4k,io=direct"'.
`

// parseMount understands what follows the word mount. Its errors are usage
// errors, or pflag.ErrHelp.
func parseMount(e env, args []string) (settings, error) {
	var s settings
	s.options.Policy.Blksize = defaultBlksize
	s.options.MaxWrite = defaultMaxWrite

	f := newFlags(e, mountHelp)
	readOnly, words := defineMountFlags(f, &s)
	staged := s.staging.flags()
	f.AddFlagSet(staged)
	if err := parseFlags(f, args); err != nil {
		return settings{}, err
	}
	kernel, err := applyOptions(f, *words)
	if err != nil {
		return settings{}, err
	}
	if s.options.Policy.IO == policy.Staged {
		err = s.staging.check()
	} else {
		err = checkUnused(staged)
	}
	if err != nil {
		return settings{}, err
	}
	if *readOnly && slices.Contains(kernel.said, "rw") {
		return settings{}, usagef("--ro and -o rw contradict each other; give one of them")
	}
	if *readOnly {
		kernel.take("ro")
	}
	s.options.MountOptions = kernel.words()
	return s, s.operands(f.Args())
}

// defineMountFlags has f fill in s, and returns the values that need more
// thought: --ro and the lists of -o.
func defineMountFlags(f *pflag.FlagSet, s *settings) (readOnly *bool, words *[]string) {
	o := &s.options
	f.Var((*blksizeValue)(&o.Policy.Blksize), "blksize", "block size that files report (st_blksize)")
	f.Var((*ioValue)(&o.Policy.IO), "io", "auto, passthrough, cached, direct or staged")
	f.Var((*rulesValue)(&o.Policy.Rules), "rule", "size and mode for the files that match; may be given again")
	f.Var((*blksizeValue)(&o.StatfsBsize), "statfs-bsize", "block size that the filesystem reports (statvfs)")
	f.DurationVar(&o.AttrTimeout, "attr-timeout", defaultTimeout, "how long (`TIME`) the kernel may keep attributes; 0s to see\nchanges made in SOURCE at once")
	f.DurationVar(&o.EntryTimeout, "entry-timeout", defaultTimeout, "how long (`TIME`) the kernel may keep names")
	f.Var((*maxWriteValue)(&o.MaxWrite), "max-write", "the most data in one request")
	f.Var((*readaheadValue)(&o.Readahead), "readahead", "how far the kernel reads ahead; 0 is its own default,\nor 1M for root with --io=staged")
	f.BoolVar(&o.AllowOther, "allow-other", false, "let other users in too")
	readOnly = f.Bool("ro", false, "refuse every change")
	words = f.StringArrayP("options", "o", nil, "a `LIST` of more options, separated by commas, as for mount(8)")
	f.BoolVarP(&s.foreground, "foreground", "f", false, "stay in the foreground, and log to stderr")
	f.StringVar(&s.logFile, "log-file", "", "append the log to this `FILE`; without it a background\nmount logs to syslog")
	f.Var((*levelValue)(&s.logLevel), "log-level", "debug, info, warn or error")
	f.IntVar(&s.readyFD, "ready-fd", 0, "")
	_ = f.MarkHidden("ready-fd") // fails only for a flag that isn't there
	return readOnly, words
}

// operands takes SOURCE and MOUNTPOINT, and makes every path absolute: a
// daemon does not stay where it was started.
func (s *settings) operands(args []string) error {
	if len(args) != 2 {
		return usagef("wants SOURCE and MOUNTPOINT, but got %s; see 'tunefs mount --help'", countOperands(len(args)))
	}
	if s.options.AttrTimeout < 0 || s.options.EntryTimeout < 0 {
		return usagef("a timeout cannot be negative; use one like 1s, 500ms or 0s")
	}
	s.source, s.mountpoint = args[0], args[1]
	for _, p := range []*string{&s.source, &s.mountpoint, &s.logFile} {
		if *p == "" {
			continue
		}
		abs, err := filepath.Abs(*p)
		if err != nil {
			return fmt.Errorf("the current directory: %w", err)
		}
		*p = abs
	}
	return nil
}

func countOperands(n int) string {
	if n == 1 {
		return "1 operand"
	}
	return fmt.Sprint(n, " operands")
}

// describe is the effective settings as arguments for slog.
func (s *settings) describe(m mounted) []any {
	o := &s.options
	words := []any{
		"source", s.source, "mountpoint", s.mountpoint,
		"blksize", o.Policy.Blksize, "io", m.IO(), "rules", len(o.Policy.Rules),
		"statfs-bsize", o.StatfsBsize, "attr-timeout", o.AttrTimeout, "entry-timeout", o.EntryTimeout,
		"max-write", formatBytes(o.MaxWrite), "readahead", formatBytes(o.Readahead),
		"allow-other", o.AllowOther, "options", o.MountOptions,
	}
	if o.Policy.IO == policy.Staged {
		words = append(words, s.staging.describe()...)
	}
	if m.Reason() != "" {
		words = append(words, "no-passthrough", m.Reason())
	}
	return words
}
