package bench

import (
	"context"
	"errors"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"tunefs/staging"
)

const (
	windowBytes     = 32 << 20 // the default of --stage-size
	windowPayload   = 4 << 10
	windowsPerRound = 20 // each takes milliseconds at most
)

// windowCost is what it costs to open a buffer and to put the first bytes into it.
type windowCost struct{ faults, milliseconds float64 }

// windowRows compares a window that nobody zeroes with a buffer of the same size that is filled with zeros first.
func (s *Setup) windowRows(ctx context.Context) ([]Row, error) {
	cases := []Case[windowCost]{
		{Name: "zero-filled buffer", Measure: func(context.Context) (windowCost, error) { return zeroFilledCost() }},
		{Name: "staging window", Measure: func(context.Context) (windowCost, error) { return stagingWindowCost() }},
	}
	plan := Plan{Rounds: s.Rounds * windowsPerRound, WarmUp: true}
	s.Progress.Begin("windows of 32M", plan.Steps(len(cases)))
	defer s.Progress.End()
	samples, err := Interleave(ctx, cases, plan, s.Progress)
	if err != nil {
		return nil, err
	}
	all := figureRows("staged windows", cases, samples,
		figure[windowCost]{"open 32M, write 4k: minor faults", Count, func(c windowCost) float64 { return c.faults }},
		figure[windowCost]{"open 32M, write 4k", Milliseconds, func(c windowCost) float64 { return c.milliseconds }},
	)
	compareRows(all, cases[0].Name)
	return all, nil
}

// stagingWindowCost opens a file's first window. The stager is a new one, so that its memory has not been used before.
func stagingWindowCost() (cost windowCost, err error) {
	stager, err := staging.New(staging.Config{WindowSize: windowBytes})
	if err != nil {
		return windowCost{}, err
	}
	defer func() {
		_, closeErr := stager.Close()
		err = errors.Join(err, closeErr)
	}()
	payload := make([]byte, windowPayload)
	return costOf(func() error {
		file := stager.Open(nowhere{})
		_, err := file.WriteAt(payload, 0, nil)
		return err
	})
}

// zeroFilledCost does the same with a buffer that is made empty before it is used. Its pages are small ones like the
// window's.
func zeroFilledCost() (cost windowCost, err error) {
	var buffer []byte
	defer func() {
		if buffer != nil {
			err = errors.Join(err, unix.Munmap(buffer))
		}
	}()
	payload := make([]byte, windowPayload)
	return costOf(func() error {
		var err error
		buffer, err = unix.Mmap(-1, 0, windowBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return err
		}
		_ = unix.Madvise(buffer, unix.MADV_NOHUGEPAGE) // a kernel without huge pages refuses, and is right
		clear(buffer)
		copy(buffer, payload)
		return nil
	})
}

// costOf measures act on a thread that does nothing else.
func costOf(act func() error) (windowCost, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := minorFaults()
	if err != nil {
		return windowCost{}, err
	}
	begin := time.Now()
	if err := act(); err != nil {
		return windowCost{}, err
	}
	took := time.Since(begin)
	after, err := minorFaults()
	return windowCost{faults: float64(after - before), milliseconds: took.Seconds() * 1e3}, err
}

// minorFaults is how many the calling thread has had.
func minorFaults() (int64, error) {
	var usage unix.Rusage
	err := unix.Getrusage(unix.RUSAGE_THREAD, &usage)
	return usage.Minflt, err
}

// nowhere is a backing file that takes everything and keeps nothing.
type nowhere struct{}

var _ staging.Backing = nowhere{}

func (nowhere) WriteDirect(p []byte, _ int64) (int, error)   { return len(p), nil }
func (nowhere) WriteBuffered(p []byte, _ int64) (int, error) { return len(p), nil }
func (nowhere) ReadAt([]byte, int64) (int, error)            { return 0, nil }
func (nowhere) Align() staging.Alignment                     { return staging.Alignment{} }
func (nowhere) Sync(bool) error                              { return nil }
