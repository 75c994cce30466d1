package staging

import "sync/atomic"

// Stats is a look at what was done since New, and at what is held now. The
// figures are read one after the other, so they may not quite add up.
type Stats struct {
	Staged   int64 // bytes copied into windows
	Bypassed int64 // bytes of large aligned requests, not copied
	Through  int64 // bytes written to the backing file at once, by pattern or need
	Direct   int64 // bytes given to Backing.WriteDirect
	Buffered int64 // bytes given to Backing.WriteBuffered

	Ahead       int64 // bytes read ahead
	AheadServed int64 // bytes of reads that were copied from those
	AheadWasted int64 // bytes of them that were dropped and nobody had asked for

	Windows  int64 // opened
	Flushes  int64 // of windows
	Failures int64 // flushes that failed
	Retries  int64 // of failed flushes
	Waits    int64 // writes that found the budget spent
	Left     int64 // times that a file left staging
	Returned int64 // times that one took it up again
	Lost     int64 // bytes that were lost at the end of their file

	Touched int64 // bytes of pages that are resident or promised: at most Config.Memory
	Pooled  int64 // bytes of them that are in the pool
	Failing int64 // windows whose flush failed
	Files   int   // open
}

// counters are those of Stats that only grow.
type counters struct {
	staged, bypassed, through, direct, buffered atomic.Int64
	windows, flushes, failures, retries, waits  atomic.Int64
	left, returned, lost                        atomic.Int64
	ahead, aheadServed, aheadWasted             atomic.Int64
}

// Stats returns the figures.
func (s *Stager) Stats() Stats {
	c := &s.count
	st := Stats{
		Staged: c.staged.Load(), Bypassed: c.bypassed.Load(), Through: c.through.Load(),
		Direct: c.direct.Load(), Buffered: c.buffered.Load(),
		Ahead: c.ahead.Load(), AheadServed: c.aheadServed.Load(), AheadWasted: c.aheadWasted.Load(),
		Windows: c.windows.Load(), Flushes: c.flushes.Load(), Failures: c.failures.Load(),
		Retries: c.retries.Load(), Waits: c.waits.Load(),
		Left: c.left.Load(), Returned: c.returned.Load(), Lost: c.lost.Load(),
		Touched: s.mem.used.Load() * PageSize,
		Failing: s.failed.Load(),
	}
	s.mem.mu.Lock()
	st.Pooled = s.mem.pooled * PageSize
	s.mem.mu.Unlock()
	s.mu.Lock()
	st.Files = len(s.files)
	s.mu.Unlock()
	return st
}
