package staging

import "time"

// state is where a window is in its life; see the package's comment.
type state uint8

const (
	active   state = iota // takes writes
	queued                // waits for somebody to flush it
	flushing              // being written out by the goroutine that made it so
	failed                // the flush failed; tried again after a pause, or when asked
	done                  // nothing is left, the buffer is gone; only stale pointers see this
)

// window is a range of a file with staged bytes. Everything but the memory and
// valid ranges of a flushing window is guarded by the file's lock; those may be
// read by anybody then, and are changed by nobody.
type window struct {
	file  *File
	index int64 // the range starts at index times the window size
	base  int64 // that product
	buf   *buffer
	valid spans // in offsets from base
	few   [4]span
	state state
	seq   uint64 // order in which the file's windows were opened

	wanted  bool   // active: to be sealed as soon as the older window is done
	attempt uint64 // number of the last flush among the file's
	err     error  // failed: why
	pause   time.Duration
	retry   *time.Timer // failed: queues it again

	opened     time.Time
	listed     bool    // in the stager's list of active windows
	prev, next *window // guarded by Stager.mu
}

// span is the file's range that the window covers.
func (w *window) span() span { return span{w.base, w.base + int64(len(w.buf.mem))} }

// local is r, a range of the file, in the window's own offsets.
func (w *window) local(r span) span {
	c := r.clip(w.span())
	return span{c.lo - w.base, c.hi - w.base}
}

// holds reports whether any byte of r, a range of the file, is staged here.
func (w *window) holds(r span) bool {
	l := w.local(r)
	return l.len() > 0 && w.valid.overlaps(l.lo, l.hi)
}

// full reports whether every byte is valid.
func (w *window) full() bool {
	return len(w.valid) == 1 && w.valid[0].len() == int64(len(w.buf.mem))
}

// activeList keeps the active windows in the order they were opened in.
// Guarded by Stager.mu.
type activeList struct{ first, last *window }

func (l *activeList) add(w *window) {
	w.prev, w.next, w.listed = l.last, nil, true
	if l.last != nil {
		l.last.next = w
	} else {
		l.first = w
	}
	l.last = w
}

func (l *activeList) remove(w *window) {
	if !w.listed {
		return
	}
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		l.first = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		l.last = w.prev
	}
	w.prev, w.next, w.listed = nil, nil, false
}
