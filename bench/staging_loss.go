package bench

import (
	"context"
	"fmt"
	"path/filepath"
)

// unstaged is the name of a staged mount without staging: the kernel gathers writes, and they go on at once.
const unstaged = "stage-size=0"

// smallWritings are ones that staging can only lose at.
func smallWritings() []writing {
	const line = 100
	return []writing{
		{"O_SYNC writes of 4k", "sync", 1000 * 4 << 10, 4 << 10, PerSecond},
		{"log, a write for each line", "append", 200_000 * line, line, PerSecond},
		{"log, opened for each line", "reopen", 5_000 * line, line, PerSecond},
	}
}

// stagingLossRows compares the mode with itself without staging, where there is nothing to win.
func (s *Setup) stagingLossRows(ctx context.Context, writer string) ([]Row, error) {
	filesystems := []Filesystem{s.tunefs(unstaged, "staged", "--stage-size=0"), s.tunefs("staged", "staged")}
	var all []Row
	err := s.withAll(ctx, filesystems, func(subjects []*Attached) error {
		for _, measure := range []func(context.Context, string, []*Attached) ([]Row, error){
			s.stagedUntarRows, s.smallWriteRows, s.randomWriteRows,
		} {
			more, err := measure(ctx, writer, subjects)
			if err != nil {
				return err
			}
			all = append(all, more...)
		}
		return nil
	})
	return all, err
}

const stagingLoss = "staged or not"

// stagedUntarRows unpacks the metadata suite's archive.
func (s *Setup) stagedUntarRows(ctx context.Context, _ string, subjects []*Attached) ([]Row, error) {
	archive := filepath.Join(s.Dir, "tree.tar")
	if err := createArchive(archive); err != nil {
		return nil, err
	}
	for _, subject := range subjects {
		if err := spreadFolders(subject.source); err != nil {
			return nil, err
		}
	}
	work := fmt.Sprintf("untar %d files", treeFolders*treeFiles)
	unpack := func(ctx context.Context, subject *Attached) (float64, error) {
		if err := subject.settle(); err != nil {
			return 0, err
		}
		run, err := untarAgain(ctx, archive, subject.Dir)
		return run.Wall.Seconds(), err
	}
	plan := Plan{Rounds: s.Rounds, Budget: untarBudget} // it takes so long that warming up would not show
	samples, err := s.stagingSamples(ctx, work, plan, subjectCases(subjects, unpack))
	if err != nil {
		return nil, err
	}
	return rows(stagingLoss, work, Seconds, subjects, samples), nil
}

func (s *Setup) smallWriteRows(ctx context.Context, writer string, subjects []*Attached) ([]Row, error) {
	var all []Row
	for _, w := range smallWritings() {
		write := func(ctx context.Context, subject *Attached) (float64, error) { return w.run(ctx, writer, subject) }
		samples, err := s.stagingSamples(ctx, w.work, s.stagingPlan(stagingBudget), subjectCases(subjects, write))
		if err != nil {
			return nil, err
		}
		all = append(all, rows(stagingLoss, w.work, w.unit, subjects, samples)...)
	}
	return all, nil
}

// randomMiB is the size of the file that is written at random, each of its blocks once.
const randomMiB = 256

func (s *Setup) randomWriteRows(ctx context.Context, writer string, subjects []*Attached) ([]Row, error) {
	for _, subject := range subjects {
		if err := writeBehind(ctx, writer, subject, randomMiB); err != nil {
			return nil, err
		}
	}
	job := fioJob{work: "random write 4k", rw: "randwrite", bs: "4k", mib: randomMiB, unit: PerSecond}
	taken, err := s.fioRows(ctx, stagingLoss, job, subjects)
	if err != nil {
		return nil, err
	}
	job.work, job.fsync = "random write 4k, fsync", true
	durable, err := s.fioRows(ctx, stagingLoss, job, subjects)
	return append(taken, durable...), err
}
