package staging

// pattern watches how a file is written and says whether staging it gains.
//
// A window gains by turning many small writes into few large ones. It does not
// where writes stand alone, far from each other (random writers): their bytes
// are copied only to leave one by one. Nor where every small write is synced
// before the next (O_SYNC, logs): there is nothing to gather. Files that are
// written once and closed are too short to tell, and cost little.
//
// Once staging is left, writes that run on take it up again: one after the
// other, or large ones in any order, as the kernel sends them. Each time the
// run has to be longer, so that a file that changes its ways settles.
type pattern struct {
	// While staging, since the last look:
	writes int
	alone  int // writes that met no staged byte
	bytes  int64
	syncs  int // small ones in a row

	// While not:
	run    int64 // bytes that ran on
	runEnd int64
	least  int64 // run that takes staging up again
}

const (
	look       = 64        // writes between two looks
	mostAlone  = 48        // of them that may stand alone
	largeWrite = 256 << 10 // bytes; large enough for the disk as it is
	smallSync  = 64 << 10  // bytes; a sync of less gains nothing from staging
	mostSyncs  = 8         // small ones in a row
	leastRun   = 1 << 20   // bytes
	mostRun    = 16 << 20  // bytes; least doubles up to this
)

// wrote notes a staged write of n bytes, which met staged bytes or not, and
// reports whether the file should leave staging.
func (p *pattern) wrote(n int, met bool) bool {
	p.writes++
	p.bytes += int64(n)
	if !met {
		p.alone++
	}
	if p.writes < look {
		return false
	}
	leave := p.alone > mostAlone && p.bytes < look*largeWrite
	p.writes, p.alone, p.bytes = 0, 0, 0
	return leave
}

// synced notes a sync that found staged bytes, and reports whether the file
// should leave staging.
func (p *pattern) synced(staged int64) bool {
	p.run = 0
	switch {
	case staged >= smallSync:
		p.syncs = 0
	case staged > 0:
		p.syncs++
	}
	return p.syncs >= mostSyncs
}

// left notes that staging is left.
func (p *pattern) left() {
	*p = pattern{least: min(max(2*p.least, leastRun), mostRun)}
}

// ran notes a write of r past staging and reports whether the file should take
// staging up again.
func (p *pattern) ran(r span) bool {
	if r.lo == p.runEnd || r.len() >= largeWrite {
		p.run += r.len()
	} else {
		p.run = r.len()
	}
	p.runEnd = r.hi
	return p.run >= p.least
}

// leave stops staging the file, and has flushed what is staged. f.mu is held.
func (f *File) leave() {
	if f.through.Load() {
		return // some bytes are staged all the same, to keep their order
	}
	f.pattern.left()
	f.through.Store(true)
	f.s.count.left.Add(1)
	f.startFlush(all, f.s.push)
}
