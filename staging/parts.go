package staging

// span is the half-open range [lo, hi) of bytes.
type span struct{ lo, hi int64 }

func (s span) len() int64           { return s.hi - s.lo }
func (s span) overlaps(o span) bool { return s.lo < o.hi && o.lo < s.hi }

// clip is what s and o have in common; its length is negative or zero when
// that is nothing.
func (s span) clip(o span) span { return span{max(s.lo, o.lo), min(s.hi, o.hi)} }

// parts is a run of bytes as it is written: the aligned middle directly, the
// ends buffered. Each may be empty.
type parts struct{ head, middle, tail span }

// split finds the parts of run on a grid (bytes, a power of two; 0 for no
// direct path). A middle below least is not worth a direct write: the run is
// all head then.
func split(run span, grid, least int64) parts {
	if grid > 0 {
		middle := span{(run.lo + grid - 1) &^ (grid - 1), run.hi &^ (grid - 1)}
		if middle.len() > 0 && middle.len() >= least {
			return parts{span{run.lo, middle.lo}, middle, span{middle.hi, run.hi}}
		}
	}
	return parts{run, span{run.hi, run.hi}, span{run.hi, run.hi}}
}

// piece is the first of the equal pieces, on grid, in which s is written so
// that none is longer than most. The rest, cut again, gives the others; equal
// pieces avoid a small last one.
func piece(s span, grid, most int64) span {
	n := (s.len() + most - 1) / most
	if n <= 1 {
		return s
	}
	grid = max(grid, 1)
	each := (s.len()/n + grid - 1) &^ (grid - 1)
	return span{s.lo, s.lo + min(each, most)}
}
