package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"tunefs/bench"
	"tunefs/fs"
	"tunefs/observe"
	"tunefs/policy"
)

const demoHelp = `tunefs demo [flags]

Shows what st_blksize is worth. It makes a file of 290,955 lines (230 MB), mounts its
folder at 8k, 128k and 1M, lets common programs read the file there line by line (and
write to /dev/null), and prints how large their requests were and how long they took.
It leaves nothing behind, and takes up to two minutes.
`

var demoCommand = command{name: "demo", summary: "show what the block size is worth to common programs", run: runDemo}

// What the two minutes are spent on.
const (
	demoDirectBudget = 30 * time.Second
	demoCachedBudget = 20 * time.Second
)

// demoFile is the name of the file that programs read.
const demoFile = "lines.txt"

func runDemo(e env, args []string) error {
	f := newFlags(e, demoHelp)
	runs := f.Int("runs", 7, "most runs of each program that count, fewer where they take long")
	dir := f.String("dir", os.TempDir(), "`folder` in which to put the file and the mounts meanwhile")
	if err := parseFlags(f, args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return usagef("demo takes no arguments, only flags")
	}
	if *runs < 1 {
		return usagef("--runs must be at least 1")
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	return demo(ctx, e, *dir, *runs)
}

// demo does all of it in a new folder below dir, and removes that.
func demo(ctx context.Context, e env, dir string, runs int) (err error) {
	stage, err := newDemoStage(e, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(unlessInterrupted(ctx, err), stage.close()) }()

	readers := bench.Readers{
		File:       demoFile,
		DirectPlan: bench.Plan{Rounds: runs, Budget: demoDirectBudget},
		CachedPlan: bench.Plan{Rounds: runs, Budget: demoCachedBudget, WarmUp: true},
	}
	var missing error
	readers.Programs, missing = bench.FindPrograms(ctx, stage.dir)
	if missing != nil {
		fmt.Fprintf(e.errw, "left out, not found on this machine:\n%v\n", missing)
	}
	if len(readers.Programs) == 0 {
		return errors.New("none of the programs to compare is installed")
	}
	fmt.Fprintf(e.errw, "making a file of %d lines in %s\n", bench.LinesCount, stage.source)
	if err := bench.CreateLines(filepath.Join(stage.source, demoFile)); err != nil {
		return err
	}
	if readers.Direct, err = stage.mountViews(policy.Direct); err != nil {
		return err
	}
	if readers.Cached, err = stage.mountViews(policy.Cached); err != nil {
		return err
	}
	readings, err := readers.Measure(ctx, newProgress(e.errw))
	if err != nil {
		return err
	}
	bench.PrintReadings(e.out, readings)
	fmt.Fprintf(e.out, demoLegend, readings[0].Direct.Runs, readings[0].Cached.Runs)
	fmt.Fprintln(e.out, bench.Explain(readings))
	return nil
}

const demoLegend = `
request: the size in which the program read most of the file, seen by direct mode, where
each read(2) is one request. direct, cached: the time to read all of it, median of %d and
%d interleaved runs; half of the runs are within about the share behind the ±.

`

// demoStage is the folder that the demo happens in, and what is mounted there.
type demoStage struct {
	env    env
	dir    string
	source string // the folder that is mounted
	mounts []mounted
}

func newDemoStage(e env, parent string) (*demoStage, error) {
	dir, err := newScratch(parent)
	if err != nil {
		return nil, err
	}
	s := &demoStage{env: e, dir: dir, source: filepath.Join(dir, "source")}
	return s, os.Mkdir(s.source, 0o755)
}

// mountViews mounts the source once for each block size.
func (s *demoStage) mountViews(io policy.IO) ([]bench.View, error) {
	var views []bench.View
	for _, blksize := range []policy.Blksize{8 << 10, 128 << 10, 1 << 20} {
		view := bench.View{
			Blksize:  blksize,
			Dir:      filepath.Join(s.dir, io.String()+"-"+blksize.String()),
			Requests: new(observe.Requests),
		}
		if err := s.mountView(view, io); err != nil {
			return nil, err
		}
		views = append(views, view)
	}
	return views, nil
}

func (s *demoStage) mountView(view bench.View, io policy.IO) error {
	if err := os.Mkdir(view.Dir, 0o755); err != nil {
		return err
	}
	m, err := s.env.mount(s.source, view.Dir, fs.Options{
		Policy:       policy.Policy{Blksize: view.Blksize, IO: io},
		AttrTimeout:  time.Second,
		EntryTimeout: time.Second,
		Requests:     view.Requests,
		Log:          slog.New(slog.NewTextHandler(s.env.errw, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return err
	}
	s.mounts = append(s.mounts, m)
	return nil
}

// close unmounts everything and removes the folder. A mount that is busy is detached.
func (s *demoStage) close() error {
	var problems []error
	for _, m := range s.mounts {
		err := m.Unmount()
		if err != nil {
			err = m.Detach()
		}
		problems = append(problems, err)
	}
	return errors.Join(append(problems, removeScratch(s.dir))...)
}
