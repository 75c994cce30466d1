package staging

// Affects reports whether a read at off or beyond may have to show staged
// bytes, or the zeros of a hole below them, so that it must go through ReadAt.
// If not, the backing file alone is right, for what was written before.
func (f *File) Affects(off int64) bool { return f.End() > off }

// ReadAt fills p from off: with staged bytes, the newest first, then with those
// of the backing file, then with zeros up to End. Fewer bytes than asked for,
// without an error, mean the end of the file. Every byte that was written
// before the call is seen, or a later one.
//
// What changes the backing file behind the File's back shows at once, or with
// Config.ReadAhead after a second without reads of the place, four at most.
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	if f.ahead == nil && f.staged.Load() == 0 {
		return f.b.ReadAt(p, off)
	}
	r, err := rangeOf(off, int64(len(p)))
	if err != nil {
		return 0, err
	}
	var chunks [4]taken
	list := chunks[:0]
	f.mu.Lock()
	have := f.copyTo(p, r)
	end := f.end()
	if f.ahead != nil && r.len() > 0 {
		list = f.take(r, list)
	}
	f.mu.Unlock()
	// What is not staged now was flushed before, so the backing file has it,
	// whatever happens from here on; so have the chunks that are alive.
	if len(list) > 0 {
		f.await(list)
		defer f.untake(list)
	}
	return f.fill(p, r, have, end, list)
}

// copyTo copies what is staged of r to p and returns what that is. It needs mu.
func (f *File) copyTo(p []byte, r span) (have spans) {
	if len(f.slots) == 0 {
		return nil
	}
	have = make(spans, 0, 8)
	for i := f.index(r.lo); i <= f.index(r.hi-1) && r.len() > 0; i++ {
		sl := f.slots[i]
		for _, w := range [2]*window{sl.sealed, sl.active} { // the newer over the older
			if w == nil {
				continue
			}
			l := w.local(r)
			for j := w.valid.from(l.lo); j < len(w.valid) && w.valid[j].lo < l.hi; j++ {
				c := w.valid[j].clip(l)
				if c.len() <= 0 {
					continue
				}
				copy(p[w.base+c.lo-r.lo:], w.buf.mem[c.lo:c.hi])
				have.add(w.base+c.lo, w.base+c.hi)
			}
		}
	}
	return have
}

// fill reads what is not in have from chunks or the backing file. Below end a
// file that is shorter reads as zeros.
func (f *File) fill(p []byte, r span, have spans, end int64, list []taken) (int, error) {
	at := r.lo
	for i := 0; i <= len(have); i++ {
		gap := span{at, r.hi}
		if i < len(have) {
			gap.hi, at = have[i].lo, have[i].hi
		}
		if gap.len() <= 0 {
			continue
		}
		n, err := f.readGap(p[gap.lo-r.lo:gap.hi-r.lo], gap.lo, list)
		read := gap.lo + int64(max(n, 0))
		if err != nil {
			return int(read - r.lo), err
		}
		if zeros := (span{read, min(gap.hi, end)}); zeros.len() > 0 {
			clear(p[zeros.lo-r.lo : zeros.hi-r.lo])
			read = zeros.hi
		}
		if read < gap.hi {
			return int(read - r.lo), nil
		}
	}
	return len(p), nil
}

// readGap reads p from the chunks that were taken, and where those have nothing
// from the backing file. Only that knows where the file ends.
func (f *File) readGap(p []byte, off int64, list []taken) (n int, err error) {
	for n < len(p) {
		at := off + int64(n)
		hi := off + int64(len(p)) // of what no chunk has
		for i := range list {
			t := &list[i]
			if m := t.copyAt(p[n:], at); m > 0 {
				n += m
				at += int64(m)
			} else if t.lo > at && t.usable > 0 {
				hi = min(hi, t.lo)
			}
		}
		if gap := p[n : hi-off]; len(gap) > 0 {
			m, err := f.b.ReadAt(gap, at)
			n += max(m, 0)
			if err != nil || m < len(gap) {
				return n, err
			}
		}
	}
	return n, nil
}
