package bench

import (
	"context"
	"fmt"
	"path/filepath"
)

// reportLines is how many lines the fprintf writer writes.
const reportLines = 2_000_000

// libcBuffers are the sizes of stdio's buffer that are compared: glibc's own on most filesystems, and the largest that
// the patch to glibc takes.
var libcBuffers = []struct {
	name  string
	bytes int
}{
	{"8k buffer", 8 << 10},
	{"128k buffer", 128 << 10},
}

// libc measures what the size of stdio's buffer is worth: to a loop of getdelim that copies lines to /dev/null, and to a
// writer that uses fprintf.
func (s *Setup) libc(ctx context.Context) ([]Row, error) {
	loop, err := Compile(ctx, "loop", s.Dir)
	if err != nil {
		return nil, err
	}
	report, err := Compile(ctx, "report", s.Dir)
	if err != nil {
		return nil, err
	}
	var filesystems []Filesystem
	for _, mode := range modes() {
		filesystems = append(filesystems, s.tunefs(mode, mode))
	}
	var all []Row
	err = s.withAll(ctx, filesystems, func(subjects []*Attached) error {
		for _, subject := range subjects {
			more, err := s.libcRows(ctx, subject, loop, report)
			if err != nil {
				return err
			}
			all = append(all, more...)
		}
		return nil
	})
	return all, err
}

// libcRows compares the buffers on one filesystem.
func (s *Setup) libcRows(ctx context.Context, subject *Attached, loop, report string) ([]Row, error) {
	const lines = "lines"
	if err := CreateLines(filepath.Join(subject.source, lines)); err != nil {
		return nil, err
	}
	reading, err := s.bufferRows(ctx, "getdelim loop, "+subject.Name, func(buffer int) Command {
		return Command{Argv: []string{loop, filepath.Join(subject.Dir, lines), nullDevice, fmt.Sprint(buffer)}}
	})
	if err != nil {
		return nil, err
	}
	writing, err := s.bufferRows(ctx, "fprintf writer, "+subject.Name, func(buffer int) Command {
		return Command{Argv: []string{report, filepath.Join(subject.Dir, "report"), fmt.Sprint(reportLines), fmt.Sprint(buffer)}}
	})
	return append(reading, writing...), err
}

// bufferRows runs a command with each buffer.
func (s *Setup) bufferRows(ctx context.Context, work string, command func(buffer int) Command) ([]Row, error) {
	var cases []Case[Run]
	for _, buffer := range libcBuffers {
		cases = append(cases, runCase(buffer.name, command(buffer.bytes)))
	}
	plan := Plan{Rounds: s.Rounds, WarmUp: true}
	s.Progress.Begin(work, plan.Steps(len(cases)))
	defer s.Progress.End()
	runs, err := Interleave(ctx, cases, plan, s.Progress)
	if err != nil {
		return nil, err
	}
	var all []Row
	for i, buffer := range libcBuffers {
		all = append(all, Row{
			Suite: "libc", Work: work, Subject: buffer.name, Unit: Seconds, Summary: Summarize(seconds(runs[i])),
		})
	}
	compareRows(all, libcBuffers[0].name)
	return all, nil
}
