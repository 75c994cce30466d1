package staging

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxPart is how much is staged in one step, in bytes: what a writer waits for
// at once when the budget is spent.
const maxPart = 1 << 20

// WriteAt writes p at off: into a window, or, where that is better, to the
// backing file. It keeps nothing of p. When it returns, reads through the File
// see the data; what went into a window is on its way with the next flush.
//
// Data goes to the backing file at once when it is large and aligned
// (Config.Bypass; the rest of such a request is staged) and when the file's
// pattern does not gain from staging (see Through); if that fails it is staged
// after all, since the caller may have no other place for it. It goes there too
// when the budget is spent and does not get free since flushes fail.
//
// An error says that the bytes from n on are not written: EINTR if cancel was
// closed while waiting for memory, EINVAL or EFBIG for impossible offsets,
// ENOMEM, EBADF after Close, or what the backing said of a write that went
// there. An earlier failed flush is not reported here but by Flush, Sync and
// Err, since this data is safe, unless it is in the way of this one.
func (f *File) WriteAt(p []byte, off int64, cancel <-chan struct{}) (n int, err error) {
	if off < 0 {
		return 0, unix.EINVAL
	}
	if int64(len(p)) > ToEnd-off {
		return 0, unix.EFBIG
	}
	if f.through.Load() {
		n, err = f.tryThrough(p, off)
	} else if bypass := f.s.cfg.Bypass; bypass > 0 && int64(len(p)) >= bypass {
		n, err = f.tryBypass(p, off)
	}
	if interrupted(err) {
		return n, err
	}
	for n < len(p) {
		at := off + int64(n)
		size := min(int64(len(p)-n), f.s.cfg.WindowSize-at%f.s.cfg.WindowSize, maxPart)
		m, err := f.stage(p[n:n+int(size)], at, cancel)
		n += m
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// stage puts p, which one window can hold, into it.
func (f *File) stage(p []byte, off int64, cancel <-chan struct{}) (int, error) {
	var g grant
	defer func() {
		if g != (grant{}) { // what was promised for more than was needed
			f.s.mem.release(&g)
		}
	}()
	for {
		f.mu.Lock()
		w, err := f.room(off, len(p), &g)
		if w != nil {
			f.put(w, p, off-w.base)
			f.mu.Unlock()
			f.s.relieve() // the next waiter may want this window's pages
			return len(p), nil
		}
		needBuffer := f.slots[f.index(off)].active == nil && g.buf == nil
		f.mu.Unlock()
		if err != nil {
			return 0, err
		}
		if err := f.s.waitForMemory(&g, off, len(p), needBuffer, cancel); err == errSpent {
			return f.writeThrough(p, off, cancel)
		} else if err != nil {
			return 0, err
		}
	}
}

// waitForMemory adds to g what a write of n bytes at off may need.
func (s *Stager) waitForMemory(g *grant, off int64, n int, buffer bool, cancel <-chan struct{}) error {
	if s.failed.Load() > 0 && !s.giveUp() {
		return errSpent
	}
	s.count.waits.Add(1)
	pages := (off+int64(n)-1)/PageSize - off/PageSize + 1
	waiter := s.mem.enqueue(pages, buffer)
	s.relieve()
	got, err := s.mem.wait(waiter, cancel)
	if got.buf != nil {
		g.buf = got.buf
	}
	g.pages += got.pages
	return err
}

// room returns the active window for n bytes at off with all their pages
// resident or paid for, from the budget or from g; nil, without an error, if
// the budget does not have them. It needs mu.
func (f *File) room(off int64, n int, g *grant) (*window, error) {
	w := f.last
	if w == nil || w.index != f.index(off) {
		var err error
		if w, err = f.open(off, n, g); w == nil {
			return nil, err
		}
	}
	lo := off - w.base
	if need := w.buf.missing(lo, lo+int64(n)); need > g.pages {
		if !f.s.mem.reserve(need - g.pages) {
			return nil, nil
		}
		g.pages = 0
	} else {
		g.pages -= need
	}
	return w, nil
}

// open finds the active window for n bytes at off, or makes one from g or the
// pool; nil, without an error, if the budget has no page for it. It needs mu.
func (f *File) open(off int64, n int, g *grant) (*window, error) {
	if f.ending.closed {
		return nil, unix.EBADF
	}
	index := f.index(off)
	sl := f.slots[index]
	if sl.active != nil {
		f.last = sl.active
		return sl.active, nil
	}
	buf := g.buf
	if buf == nil {
		buf = f.s.mem.takeWarm()
	}
	if buf == nil {
		pages := (off+int64(n)-1)/PageSize - off/PageSize + 1
		if g.pages < pages {
			if !f.s.mem.reserve(pages - g.pages) {
				return nil, nil
			}
			g.pages = pages
		}
		var err error
		if buf, err = f.s.mem.takeCold(); err != nil {
			return nil, err
		}
	}
	g.buf = nil
	f.seq++
	w := &window{file: f, index: index, base: index * f.s.cfg.WindowSize, buf: buf, seq: f.seq}
	w.valid = w.few[:0]
	sl.active = w
	f.slots[index] = sl
	f.last = w
	f.s.list(w)
	f.s.count.windows.Add(1)
	return w, nil
}

// put copies p into w at lo, where room has seen to the pages. It needs mu.
func (f *File) put(w *window, p []byte, lo int64) {
	hi := lo + int64(len(p))
	w.buf.touch(lo, hi)
	copy(w.buf.mem[lo:hi], p)
	added, met := w.valid.add(lo, hi)
	f.staged.Add(added)
	f.s.count.staged.Add(int64(len(p)))
	if w.full() {
		f.seal(w, f.s.push)
	}
	if f.pattern.wrote(len(p), met) {
		f.leave()
	}
}

// writeAll gives p to the backing through write until all is written or it
// fails; a write of nothing is a failure.
func writeAll(p []byte, off int64, write func([]byte, int64) (int, error)) (n int, err error) {
	for n < len(p) {
		m, err := write(p[n:], off+int64(n))
		n += max(m, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return n, writeError(off+int64(n), len(p)-n, err)
		}
		if m <= 0 {
			return n, writeError(off+int64(n), len(p)-n, unix.EIO)
		}
	}
	return n, nil
}

// address is where p lies in memory. Safe because it is only looked at.
func address(p []byte) int64 { return int64(uintptr(unsafe.Pointer(unsafe.SliceData(p)))) }
