package main

import (
	"fmt"
	"log/slog"
	"math/bits"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"tunefs/fs"
	"tunefs/gds"
	"tunefs/staging"
)

// stagingFlags are the flags that only --io=staged has a use for.
type stagingFlags struct {
	window  windowValue
	memory  memoryValue
	backend gds.Choice
	flushOn flushOn
	after   time.Duration // 0: no age makes data leave
	workers int
	direct  bool // reads
}

// readAhead is how far direct reads go ahead of a program, in bytes.
const readAhead = 32 << 20

// flags are those that fill in s, at their defaults.
func (s *stagingFlags) flags() *pflag.FlagSet {
	*s = stagingFlags{window: staging.DefaultWindowSize, memory: staging.DefaultMemory}
	own := pflag.NewFlagSet("staged", pflag.ContinueOnError)
	own.SortFlags = false
	own.Var(&s.window, "stage-size", "staged: range of a file that is gathered before it is written;\n0 leaves gathering to the kernel alone")
	own.Var(&s.memory, "stage-memory", "staged: the most memory that data waits in")
	own.Var((*backendValue)(&s.backend), "backend", "staged: auto, direct (O_DIRECT) or buffered")
	own.Var(&s.flushOn, "flush-on", "staged: close writes out before close(2) returns, and has it\nreport errors; idle does neither")
	own.DurationVar(&s.after, "flush-after", staging.DefaultAge, "staged: how long (`TIME`) data waits at most; 0s: till its window\nis full, or its file closed")
	own.IntVar(&s.workers, "flush-workers", staging.DefaultWorkers, "staged: how many windows are written at once (`N`)")
	own.BoolVar(&s.direct, "direct-reads", false, "staged: read large files ahead with O_DIRECT, so that their data\nis not in the page cache twice")
	return own
}

// check refuses what cannot be.
func (s *stagingFlags) check() error {
	switch {
	case s.workers < 1:
		return usagef("--flush-workers=%d cannot write anything; use 1 or more", s.workers)
	case s.direct && s.window == 0:
		return usagef("--direct-reads needs windows; leave --stage-size=0 out")
	case s.after < 0:
		return usagef("--flush-after cannot be negative; use one like 5s, or 0s for no limit")
	case int64(s.memory) < 2*int64(s.window):
		return usagef("--stage-memory=%s does not hold two windows of --stage-size=%s; give it %s or more, or smaller windows",
			&s.memory, &s.window, formatBytes(2*int64(s.window)))
	}
	return nil
}

// checkUnused refuses flags, which are those of a stagingFlags, that ask for
// something of a mode that the mount does not have.
func checkUnused(flags *pflag.FlagSet) (err error) {
	flags.VisitAll(func(flag *pflag.Flag) {
		if flag.Value.String() != flag.DefValue {
			err = usagef("--%s has no meaning without --io=staged", flag.Name)
		}
	})
	return err
}

// probe finds out whether files in source can be written as s asks for.
func (s *stagingFlags) probe(source string) error {
	if s.backend != gds.Direct {
		return nil
	}
	fd, err := unix.Open(source, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("SOURCE %s: %w", source, err)
	}
	defer unix.Close(fd)
	if err := gds.Probe(fd); err != nil {
		return fmt.Errorf("--backend=direct cannot work in %s: %w; use --backend=auto, which does without where it must", source, err)
	}
	return nil
}

// start makes what a mount of source stages with.
func (s *stagingFlags) start(source string, log *slog.Logger) (fs.Staging, error) {
	if err := claim(source, log); err != nil {
		return fs.Staging{}, err
	}
	engine := gds.New(s.backend, log)
	f := fs.Staging{
		FlushOnClose: s.flushOn == onClose,
		DirectReads:  s.direct,
		Open: func(fd int) (fs.Backing, error) {
			b, err := engine.Open(fd)
			if err != nil {
				return nil, err // not b: a nil *gds.File is not a nil Backing
			}
			return b, nil
		},
	}
	if s.window == 0 {
		return f, nil
	}
	age := s.after
	if age == 0 {
		age = -1
	}
	c := staging.Config{WindowSize: int64(s.window), Memory: int64(s.memory), Workers: s.workers, Age: age}
	if s.direct {
		c.ReadAhead = readAhead
	}
	var err error
	f.Stager, err = staging.New(c)
	return f, err
}

// describe is s as arguments for slog.
func (s *stagingFlags) describe() []any {
	return []any{
		"stage-size", s.window.String(), "stage-memory", s.memory.String(), "backend", s.backend,
		"flush-on", s.flushOn.String(), "flush-after", s.after, "flush-workers", s.workers, "direct-reads", s.direct,
	}
}

// windowValue is a --stage-size in bytes: what staging takes, or 0 for none.
type windowValue int64

func (v *windowValue) String() string { return formatBytes(int64(*v)) }
func (v *windowValue) Type() string   { return "SIZE" }

func (v *windowValue) Set(s string) error {
	n, ok := parseSize(s)
	if !ok || n != 0 && (n < staging.MinWindow || n > staging.MaxWindow || bits.OnesCount64(uint64(n)) != 1) {
		return fmt.Errorf("%q is not a power of two from %s to %s; use one like 4M or 32M, or 0 for no staging",
			s, formatBytes(int64(staging.MinWindow)), formatBytes(int64(staging.MaxWindow)))
	}
	*v = windowValue(n)
	return nil
}

// memoryValue is a --stage-memory in bytes.
type memoryValue int64

func (v *memoryValue) String() string { return formatBytes(int64(*v)) }
func (v *memoryValue) Type() string   { return "SIZE" }

func (v *memoryValue) Set(s string) error {
	n, ok := parseSize(s)
	if !ok || n == 0 {
		return fmt.Errorf("%q is not a size; use one like 256M or 4G", s)
	}
	*v = memoryValue(n)
	return nil
}

// backendValue is a --backend.
type backendValue gds.Choice

func (v *backendValue) String() string { return gds.Choice(*v).String() }
func (v *backendValue) Type() string   { return "WAY" }

func (v *backendValue) Set(s string) error {
	c, err := gds.ParseChoice(s)
	if err == nil {
		*v = backendValue(c)
	}
	return err
}

// flushOn is a --flush-on.
type flushOn uint8

const (
	onClose flushOn = iota
	onIdle
)

var flushOnWords = [...]string{onClose: "close", onIdle: "idle"}

func (v *flushOn) String() string { return flushOnWords[*v] }
func (v *flushOn) Type() string   { return "EVENT" }

func (v *flushOn) Set(s string) error {
	for event, word := range flushOnWords {
		if strings.EqualFold(s, word) {
			*v = flushOn(event)
			return nil
		}
	}
	return fmt.Errorf("unknown event %q; use close or idle", s)
}
