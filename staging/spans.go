package staging

import "slices"

// spans is a set of bytes: sorted ranges that neither overlap nor touch. The
// zero value is empty.
type spans []span

// add puts [lo, hi), which is not empty, into the set. It returns how many
// bytes are new, and whether the range met one that was there.
func (s *spans) add(lo, hi int64) (added int64, met bool) {
	n := len(*s)
	if n > 0 && (*s)[n-1].hi == lo { // a sequential writer
		(*s)[n-1].hi = hi
		return hi - lo, true
	}
	if n == 0 || (*s)[n-1].hi < lo {
		*s = append(*s, span{lo, hi})
		return hi - lo, false
	}
	// [i, j) are those that the range overlaps or touches.
	i := s.from(lo)
	j := i
	had := int64(0)
	joined := span{lo, hi}
	for ; j < n && (*s)[j].lo <= hi; j++ {
		r := (*s)[j]
		had += max(r.clip(span{lo, hi}).len(), 0)
		joined = span{min(joined.lo, r.lo), max(joined.hi, r.hi)}
	}
	if i == j {
		*s = slices.Insert(*s, i, joined)
		return hi - lo, false
	}
	(*s)[i] = joined
	*s = slices.Delete(*s, i+1, j)
	return hi - lo - had, true
}

// remove takes [lo, hi) out of the set and returns how many bytes that were.
func (s *spans) remove(lo, hi int64) (removed int64) {
	if lo >= hi {
		return 0
	}
	cut := span{lo, hi}
	for i := s.from(lo); i < len(*s) && (*s)[i].lo < hi; {
		r := (*s)[i]
		removed += max(r.clip(cut).len(), 0)
		left, right := span{r.lo, min(r.hi, lo)}, span{max(r.lo, hi), r.hi}
		switch {
		case left.len() > 0 && right.len() > 0:
			(*s)[i] = left
			*s = slices.Insert(*s, i+1, right)
			i += 2
		case left.len() > 0:
			(*s)[i] = left
			i++
		case right.len() > 0:
			(*s)[i] = right
			i++
		default:
			*s = slices.Delete(*s, i, i+1)
		}
	}
	return removed
}

// from is the index of the first range that ends at or after lo.
func (s spans) from(lo int64) int {
	i, j := 0, len(s)
	for i < j {
		if h := int(uint(i+j) >> 1); s[h].hi < lo {
			i = h + 1
		} else {
			j = h
		}
	}
	return i
}

// overlaps reports whether any byte of [lo, hi) is in the set.
func (s spans) overlaps(lo, hi int64) bool {
	for i := s.from(lo); i < len(s) && s[i].lo < hi; i++ {
		if s[i].overlaps(span{lo, hi}) {
			return true
		}
	}
	return false
}

// bytes is how many are in the set.
func (s spans) bytes() (n int64) {
	for _, r := range s {
		n += r.len()
	}
	return n
}
