package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"

	"golang.org/x/sys/unix"

	"tunefs/bench"
)

const benchHelp = `Usage: tunefs bench [flags] [data | metadata | libc | staging | mount | all]...

Measures tunefs on this machine beside the folder itself and beside other filesystems:
medians of interleaved runs (half of the runs are within about the share behind the ±),
and ratios to the folder itself, or the first column, where more than 1 is better.

  data      reads and writes with fio, 256 MiB, warm
  metadata  create, stat, open, rename, unlink; find; tar
  libc      what stdio's buffer is worth: 128k against 8k
  staging   what staged mode promises: windows, writes to disk, small writes, cold reads
  mount     time to mount, memory, and whether anything grows
`

var benchCommand = command{name: "bench", summary: "measure speed and memory on this machine", run: runBench}

// benchSettings are the words and flags of bench.
type benchSettings struct {
	suites []bench.Suite
	peers  []bench.Filesystem
	runs   int
	dir    string
	json   string // the file for it; empty: none
}

func runBench(e env, args []string) error {
	s, err := parseBench(e, args)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	report, err := measure(ctx, e, s)
	if err != nil {
		return err
	}
	report.Print(e.out)
	if s.json == "" {
		return nil
	}
	return writeReport(report, s.json)
}

func parseBench(e env, args []string) (benchSettings, error) {
	f := newFlags(e, benchHelp)
	runs := f.Int("runs", 5, "most runs of each kind that count, fewer where they take long")
	dir := f.String("dir", os.TempDir(), "`folder` in which to put files and mounts meanwhile")
	json := f.String("json", "", "also write the figures as JSON to this `file`")
	peers := f.StringArray("peer", nil, "also measure `NAME=COMMAND`, which mounts {source} at {mountpoint}")
	if err := parseFlags(f, args); err != nil {
		return benchSettings{}, err
	}
	if *runs < 1 {
		return benchSettings{}, usagef("--runs must be at least 1")
	}
	s := benchSettings{runs: *runs, dir: *dir, json: *json}
	var err error
	if s.suites, err = chooseSuites(f.Args()); err != nil {
		return benchSettings{}, err
	}
	for _, word := range *peers {
		peer, err := bench.ParseFilesystem(word)
		if err != nil {
			return benchSettings{}, usagef("--peer: %w", err)
		}
		s.peers = append(s.peers, peer)
	}
	return s, nil
}

// chooseSuites finds the suites of these names; without any, or with all, it is every suite.
func chooseSuites(names []string) ([]bench.Suite, error) {
	suites := bench.Suites()
	if len(names) == 0 || slices.Contains(names, "all") {
		return suites, nil
	}
	var chosen []bench.Suite
	for _, name := range names {
		i := slices.IndexFunc(suites, func(s bench.Suite) bool { return s.Name == name })
		if i < 0 {
			return nil, usagef("there is nothing called %q to measure; 'tunefs bench --help' lists what there is", name)
		}
		chosen = append(chosen, suites[i])
	}
	return chosen, nil
}

// measure runs the suites, each in a folder of its own.
func measure(ctx context.Context, e env, s benchSettings) (report *bench.Report, err error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir, err := newScratch(s.dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(unlessInterrupted(ctx, err), removeScratch(dir)) }()

	info, _ := debug.ReadBuildInfo() // nil when built without modules
	version, _ := describeBuild(info)
	report = &bench.Report{Version: "tunefs " + version, Machine: bench.ThisMachine(dir)}
	for _, suite := range s.suites {
		setup := bench.Setup{
			Dir:      filepath.Join(dir, suite.Name),
			Tunefs:   program,
			Peers:    s.peers,
			Rounds:   s.runs,
			Progress: newProgress(e.errw),
		}
		if err := os.Mkdir(setup.Dir, 0o755); err != nil {
			return nil, err
		}
		rows, err := suite.Run(&setup, ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", suite.Name, err)
		}
		report.Rows = append(report.Rows, rows...)
	}
	return report, nil
}

func writeReport(report *bench.Report, path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(report.WriteJSON(file), file.Close())
}
