package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"
)

// The time for one row of the staging suite; of those that tell of the disk, for all together.
const (
	stagingBudget = 15 * time.Second
	diskBudget    = 30 * time.Second
	untarBudget   = 45 * time.Second
)

// stagedFile is the name of the file that the suite works on, one on each subject.
const stagedFile = "file"

// staging measures what the staged mode promises: what a window costs, how soon data is on disk, that staging loses
// nothing where it cannot win, and how fast files are read. It takes up to 3 GiB of disk.
func (s *Setup) staging(ctx context.Context) ([]Row, error) {
	all, err := s.windowRows(ctx)
	if err != nil {
		return nil, err
	}
	writer, err := Compile(ctx, "writer", s.Dir)
	if err != nil {
		return nil, err
	}
	for _, measure := range []func(context.Context, string) ([]Row, error){
		s.stagedDiskRows, s.stagingLossRows, s.coldReadRows,
	} {
		more, err := measure(ctx, writer)
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	return all, nil
}

func (s *Setup) stagingSamples(ctx context.Context, what string, plan Plan, cases []Case[float64]) ([][]float64, error) {
	s.Progress.Begin(what, plan.Steps(len(cases)))
	defer s.Progress.End()
	return Interleave(ctx, cases, plan, s.Progress)
}

// stagingPlan warms up: on a new mount the kernel does not know yet how fast it may be written to.
func (s *Setup) stagingPlan(budget time.Duration) Plan {
	return Plan{Rounds: s.Rounds, WarmUp: true, Budget: budget}
}

// subjectCases is a case for each subject.
func subjectCases(subjects []*Attached, measure func(context.Context, *Attached) (float64, error)) []Case[float64] {
	var cases []Case[float64]
	for _, subject := range subjects {
		cases = append(cases, Case[float64]{Name: subject.Name, Measure: func(ctx context.Context) (float64, error) {
			return measure(ctx, subject)
		}})
	}
	return cases
}

// settle returns when what the subject has taken is on disk. Written back later, it would slow down another one.
func (a *Attached) settle() error {
	return errors.Join(syncFilesystem(a.Dir), syncFilesystem(a.source))
}

// fioJob is a way to go once through a file that is there in full.
type fioJob struct {
	work, rw, bs string
	mib          int // the file's size
	unit         Unit
	fsync        bool // until the data is on disk
	cold         bool // nothing of the file is in memory
}

// fioRows runs a job on each subject.
func (s *Setup) fioRows(ctx context.Context, suite string, job fioJob, subjects []*Attached) ([]Row, error) {
	samples, err := s.stagingSamples(ctx, job.work, s.stagingPlan(stagingBudget), subjectCases(subjects, job.run))
	if err != nil {
		return nil, err
	}
	return rows(suite, job.work, job.unit, subjects, samples), nil
}

// run returns what the job's unit says. It makes one system call at a time, through the page cache.
func (j fioJob) run(ctx context.Context, subject *Attached) (float64, error) {
	if err := subject.settle(); err != nil {
		return 0, err
	}
	if j.cold {
		if err := subject.forget(); err != nil {
			return 0, err
		}
	}
	endFsync := 0
	if j.fsync {
		endFsync = 1
	}
	out, err := Output(ctx, Command{Argv: []string{
		"fio", "--name=staging", "--filename=" + filepath.Join(subject.Dir, stagedFile), fmt.Sprintf("--size=%dm", j.mib),
		"--ioengine=psync", "--thread", "--rw=" + j.rw, "--bs=" + j.bs, "--output-format=json",
		"--direct=0", "--fallocate=none", "--overwrite=1", "--invalidate=0", fmt.Sprintf("--end_fsync=%d", endFsync),
	}})
	if err != nil {
		return 0, err
	}
	return fioResult(out, j.unit)
}
