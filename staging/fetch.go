package staging

import (
	"time"

	"golang.org/x/sys/unix"
)

const (
	// farther is how many chunks ahead the page cache is asked for what it
	// has. It is more than the backing file's own readahead is in front of
	// its readers, so that what that has brought there does not count.
	farther = 16
	// fewestChunks is how many a file has that is read ahead. At the start
	// the backing file's own readahead brings one or two that are read again.
	fewestChunks = 16
)

// plan has read ahead of s what is missing. It needs mu.
func (f *File) plan(s *stream) {
	a := f.ahead
	if !s.seq || a.off || f.ending.closed || f.ending.later != nil || f.s.pausing() {
		return
	}
	first := s.next / a.size
	last := min(first+s.depth, first+a.most, ToEnd/a.size-farther)
	for i := first; i <= last; i++ {
		r := span{i * a.size, (i + 1) * a.size}
		if i == first {
			r.lo = s.next &^ (a.size/4 - 1)
		}
		if c := a.chunks[i]; c != nil {
			if c.short {
				return
			}
			continue
		}
		if f.changing(r) || !f.s.mem.hasSpare(a.size) {
			return
		}
		f.leaveBehind(s)
		f.fetch(s, r)
	}
}

// changing reports whether the backing file is being changed in r, or will be
// since bytes are staged. It needs mu.
func (f *File) changing(r span) bool {
	for _, o := range f.ops {
		if o.kind != reading && o.overlaps(r) {
			return true
		}
	}
	return f.holds(r)
}

// leaveBehind drops what s has passed without asking for it all: the kernel
// has that. It needs mu.
func (f *File) leaveBehind(s *stream) {
	for _, c := range f.ahead.chunks {
		if c.reader == s && c.hi+f.ahead.slack() <= s.next {
			f.unused(c)
		}
	}
}

// fetch begins to read r, which is not changing, for s. It needs mu.
func (f *File) fetch(s *stream, r span) {
	now := time.Now()
	c := &chunk{span: r, file: f, reader: s, filling: true, filled: make(chan struct{}), began: now, used: now}
	f.ahead.chunks[r.lo/f.ahead.size] = c
	f.s.listChunk(c)
	id := f.begin(r, reading)
	go func() {
		got, err := f.readChunk(r)
		f.mu.Lock()
		defer f.unlock()
		c.filling, c.content, c.used = false, got, time.Now()
		close(c.filled)
		switch err {
		case nil:
		case errSpent:
			f.s.pause()
			f.kill(c)
		default: // a reader who asks for the place will be told
			f.ahead.off = true
			f.kill(c)
		}
		f.reclaim(c)
		f.ended(id)
	}()
}

// readChunk reads r past the page cache, unless that would not gain: then there
// is nothing in the result.
func (f *File) readChunk(r span) (got content, err error) {
	grid := f.b.Align().grid(r.len())
	if grid == 0 {
		return got, unix.ENOTSUP
	}
	if !f.gains(r) || r.lo&(grid-1) != 0 {
		return got, nil
	}
	got.buf = f.s.mem.takeSpare(r.len())
	if got.buf == nil {
		return got, errSpent
	}
	for got.n < r.len() && !got.short && err == nil {
		var n int
		n, err = f.ahead.src.ReadDirect(got.buf.mem[got.n:r.len()], r.lo+got.n)
		got.n += int64(max(n, 0))
		got.short = n <= 0 || got.n%grid != 0
	}
	f.s.count.ahead.Add(got.n)
	if got.n == 0 {
		f.s.mem.give(got.buf)
		got.buf = nil
	}
	return got, err
}

// gains reports whether reading r directly does: not at the end of the file, or
// if that is short, or if the page cache has what comes later.
func (f *File) gains(r span) bool {
	a := f.ahead
	size := a.src.Size()
	if r.lo >= size || size < fewestChunks*a.size {
		return false
	}
	later := min(r.lo+farther*a.size, size-a.size)
	return !a.src.Cached(later, a.size)
}
