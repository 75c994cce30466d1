package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	mountsPerRound = 3                      // mounting takes milliseconds: many more runs cost nothing
	settleTime     = 500 * time.Millisecond // after it a new daemon counts as idle
	fewOperations  = 100_000                // after these, caches and pools are full
	manyOperations = 1_000_000
)

// mount measures the daemon itself: how soon it answers, what memory it takes, and whether anything in it grows.
func (s *Setup) mount(ctx context.Context) ([]Row, error) {
	ready, err := s.readyRows(ctx)
	if err != nil {
		return nil, err
	}
	growth, err := s.growthRows(ctx)
	return append(ready, growth...), err
}

// mountSample is what mounting once shows.
type mountSample struct{ readyMilliseconds, idleMiB float64 }

// readyRows mounts and unmounts over and over.
func (s *Setup) readyRows(ctx context.Context) ([]Row, error) {
	filesystems := append([]Filesystem{s.tunefs("tunefs", "auto")}, s.Peers...)
	var cases []Case[mountSample]
	for _, fsys := range filesystems {
		cases = append(cases, Case[mountSample]{Name: fsys.Name, Measure: func(ctx context.Context) (mountSample, error) {
			return s.mountOnce(ctx, fsys)
		}})
	}
	plan := Plan{Rounds: s.Rounds * mountsPerRound, WarmUp: true}
	s.Progress.Begin("mounting", plan.Steps(len(cases)))
	defer s.Progress.End()
	samples, err := Interleave(ctx, cases, plan, s.Progress)
	if err != nil {
		return nil, err
	}
	return figureRows("mount", cases, samples,
		figure[mountSample]{"time until it answers", Milliseconds, func(m mountSample) float64 { return m.readyMilliseconds }},
		figure[mountSample]{"idle memory (RSS)", MiB, func(m mountSample) float64 { return m.idleMiB }},
	), nil
}

func (s *Setup) mountOnce(ctx context.Context, fsys Filesystem) (sample mountSample, err error) {
	a, err := s.attach(ctx, fsys)
	if err != nil {
		return mountSample{}, err
	}
	defer func() { err = errors.Join(err, a.remove()) }()
	time.Sleep(settleTime)
	usage, err := a.usage()
	return mountSample{readyMilliseconds: a.Ready.Seconds() * 1e3, idleMiB: usage.memoryMiB}, err
}

// usage is what a daemon holds.
type usage struct {
	memoryMiB                        float64 // resident
	descriptors, threads, goroutines int     // goroutines only once it has ended
}

// usage reads what the daemon holds now. It is zero for one that went into the background, where it isn't known.
func (a *Attached) usage() (usage, error) {
	if a.Pid() == 0 {
		return usage{}, nil
	}
	process := fmt.Sprintf("/proc/%d", a.Pid())
	status, err := os.ReadFile(filepath.Join(process, "status"))
	if err != nil {
		return usage{}, err
	}
	descriptors, err := os.ReadDir(filepath.Join(process, "fd"))
	if err != nil {
		return usage{}, err
	}
	u := parseStatus(status)
	u.descriptors = len(descriptors)
	return u, nil
}

// parseStatus reads memory and threads from the status file of a process.
func parseStatus(status []byte) usage {
	var u usage
	lines := bufio.NewScanner(bytes.NewReader(status))
	for lines.Scan() {
		var kib float64
		if n, _ := fmt.Sscanf(lines.Text(), "VmRSS: %f kB", &kib); n == 1 {
			u.memoryMiB = kib / 1024
		}
		fmt.Sscanf(lines.Text(), "Threads: %d", &u.threads)
	}
	return u
}

// growthRows compares what a daemon holds after few and after many operations.
func (s *Setup) growthRows(ctx context.Context) ([]Row, error) {
	churn, err := Compile(ctx, "churn", s.Dir)
	if err != nil {
		return nil, err
	}
	s.Progress.Begin("growth", 2)
	defer s.Progress.End()
	var all []Row
	for _, operations := range []int{fewOperations, manyOperations} {
		after := fmt.Sprintf("after %d operations", operations)
		s.Progress.Step(after)
		u, err := s.usageAfter(ctx, churn, operations)
		if err != nil {
			return nil, err
		}
		for _, value := range []struct {
			work string
			unit Unit
			n    float64
		}{
			{"memory (RSS)", MiB, u.memoryMiB},
			{"descriptors", Count, float64(u.descriptors)},
			{"threads", Count, float64(u.threads)},
			{"goroutines", Count, float64(u.goroutines)},
		} {
			all = append(all, Row{
				Suite: "growth", Work: value.work, Subject: after, Unit: value.unit,
				Summary: Summarize([]float64{value.n}),
			})
		}
	}
	return all, nil
}

// usageAfter mounts, has churn do its operations, and says what the daemon holds then.
func (s *Setup) usageAfter(ctx context.Context, churn string, operations int) (u usage, err error) {
	a, err := s.attach(ctx, s.tunefs("tunefs", "auto"))
	if err != nil {
		return usage{}, err
	}
	defer func() { err = errors.Join(err, a.remove()) }()
	if _, err := Exec(ctx, Command{Argv: []string{churn, a.Dir, fmt.Sprint(operations)}}); err != nil {
		return usage{}, err
	}
	time.Sleep(settleTime)
	if u, err = a.usage(); err != nil {
		return usage{}, err
	}
	u.goroutines, err = a.countGoroutines()
	return u, err
}

// countGoroutines ends the daemon in the way that makes the Go runtime print what every goroutine does, and counts them.
func (a *Attached) countGoroutines() (int, error) {
	if err := a.command.Process.Signal(unix.SIGQUIT); err != nil {
		return 0, err
	}
	select {
	case <-a.ended:
	case <-time.After(unmountLimit):
		return 0, errors.New("the daemon does not end at SIGQUIT")
	}
	said, err := os.ReadFile(a.complaint)
	if err != nil {
		return 0, err
	}
	count := strings.Count("\n"+string(said), "\ngoroutine ")
	if count == 0 {
		return 0, errors.New("the daemon printed no goroutines at SIGQUIT")
	}
	return count, nil
}
