package bench

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// silent shows no progress and counts it.
type silent struct{ steps int }

func (*silent) Begin(string, int) {}
func (s *silent) Step(string)     { s.steps++ }
func (*silent) End()              {}

// recorder makes cases that note in which order they are measured; a sample is its place in that order.
type recorder struct{ order []string }

func (r *recorder) cases(names ...string) []Case[int] {
	var cases []Case[int]
	for _, name := range names {
		cases = append(cases, Case[int]{Name: name, Measure: func(context.Context) (int, error) {
			r.order = append(r.order, name)
			return len(r.order), nil
		}})
	}
	return cases
}

func TestInterleaveOrder(t *testing.T) {
	var r recorder
	samples, err := Interleave(t.Context(), r.cases("a", "b", "c"), Plan{Rounds: 3}, new(silent))
	if err != nil {
		t.Fatal(err)
	}
	if order := strings.Join(r.order, ""); order != "abccbaabc" {
		t.Errorf("measured in the order %s", order)
	}
	if want := []int{1, 6, 7}; !slices.Equal(samples[0], want) {
		t.Errorf("the first case has samples %v, want %v", samples[0], want)
	}
}

func TestInterleaveWarmUp(t *testing.T) {
	var r recorder
	var progress silent
	plan := Plan{Rounds: 2, WarmUp: true}
	samples, err := Interleave(t.Context(), r.cases("a", "b"), plan, &progress)
	if err != nil {
		t.Fatal(err)
	}
	if want := []int{3, 6}; !slices.Equal(samples[0], want) {
		t.Errorf("samples %v, want %v without the warm-up", samples[0], want)
	}
	if progress.steps != plan.Steps(2) {
		t.Errorf("%d steps, and %d foretold", progress.steps, plan.Steps(2))
	}
}

func TestInterleaveBudget(t *testing.T) {
	slow := Case[int]{Name: "slow", Measure: func(context.Context) (int, error) {
		time.Sleep(30 * time.Millisecond)
		return 0, nil
	}}
	samples, err := Interleave(t.Context(), []Case[int]{slow}, Plan{Rounds: 100, Budget: 80 * time.Millisecond}, new(silent))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(samples[0]); n < 1 || n > 2 {
		t.Errorf("%d rounds of 30 ms in a budget of 80 ms", n)
	}
	samples, err = Interleave(t.Context(), []Case[int]{slow}, Plan{Rounds: 100, Budget: time.Nanosecond}, new(silent))
	if err != nil || len(samples[0]) != 1 {
		t.Errorf("no budget: %d rounds, %v; want the one that always is", len(samples[0]), err)
	}
}

func TestInterleaveError(t *testing.T) {
	broken := errors.New("broken")
	cases := []Case[int]{{Name: "bad", Measure: func(context.Context) (int, error) { return 0, broken }}}
	_, err := Interleave(t.Context(), cases, Plan{Rounds: 1}, new(silent))
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "bad") {
		t.Errorf("error %v, want one that names the case", err)
	}
}
