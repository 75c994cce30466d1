package staging

import (
	"time"
)

// Flush writes what is staged of the n bytes at off to the backing file, and
// whatever shares a window with it, and waits for that; windows whose flush
// failed earlier are tried again at once. Bytes written meanwhile may go too.
// Nothing is durable before Sync.
//
// The error, of the first write that failed, unwraps to its errno. What could
// not be written stays staged and is tried again, after pauses and by every
// later Flush, Sync or Close, each of which fails until it is written.
// EINTR: cancel was closed.
func (f *File) Flush(off, n int64, cancel <-chan struct{}) error {
	r, err := rangeOf(off, n)
	if err != nil {
		return err
	}
	return f.flush(r, cancel)
}

func (f *File) flush(r span, cancel <-chan struct{}) error {
	if f.staged.Load() == 0 {
		return nil
	}
	f.mu.Lock()
	err := f.flushLocked(r, cancel)
	f.unlock()
	f.s.relieve()
	return err
}

// FlushAsync has the workers write what is staged, and does not wait.
func (f *File) FlushAsync() {
	if f.staged.Load() == 0 {
		return
	}
	f.mu.Lock()
	defer f.unlock()
	f.startFlush(all, f.s.push)
}

// Sync flushes the file and makes it durable. A failed sync of the backing
// file is never tried again: what was lost cannot be known, and a later sync
// of the system may wrongly succeed. All later calls return its error.
func (f *File) Sync(dataOnly bool, cancel <-chan struct{}) error {
	staged := f.staged.Load()
	err := f.flush(all, cancel)
	f.mu.Lock()
	if f.pattern.synced(staged) {
		f.leave()
	}
	if f.syncErr != nil {
		err = f.syncErr
	}
	f.unlock()
	if err != nil {
		return err
	}
	err = f.b.Sync(dataOnly)
	if err != nil && !interrupted(err) {
		f.mu.Lock()
		f.syncErr = err
		f.unlock()
	}
	return err
}

// flushLocked is Flush. It needs mu, and releases it while it writes or waits.
func (f *File) flushLocked(r span, cancel <-chan struct{}) error {
	begun, newest := f.attempts, f.seq
	// The workers help; the first window is this goroutine's own, so that a
	// small flush wakes nobody.
	first := true
	f.startFlush(r, func(w *window) {
		if !first {
			f.s.push(w)
		}
		first = false
	})
	for {
		w := f.next(r, newest)
		switch {
		case w == nil:
			return nil
		case w.state == queued:
			f.run(w)
		case w.state == failed && w.attempt > begun:
			return w.err
		case w.state == failed:
			f.requeue(w, func(*window) {})
		default:
			if err := f.wait(cancel); err != nil {
				return err
			}
		}
	}
}

// next is the window of r, no newer than seq newest, that a flush has to deal
// with now: the oldest queued one to write, or else one to wait for, or else a
// failed one. It needs mu.
func (f *File) next(r span, newest uint64) (best *window) {
	rank := func(w *window) int {
		switch w.state {
		case queued:
			return 0
		case flushing:
			return 1
		case failed:
			return 2
		}
		return 3 // active, and wanted: the older window is one of the above
	}
	f.each(r, func(w *window) {
		if w.seq > newest {
			return
		}
		if best == nil || rank(w) < rank(best) || rank(w) == rank(best) && w.seq < best.seq {
			best = w
		}
	})
	return best
}

// startFlush queues the windows of r and gives them to push. It needs mu.
func (f *File) startFlush(r span, push func(*window)) {
	f.each(r, func(w *window) {
		switch w.state {
		case active:
			f.seal(w, push)
		case failed:
			f.requeue(w, push)
		}
	})
}

// seal ends writing to an active window and queues it, or, while an older one
// of its range is not done, has that done later. It needs mu.
func (f *File) seal(w *window, push func(*window)) {
	if w.wanted {
		return
	}
	f.s.unlist(w)
	sl := f.slots[w.index]
	if sl.sealed != nil {
		w.wanted = true
		return
	}
	if f.last == w {
		f.last = nil
	}
	f.slots[w.index] = slot{sealed: w}
	w.state = queued
	f.s.coming.Add(w.buf.pages)
	push(w)
}

// sealIf seals an active window if cond, called with the lock held, says so,
// and reports whether the window is not active any more.
func (f *File) sealIf(w *window, cond func() bool) bool {
	f.mu.Lock()
	defer f.unlock()
	if w.state != active {
		return true
	}
	if !cond() {
		return false
	}
	f.seal(w, f.s.push)
	return true
}

