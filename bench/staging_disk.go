package bench

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// writing is one way to write a new file with the writer program. New ones, since that is what programs that write much
// mostly do; so with each of them the filesystem has to find blocks.
type writing struct {
	work        string
	how         string // see c/writer.c
	bytes, size int64
	unit        Unit
}

// run writes the file anew on the subject and returns what the writing's unit says.
func (w writing) run(ctx context.Context, writer string, subject *Attached) (float64, error) {
	file := filepath.Join(subject.Dir, stagedFile)
	if err := removeFile(file); err != nil {
		return 0, err
	}
	if err := subject.settle(); err != nil {
		return 0, err
	}
	out, err := Output(ctx, Command{Argv: []string{writer, w.how, file, fmt.Sprint(w.bytes), fmt.Sprint(w.size)}})
	if err != nil {
		return 0, err
	}
	return w.rate(string(out))
}

// rate is what the writing's unit says, from the seconds that the writer printed.
func (w writing) rate(printed string) (float64, error) {
	seconds, err := strconv.ParseFloat(strings.TrimSpace(printed), 64)
	switch {
	case err != nil || seconds <= 0:
		return 0, fmt.Errorf("the writer printed %q, not how many seconds it took", printed)
	case w.unit == MiBPerSecond:
		return float64(w.bytes) / (1 << 20) / seconds, nil
	}
	return float64(w.bytes/w.size) / seconds, nil
}

// writeBehind writes a file of so many MiB to the folder behind the subject, on disk when it returns.
func writeBehind(ctx context.Context, writer string, subject *Attached, mib int) error {
	file := filepath.Join(subject.source, stagedFile)
	if err := removeFile(file); err != nil {
		return err
	}
	_, err := Exec(ctx, Command{Argv: []string{writer, "fsync", file, fmt.Sprint(mib << 20), fmt.Sprint(1 << 20)}})
	return err
}

// removeFile removes what may not be there.
func removeFile(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// stagedDiskRows compares staged writes with the folder itself.
func (s *Setup) stagedDiskRows(ctx context.Context, writer string) ([]Row, error) {
	filesystems := append([]Filesystem{Native, s.tunefs("staged", "staged")}, s.Peers...)
	var all []Row
	err := s.withAll(ctx, filesystems, func(subjects []*Attached) error {
		taken, err := s.takenRows(ctx, writer, subjects)
		if err != nil {
			return err
		}
		durable, err := s.durableRows(ctx, writer, subjects[0], subjects[1])
		all = append(durable, taken...)
		return err
	})
	return all, err
}

// takenMiB is what is written without waiting for the disk. It fits into the default of --stage-memory.
const takenMiB = 128

// takenRows are for programs that only want their data taken: a file that is there and warm, written again.
func (s *Setup) takenRows(ctx context.Context, writer string, subjects []*Attached) ([]Row, error) {
	for _, subject := range subjects {
		if err := writeBehind(ctx, writer, subject, takenMiB); err != nil {
			return nil, err
		}
	}
	job := fioJob{work: "write 128 MiB by 8k", rw: "write", bs: "8k", mib: takenMiB, unit: PerSecond}
	return s.fioRows(ctx, "staged writes", job, subjects)
}

// durableBytes is several times --stage-memory, so that staging cannot put off the disk.
const durableBytes = 1 << 30

// durableRows are for programs that want their data on disk. All are measured in turn: what a disk does differs from
// minute to minute.
func (s *Setup) durableRows(ctx context.Context, writer string, native, staged *Attached) ([]Row, error) {
	small := writing{"write 1 GiB by 8k, fsync", "fsync", durableBytes, 8 << 10, MiBPerSecond}
	large := writing{"write 1 GiB by 1M, fsync", "fsync", durableBytes, 1 << 20, MiBPerSecond}
	direct := writing{"write 1 GiB by 16M, O_DIRECT, fsync", "direct", durableBytes, 16 << 20, MiBPerSecond}
	cases := []Case[float64]{
		small.measured(writer, native), small.measured(writer, staged),
		large.measured(writer, native), large.measured(writer, staged),
	}
	if takes, err := takesDirect(native.source); err != nil {
		return nil, err
	} else if takes {
		cases = append(cases, direct.measured(writer, native))
	}
	samples, err := s.stagingSamples(ctx, "1 GiB to disk", s.stagingPlan(diskBudget), cases)
	if err != nil {
		return nil, err
	}
	both := []*Attached{native, staged}
	all := rows("staged writes", small.work, small.unit, both, samples[0:2])
	all = append(all, rows("staged writes", large.work, large.unit, both, samples[2:4])...)
	if len(samples) > 4 {
		all = append(all, besideDirect(samples[4], samples[3])...)
	}
	return all, nil
}

// takesDirect reports whether files in dir can be opened with O_DIRECT.
func takesDirect(dir string) (bool, error) {
	path := filepath.Join(dir, stagedFile)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_DIRECT, 0o600)
	if errors.Is(err, unix.EINVAL) {
		return false, removeFile(path) // the file may be there although opening it failed
	}
	if err != nil {
		return false, err
	}
	return true, errors.Join(file.Close(), removeFile(path))
}

// measured is a case for one subject.
func (w writing) measured(writer string, subject *Attached) Case[float64] {
	return Case[float64]{Name: w.work + ", " + subject.Name, Measure: func(ctx context.Context) (float64, error) {
		return w.run(ctx, writer, subject)
	}}
}

// besideDirect compares staged writes of 1 MiB with what a program reaches that is written for the disk.
func besideDirect(direct, staged []float64) []Row {
	row := Row{Suite: "staged writes beside O_DIRECT", Work: "1 GiB to disk", Unit: MiBPerSecond}
	base, ours := row, row
	base.Subject, base.Summary = "native, O_DIRECT, by 16M", Summarize(direct)
	ours.Subject, ours.Summary = "staged, by 1M", Summarize(staged)
	both := []Row{base, ours}
	compareRows(both, base.Subject)
	return both
}
