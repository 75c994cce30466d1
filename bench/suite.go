package bench

import (
	"context"
	"errors"
	"os"
	"path/filepath"
)

// Setup is what the suites of measurements need. Each of its suites takes minutes at most.
type Setup struct {
	Dir      string       // an empty folder for files and mounts, without symbolic links in its path
	Tunefs   string       // the program that mounts
	Peers    []Filesystem // others to compare with
	Rounds   int          // measurements of each case that count, fewer where they take long
	Progress Progress
}

// Suite is one set of measurements.
type Suite struct {
	Name string
	Run  func(*Setup, context.Context) ([]Row, error)
}

// Suites are all there are, in the order in which they are run.
func Suites() []Suite {
	return []Suite{
		{Name: "data", Run: (*Setup).data},
		{Name: "metadata", Run: (*Setup).metadata},
		{Name: "libc", Run: (*Setup).libc},
		{Name: "staging", Run: (*Setup).staging},
		{Name: "mount", Run: (*Setup).mount},
	}
}

// tunefs is our own filesystem in one mode, its daemon in the foreground. Further flags may follow.
func (s *Setup) tunefs(name, mode string, flags ...string) Filesystem {
	command := append([]string{s.Tunefs, "mount", "--foreground", "--io=" + mode}, flags...)
	return Filesystem{Name: name, Command: append(command, "{source}", "{mountpoint}")}
}

// modes are the ones that this user may mount.
func modes() []string {
	if os.Geteuid() != 0 {
		return []string{"cached", "direct", "staged"}
	}
	return []string{"passthrough", "cached", "direct", "staged"}
}

// withAll attaches all of filesystems, each to a source of its own, calls use, and detaches them and removes what they
// left behind.
func (s *Setup) withAll(ctx context.Context, filesystems []Filesystem, use func([]*Attached) error) (err error) {
	var all []*Attached
	defer func() {
		for _, a := range all {
			err = errors.Join(err, a.remove())
		}
	}()
	for _, fsys := range filesystems {
		a, err := s.attach(ctx, fsys)
		if err != nil {
			return err
		}
		all = append(all, a)
	}
	return use(all)
}

// attach attaches fsys in a new folder.
func (s *Setup) attach(ctx context.Context, fsys Filesystem) (*Attached, error) {
	dir, err := os.MkdirTemp(s.Dir, fsys.Name+"-")
	if err != nil {
		return nil, err
	}
	return Attach(ctx, fsys, dir)
}

// remove detaches a and removes its folders, but nothing through a mount that is still there.
func (a *Attached) remove() error {
	if err := a.Detach(); err != nil {
		return err
	}
	return os.RemoveAll(filepath.Dir(a.source))
}

// figure is one of several that a measurement gives.
type figure[T any] struct {
	work string
	unit Unit
	of   func(T) float64
}

// figureRows sums up samples, at [i] those of cases[i]: a row of each figure for each case.
func figureRows[T any](suite string, cases []Case[T], samples [][]T, figures ...figure[T]) []Row {
	var all []Row
	for _, f := range figures {
		for i, c := range cases {
			var values []float64
			for _, sample := range samples[i] {
				values = append(values, f.of(sample))
			}
			all = append(all, Row{Suite: suite, Work: f.work, Subject: c.Name, Unit: f.unit, Summary: Summarize(values)})
		}
	}
	return all
}

// rows sums up samples of one work, at [i] those of the i-th subject, with their ratios to the first.
func rows(suite, work string, unit Unit, subjects []*Attached, samples [][]float64) []Row {
	var all []Row
	for i, subject := range subjects {
		all = append(all, Row{Suite: suite, Work: work, Subject: subject.Name, Unit: unit, Summary: Summarize(samples[i])})
	}
	compareRows(all, subjects[0].Name)
	return all
}
