package staging

import (
	"cmp"
	"slices"
	"time"
)

// ending is how a file ends. Guarded by File.mu.
type ending struct {
	closed bool         // takes no data any more
	later  func([]Lost) // called once nothing is staged; nil without CloseLater
	since  time.Time    // when CloseLater was called
	lost   []Lost       // given up since
}

// overdue reports whether flushes that fail are not worth another try.
func (e *ending) overdue(after time.Duration) bool {
	return e.later != nil && time.Since(e.since) >= after
}

// Close flushes the file, whose last user is gone, and drops what cannot be
// written, which it returns. It waits for all writes of the backing file in
// progress; closing cancel only ends the wait for those that have not begun,
// whose data is lost then. The File takes no data afterwards (EBADF), and does
// not call its Backing any more. Close does not sync.
func (f *File) Close(cancel <-chan struct{}) []Lost {
	err := f.flush(all, cancel)
	return f.shut(func() []Lost { return f.remains(err) })
}

// Drop ends a file that nobody can read any more, unlinked and closed: what is
// staged is dropped unwritten. Otherwise it is as Close.
func (f *File) Drop() {
	f.shut(func() []Lost { return nil })
}

// shut drops all windows and what is read ahead, once nothing is being written
// or read ahead, and reports lost, called with mu held, as the way to end asks
// for.
func (f *File) shut(lost func() []Lost) (l []Lost) {
	f.mu.Lock()
	f.ending.closed = true
	f.last = nil
	later := f.ending.later
	f.ending.later = nil
	f.mu.Unlock()
	_ = f.bar(all, nil, func() error { return nil }, func() {
		l = append(f.ending.lost, lost()...)
		f.ending.lost = nil
		var ws []*window
		f.each(all, func(w *window) { ws = append(ws, w) })
		f.dropAll(ws)
	})
	f.awaitReaders()
	f.s.forget(f, l)
	if later != nil {
		later(l)
		return nil
	}
	return l
}

// CloseLater ends a file, whose last user is gone, once it is flushed, which
// begins when its data has Config.Age, or now if that does not count. Failing
// flushes are tried again until Config.GiveUp has passed. Then later is called
// with what is lost, from any goroutine and perhaps before CloseLater returns,
// and the Backing is not used any more. Until then Reopen can take the file
// back. A Close of the file or its Stager meanwhile calls later as well, and
// returns nothing for it.
func (f *File) CloseLater(later func([]Lost)) {
	f.mu.Lock()
	defer f.unlock()
	f.ending.later, f.ending.since = later, time.Now()
	f.outdate(all)
	if f.s.cfg.Age < 0 {
		f.startFlush(all, f.s.push)
	}
}

// Reopen undoes CloseLater and reports true, or false if the file has ended
// and its function was called, or is about to be.
func (f *File) Reopen() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ending.closed {
		return false
	}
	f.ending.later = nil
	return true
}

// unlock releases mu where windows may have been dropped, and ends the file if
// CloseLater waits for that.
func (f *File) unlock() {
	e := &f.ending
	if e.later == nil || len(f.slots) > 0 || len(f.ops) > 0 || f.copying() {
		f.mu.Unlock()
		return
	}
	later, lost := e.later, e.lost
	e.closed, e.later, e.lost = true, nil, nil
	f.mu.Unlock()
	f.s.forget(f, lost)
	later(lost)
}

// remains lists what is staged by offset, with the error that keeps it, or err
// where there is none. It needs mu.
func (f *File) remains(err error) (l []Lost) {
	f.each(all, func(w *window) { l = append(l, w.remains(err)...) })
	slices.SortStableFunc(l, func(a, b Lost) int { return cmp.Compare(a.Off, b.Off) })
	return l
}

func (w *window) remains(err error) (l []Lost) {
	if w.err != nil {
		err = w.err
	}
	for _, r := range w.valid {
		l = append(l, Lost{File: w.file, Off: w.base + r.lo, Len: r.len(), Err: err})
	}
	return l
}

// forget ends the stager's interest in f, of which lost is lost.
func (s *Stager) forget(f *File, lost []Lost) {
	for _, r := range lost {
		s.count.lost.Add(r.Len)
	}
	s.mu.Lock()
	delete(s.files, f)
	s.mu.Unlock()
}
