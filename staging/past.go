package staging

import "golang.org/x/sys/unix"

// Writes that go past the windows to the backing file. They never overlap what
// is staged at the time, so whatever is staged later is newer than they are.

// tryThrough writes p to the backing file as the file's pattern asks for. It
// returns 0 and no error if p has to be staged, since it overlaps staged bytes
// or a barrier, or since the pattern changed.
func (f *File) tryThrough(p []byte, off int64) (int, error) {
	r := span{off, off + int64(len(p))}
	f.mu.Lock()
	if f.pattern.ran(r) {
		f.through.Store(false)
		f.s.count.returned.Add(1)
	}
	if !f.through.Load() || f.ending.closed || f.holds(r) || f.barred(r) {
		f.mu.Unlock()
		return 0, nil
	}
	id := f.begin(r, writing)
	f.mu.Unlock()
	n, err := f.buffered(p, off)
	f.finish(id)
	f.s.count.through.Add(int64(n))
	return n, err
}

// tryBypass writes the aligned part of a large p to the backing file. It
// returns 0 and no error if p has to be staged. A range that is being staged
// stays so: its run would be cut up otherwise.
func (f *File) tryBypass(p []byte, off int64) (int, error) {
	grid := f.grid()
	if grid == 0 || off&(grid-1) != 0 || address(p)&(PageSize-1) != 0 {
		return 0, nil
	}
	r := span{off, (off + int64(len(p))) &^ (grid - 1)}
	if r.len() < f.s.cfg.Bypass {
		return 0, nil
	}
	f.mu.Lock()
	if f.ending.closed || f.holds(r) || f.barred(r) || f.slots[f.index(off)].active != nil {
		f.mu.Unlock()
		return 0, nil
	}
	id := f.begin(r, writing)
	f.mu.Unlock()
	n, err := f.direct(p[:r.len()], off, grid)
	f.finish(id)
	f.s.count.bypassed.Add(int64(n))
	return n, err
}

// WriteThrough writes p at off to the backing file, directly if it is aligned:
// what is staged of the range is flushed first, and stays in charge if that
// fails. It is for writers that say so (O_DIRECT). Errors are those of WriteAt
// and Flush.
func (f *File) WriteThrough(p []byte, off int64, cancel <-chan struct{}) (int, error) {
	if _, err := rangeOf(off, int64(len(p))); err != nil {
		return 0, err
	}
	return f.writeThrough(p, off, cancel)
}

func (f *File) writeThrough(p []byte, off int64, cancel <-chan struct{}) (int, error) {
	r := span{off, off + int64(len(p))}
	f.mu.Lock()
	for {
		if f.ending.closed {
			f.mu.Unlock()
			return 0, unix.EBADF
		}
		if f.holds(r) {
			if err := f.flushLocked(r, cancel); err != nil {
				f.mu.Unlock()
				return 0, err
			}
		}
		if !f.barred(r) {
			break
		}
		if err := f.wait(cancel); err != nil {
			f.mu.Unlock()
			return 0, err
		}
	}
	id := f.begin(r, writing)
	f.mu.Unlock()
	var n int
	var err error
	grid := f.grid()
	if grid > 0 && (off|int64(len(p)))&(grid-1) == 0 && address(p)&(PageSize-1) == 0 {
		n, err = f.direct(p, off, grid)
	} else {
		n, err = f.buffered(p, off)
	}
	f.finish(id)
	f.s.count.through.Add(int64(n))
	return n, err
}

// buffered writes all of p through the backing's page cache.
func (f *File) buffered(p []byte, off int64) (n int, err error) {
	for n < len(p) && err == nil {
		part := piece(span{int64(n), int64(len(p))}, PageSize, f.s.cfg.MaxPiece)
		var m int
		m, err = writeAll(p[part.lo:part.hi], off+part.lo, f.b.WriteBuffered)
		n += m
	}
	f.s.count.buffered.Add(int64(n))
	return n, err
}

// direct writes all of p, which is on the grid, past the page cache. What a
// short write leaves off the grid is written again; if the direct path does
// not move at all, without an error, the buffered one does.
func (f *File) direct(p []byte, off, grid int64) (n int, err error) {
	for n < len(p) {
		at := off + int64(n)
		part := piece(span{at, off + int64(len(p))}, grid, max(f.s.cfg.MaxPiece, grid))
		m, err := f.b.WriteDirect(p[n:n+int(part.len())], at)
		m = int(int64(max(m, 0)) &^ (grid - 1))
		n += m
		f.s.count.direct.Add(int64(m))
		if err != nil && !interrupted(err) {
			return n, writeError(off+int64(n), len(p)-n, err)
		}
		if m == 0 {
			m, err = f.buffered(p[n:n+int(grid)], off+int64(n))
			n += m
			if err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// begin notes what begins in r. Unless that only reads, what was read ahead of r
// is outdated, and nothing is read ahead of it before the end. It needs mu.
func (f *File) begin(r span, kind kind) (id uint64) {
	if kind != reading {
		f.outdate(r)
	}
	f.opID++
	f.ops = append(f.ops, op{r, f.opID, kind})
	return f.opID
}

// finish ends what begin began.
func (f *File) finish(id uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended(id)
}

// ended is finish. It needs mu.
func (f *File) ended(id uint64) {
	for i := range f.ops {
		if f.ops[i].id == id {
			f.ops = append(f.ops[:i], f.ops[i+1:]...)
			break
		}
	}
	f.notify()
}

// barred reports whether a barrier overlaps r. It needs mu.
func (f *File) barred(r span) bool {
	for _, o := range f.ops {
		if o.kind == barrier && o.overlaps(r) {
			return true
		}
	}
	return false
}
