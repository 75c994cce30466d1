package staging

// stream watches one sequential reader of a file. Its requests come from the
// kernel's readahead: several at once, slightly out of order, and not at all
// for what the kernel has already. Guarded by File.mu.
type stream struct {
	next  int64  // the furthest offset that was asked for
	seq   bool   // the last stretch was sequential
	depth int64  // chunks to read ahead
	used  uint64 // number of its last request in the file; 0: there is no stream

	// The stretch that is being watched:
	from    int64 // next, when it began
	start   int64 // its lowest offset
	read    int64 // bytes that were asked for
	largest int64 // request, in bytes
}

const (
	streams    = 4 // that are told apart in one file
	disorder   = 3 // requests that may arrive before one that belongs in front of them
	firstDepth = 2 // chunks; doubled whenever a reader has to wait for one
)

// near reports whether a request at off may be the stream's.
func (s *stream) near(off, slack int64) bool {
	return s.used > 0 && max(off-s.next, s.next-off) <= slack
}

// add notes a request, and looks back once at least least bytes were read since
// it did so last: nearly all of the stretch must have been asked for, and next
// must have moved on by about as much. Disorder can move it in leaps.
func (s *stream) add(r span, least int64) {
	s.start = min(s.start, r.lo)
	s.next = max(s.next, r.hi)
	s.read += r.len()
	s.largest = max(s.largest, r.len())
	if s.read < max(least, (disorder+1)*s.largest) {
		return
	}
	progress := s.read * 3 / 4
	if s.seq {
		progress = s.read / 4
	}
	s.seq = s.next-s.start <= s.read+s.read/4+disorder*s.largest && s.next-s.from >= progress
	if !s.seq {
		s.depth = firstDepth
	}
	s.from, s.start, s.read, s.largest = s.next, s.next, 0, 0
}

// note adds a request to the stream that it is near to, or else to a new one in
// place of that which was quiet for longest.
func (a *ahead) note(r span) *stream {
	a.requests++
	oldest := &a.streams[0]
	for i := range a.streams {
		s := &a.streams[i]
		if s.near(r.lo, a.slack()) {
			s.used = a.requests
			s.add(r, a.least)
			return s
		}
		if s.used < oldest.used {
			oldest = s
		}
	}
	*oldest = stream{next: r.lo, from: r.lo, start: r.lo, depth: firstDepth, used: a.requests}
	oldest.add(r, a.least)
	return oldest
}

// slack is how far from where a stream has got to a request may be its.
func (a *ahead) slack() int64 { return 2 * a.size }
