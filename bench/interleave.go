package bench

import (
	"context"
	"fmt"
	"time"
)

// Case is one thing to measure again and again; Measure takes one measurement.
type Case[T any] struct {
	Name    string
	Measure func(context.Context) (T, error)
}

// Plan says how often cases are measured.
type Plan struct {
	Rounds int           // measurements of each case that count, at least 1
	WarmUp bool          // one more round goes before, and its measurements are dropped
	Budget time.Duration // no round that counts begins if it is likely to end later than this; 0 is no limit
}

// Steps is the most measurements that this plan takes of n cases.
func (p Plan) Steps(n int) int {
	if p.WarmUp {
		return n * (p.Rounds + 1)
	}
	return n * p.Rounds
}

// Progress hears how a long piece of work goes on. It is called by one goroutine at a time.
type Progress interface {
	Begin(what string, steps int) // a piece of at most this many steps begins
	Step(what string)             // one of them is about to be taken
	End()                         // the piece is over, perhaps with steps left out
}

// Interleave measures all cases once, then all of them again, and so on, so that whatever else the machine does meets
// all of them alike. Every second round goes backwards, so that no case always follows the same other one. It returns
// the measurements that count, at [i] those of cases[i], and at least one round of them. The first error ends it.
func Interleave[T any](ctx context.Context, cases []Case[T], plan Plan, progress Progress) ([][]T, error) {
	samples := make([][]T, len(cases))
	if plan.WarmUp {
		if err := measureRound(ctx, cases, false, progress, func(int, T) {}); err != nil {
			return nil, err
		}
	}
	start := time.Now()
	for round := range plan.Rounds {
		roundStart := time.Now()
		keep := func(i int, sample T) { samples[i] = append(samples[i], sample) }
		if err := measureRound(ctx, cases, round%2 == 1, progress, keep); err != nil {
			return nil, err
		}
		nextEnd := time.Since(start) + time.Since(roundStart)
		if plan.Budget > 0 && nextEnd > plan.Budget {
			break
		}
	}
	return samples, nil
}

// measureRound measures each case once and gives what it measured to keep.
func measureRound[T any](ctx context.Context, cases []Case[T], backwards bool, progress Progress, keep func(int, T)) error {
	for i := range cases {
		if backwards {
			i = len(cases) - 1 - i
		}
		progress.Step(cases[i].Name)
		sample, err := cases[i].Measure(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", cases[i].Name, err)
		}
		keep(i, sample)
	}
	return nil
}

// seconds turns runs into their wall times in seconds.
func seconds(runs []Run) []float64 {
	walls := make([]float64, len(runs))
	for i, run := range runs {
		walls[i] = run.Wall.Seconds()
	}
	return walls
}
