package bench

import (
	"context"
	"fmt"
	"path/filepath"

	"tunefs/observe"
	"tunefs/policy"
)

// View is a folder whose files report this block size.
type View struct {
	Blksize  policy.Blksize
	Dir      string
	Requests *observe.Requests // counts what is read there; only where one read(2) is one request
}

// Readers compares how programs read one file through several views of it.
type Readers struct {
	Programs []Program
	File     string // its path below each view's Dir
	Direct   []View // each read(2) is a request, and counted
	Cached   []View // of the same block sizes in the same order
	// Each read in direct mode costs a round trip, so that is where time goes: its plan should have a budget.
	DirectPlan, CachedPlan Plan
}

// Reading is what one program made of one block size.
type Reading struct {
	Program string
	Blksize policy.Blksize
	Request int     // bytes: the size in which the program read most of the file; 0 if it read nothing
	Direct  Summary // seconds
	Cached  Summary // seconds
}

// Measure runs every program over every view. The readings are in the order of programs, and of views within each.
func (r *Readers) Measure(ctx context.Context, progress Progress) ([]Reading, error) {
	readings, err := r.countRequests(ctx, progress)
	if err != nil {
		return nil, err
	}
	direct, err := r.timeRuns(ctx, "direct mode", r.Direct, r.DirectPlan, progress)
	if err != nil {
		return nil, err
	}
	cached, err := r.timeRuns(ctx, "cached mode", r.Cached, r.CachedPlan, progress)
	if err != nil {
		return nil, err
	}
	for i := range readings {
		readings[i].Direct, readings[i].Cached = Summarize(direct[i]), Summarize(cached[i])
	}
	return readings, nil
}

// countRequests runs every program once over every direct view. It leaves the backing file in the page cache, so direct
// mode needs no other warm-up.
func (r *Readers) countRequests(ctx context.Context, progress Progress) ([]Reading, error) {
	progress.Begin("request sizes", len(r.Programs)*len(r.Direct))
	defer progress.End()
	var readings []Reading
	for _, program := range r.Programs {
		for _, view := range r.Direct {
			progress.Step(caseName(program, view))
			view.Requests.Reset()
			if _, err := Exec(ctx, program.Command(filepath.Join(view.Dir, r.File))); err != nil {
				return nil, err
			}
			readings = append(readings, Reading{
				Program: program.Name,
				Blksize: view.Blksize,
				Request: dominantSize(view.Requests.Reads()),
			})
		}
	}
	return readings, nil
}

// timeRuns returns the wall times in seconds, at [i] those of the i-th reading.
func (r *Readers) timeRuns(ctx context.Context, what string, views []View, plan Plan, progress Progress) ([][]float64, error) {
	var cases []Case[Run]
	for _, program := range r.Programs {
		for _, view := range views {
			cases = append(cases, runCase(caseName(program, view), program.Command(filepath.Join(view.Dir, r.File))))
		}
	}
	progress.Begin(what, plan.Steps(len(cases)))
	defer progress.End()
	runs, err := Interleave(ctx, cases, plan, progress)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	walls := make([][]float64, len(runs))
	for i := range runs {
		walls[i] = seconds(runs[i])
	}
	return walls, nil
}

// runCase is a case that runs a command.
func runCase(name string, command Command) Case[Run] {
	return Case[Run]{Name: name, Measure: func(ctx context.Context) (Run, error) {
		return Exec(ctx, command)
	}}
}

func caseName(program Program, view View) string {
	return program.Name + " at " + view.Blksize.String()
}

// dominantSize is the request size that carried the most bytes, 0 if there was no request.
func dominantSize(sizes []observe.Size) int {
	var dominant observe.Size
	for _, size := range sizes {
		if uint64(size.Bytes)*size.Count > uint64(dominant.Bytes)*dominant.Count {
			dominant = size
		}
	}
	return dominant.Bytes
}
