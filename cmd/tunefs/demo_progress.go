package main

import (
	"fmt"
	"io"
	"os"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"tunefs/bench"
)

// newProgress shows progress on w: a bar if that is a terminal, else a line for each piece of work.
func newProgress(w io.Writer) bench.Progress {
	if file, ok := w.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		return &barProgress{w: file}
	}
	return lineProgress{w: w}
}

// barProgress draws one bar after the other in the same line.
type barProgress struct {
	w    io.Writer
	what string
	bar  *progressbar.ProgressBar
	done int
}

func (p *barProgress) Begin(what string, steps int) {
	p.what, p.done = what, 0
	p.bar = progressbar.NewOptions(steps,
		progressbar.OptionSetWriter(p.w),
		progressbar.OptionSetDescription(what),
		progressbar.OptionSetWidth(20),
		progressbar.OptionShowCount(),
		progressbar.OptionClearOnFinish(),
		progressbar.OptionSetPredictTime(false),
	)
}

func (p *barProgress) Step(what string) {
	p.bar.Describe(p.what + ": " + what)
	_ = p.bar.Set(p.done) // a bar that cannot be drawn is no reason to stop
	p.done++
}

func (p *barProgress) End() { _ = p.bar.Finish() }

// lineProgress writes what begins, for logs and pipes.
type lineProgress struct{ w io.Writer }

func (p lineProgress) Begin(what string, steps int) {
	fmt.Fprintf(p.w, "measuring %s, up to %d runs\n", what, steps)
}

func (p lineProgress) Step(string) {}

func (p lineProgress) End() {}
