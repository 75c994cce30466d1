package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// dataSize is the size of the file that fio works on, in MiB. It fits in the page cache several times.
const dataSize = 256

// dataBudget is the time for one row of the data suite.
const dataBudget = 40 * time.Second

// fioWork is one way to go through the file.
type fioWork struct {
	name, rw, bs string
	unit         Unit
}

func fioWorks() []fioWork {
	return []fioWork{
		{"sequential write 8k", "write", "8k", PerSecond},
		{"random write 4k", "randwrite", "4k", PerSecond},
		{"sequential write 128k", "write", "128k", MiBPerSecond},
		{"sequential read 128k", "read", "128k", MiBPerSecond},
		{"sequential read 8k", "read", "8k", PerSecond},
	}
}

// data measures reads and writes with fio: one process, one system call at a time, through the page cache, on a file
// that is there in full and warm. Every filesystem has a file of its own.
func (s *Setup) data(ctx context.Context) ([]Row, error) {
	filesystems := []Filesystem{Native}
	for _, mode := range modes() {
		filesystems = append(filesystems, s.tunefs(mode, mode))
	}
	var all []Row
	err := s.withAll(ctx, append(filesystems, s.Peers...), func(subjects []*Attached) error {
		for _, subject := range subjects {
			if err := createData(filepath.Join(subject.source, "data")); err != nil {
				return err
			}
		}
		for _, work := range fioWorks() {
			samples, err := s.fioSamples(ctx, work, subjects)
			if err != nil {
				return err
			}
			all = append(all, rows("data", work.name, work.unit, subjects, samples)...)
		}
		return nil
	})
	return all, err
}

func (s *Setup) fioSamples(ctx context.Context, work fioWork, subjects []*Attached) ([][]float64, error) {
	var cases []Case[float64]
	for _, subject := range subjects {
		cases = append(cases, Case[float64]{Name: subject.Name, Measure: func(ctx context.Context) (float64, error) {
			// What the last run left to be written back would slow down this one.
			if err := syncFilesystem(subject.source); err != nil {
				return 0, err
			}
			return runFio(ctx, work, filepath.Join(subject.Dir, "data"))
		}})
	}
	plan := Plan{Rounds: s.Rounds, WarmUp: true, Budget: dataBudget}
	s.Progress.Begin(work.name, plan.Steps(len(cases)))
	defer s.Progress.End()
	return Interleave(ctx, cases, plan, s.Progress)
}

// createData writes a file of dataSize, on disk when it returns.
func createData(path string) error {
	block := make([]byte, 1<<20)
	random := rand.NewChaCha8([32]byte{})
	_, _ = random.Read(block) // never fails
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	for range dataSize {
		if _, err := file.Write(block); err != nil {
			return errors.Join(err, file.Close())
		}
	}
	return errors.Join(file.Sync(), file.Close())
}

func syncFilesystem(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return unix.Syncfs(int(dir.Fd()))
}

// runFio goes through the file once and returns what the work's unit says.
func runFio(ctx context.Context, work fioWork, file string) (float64, error) {
	out, err := Output(ctx, Command{Argv: []string{
		"fio", "--name=data", "--filename=" + file, fmt.Sprintf("--size=%dm", dataSize),
		"--ioengine=psync", "--thread", "--rw=" + work.rw, "--bs=" + work.bs, "--output-format=json",
		// Into the page cache, without a flush, of a file that stays as it is laid out; and fio must not empty the cache.
		"--direct=0", "--fsync=0", "--end_fsync=0", "--fallocate=none", "--overwrite=1", "--invalidate=0",
	}})
	if err != nil {
		return 0, err
	}
	return fioResult(out, work.unit)
}

// fioResult reads fio's JSON of a job that only reads or only writes.
func fioResult(out []byte, unit Unit) (float64, error) {
	type direction struct {
		IOPS  float64 `json:"iops"`
		Bytes float64 `json:"bw_bytes"` // in a second
	}
	var result struct {
		Jobs []struct{ Read, Write direction }
	}
	// fio puts its warnings before the JSON.
	if err := json.Unmarshal(out[max(0, bytes.IndexByte(out, '{')):], &result); err != nil {
		return 0, fmt.Errorf("fio's output: %w", err)
	}
	if len(result.Jobs) != 1 {
		return 0, fmt.Errorf("fio reported %d jobs instead of one", len(result.Jobs))
	}
	job := result.Jobs[0]
	if unit == MiBPerSecond {
		return (job.Read.Bytes + job.Write.Bytes) / (1 << 20), nil
	}
	return job.Read.IOPS + job.Write.IOPS, nil
}