// requeue gives a failed window another try. Its error stays until its data is
// written. It needs mu.
func (f *File) requeue(w *window, push func(*window)) {
	w.retry.Stop()
	f.s.failed.Add(-1)
	w.state = queued
	f.s.coming.Add(w.buf.pages)
	f.s.count.retries.Add(1)
	push(w)
}

// run flushes a queued window. It needs mu, and releases it while it waits for
// barriers and writes.
func (f *File) run(w *window) {
	for f.barred(w.span()) {
		_ = f.wait(nil)
		if w.state != queued {
			return
		}
	}
	w.state = flushing
	for _, r := range w.valid {
		f.outdate(span{w.base + r.lo, w.base + r.hi})
	}
	f.attempts++
	w.attempt = f.attempts
	f.mu.Unlock()
	end, err := f.writeOut(w)
	f.mu.Lock()
	f.completed(w, end, err)
}

// writeOut writes the valid bytes of a flushing window in order. All those
// below end, an offset in the window, are written.
func (f *File) writeOut(w *window) (end int64, err error) {
	least := f.s.cfg.MinDirect
	for _, r := range w.valid {
		grid := int64(0)
		if r.len() >= least {
			grid = f.grid() // asked only when it matters; it may take time
		}
		p := split(r, grid, least)
		for i, part := range [3]span{p.head, p.middle, p.tail} {
			if part.len() == 0 {
				continue
			}
			var n int
			if mem, off := w.buf.mem[part.lo:part.hi], w.base+part.lo; i == 1 {
				n, err = f.direct(mem, off, grid)
			} else {
				n, err = f.buffered(mem, off)
			}
			if err != nil {
				return part.lo + int64(n), err
			}
		}
	}
	return int64(len(w.buf.mem)), nil
}

// completed ends a flush that wrote all valid bytes below end. It needs mu.
func (f *File) completed(w *window, end int64, err error) {
	f.s.coming.Add(-w.buf.pages)
	f.staged.Add(-w.valid.remove(0, end))
	f.s.count.flushes.Add(1)
	if err == nil {
		f.drop(w)
	} else {
		f.failed(w, err)
	}
	f.notify()
}

// failed keeps a window whose flush failed for another try. It needs mu.
func (f *File) failed(w *window, err error) {
	w.state = failed
	w.err, f.err = err, err
	f.s.failed.Add(1)
	f.s.count.failures.Add(1)
	w.pause = min(max(2*w.pause, f.s.cfg.RetryMin), f.s.cfg.RetryMax)
	w.retry = time.AfterFunc(w.pause, func() {
		f.mu.Lock()
		defer f.unlock()
		if w.state == failed {
			f.requeue(w, f.s.push)
		}
	})
	f.s.mem.refuse() // waiters would wait for pages that may never get free
	if f.ending.overdue(f.s.cfg.GiveUp) {
		f.ending.lost = append(f.ending.lost, w.remains(err)...)
		f.drop(w)
	}
}

// drop forgets a window in any state but flushing, with what it still holds,
// and returns its buffer to the pool. It needs mu.
func (f *File) drop(w *window) {
	switch w.state {
	case active:
		f.s.unlist(w)
	case queued:
		f.s.coming.Add(-w.buf.pages)
	case failed:
		w.retry.Stop()
		f.s.failed.Add(-1)
	}
	f.staged.Add(-w.valid.bytes())
	sl := f.slots[w.index]
	if sl.sealed == w {
		sl.sealed = nil
	} else {
		sl.active = nil
	}
	if f.last == w {
		f.last = nil
	}
	if sl == (slot{}) {
		delete(f.slots, w.index)
	} else {
		f.slots[w.index] = sl
	}
	w.state = done
	buf := w.buf
	w.buf, w.valid = nil, nil
	f.s.mem.give(buf)
	if next := sl.active; next != nil && next.wanted {
		next.wanted = false
		f.seal(next, f.s.push)
	}
	if !f.unwritten() {
		f.err = nil
	}
}

// unwritten reports whether any window has data whose flush failed and has not
// succeeded since. It needs mu.
func (f *File) unwritten() bool {
	if f.err == nil {
		return false
	}
	for _, sl := range f.slots {
		if sl.sealed != nil && sl.sealed.err != nil {
			return true
		}
	}
	return false
}
