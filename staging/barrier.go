package staging

// Barrier flushes what is staged of the n bytes at off (ToEnd: all from there),
// keeps later flushes and other writes of the backing file's range from
// starting, waits for those in progress, and calls do: for what reads or
// changes the backing file itself (fallocate, punch hole, copy_file_range,
// SEEK_HOLE, utimens). Writes may be staged meanwhile; they count as later.
//
// If the flush fails its error is returned and do is not called. do must not
// call the File. Barriers of overlapping ranges run in the order of their
// calls.
func (f *File) Barrier(off, n int64, cancel <-chan struct{}, do func() error) error {
	r, err := rangeOf(off, n)
	if err != nil {
		return err
	}
	if err := f.flush(r, cancel); err != nil {
		return err
	}
	return f.bar(r, cancel, do, nil)
}

// Truncate calls do, which changes the backing file's size to size, while no
// flush beyond it is running or can start. If do succeeds, all that is staged
// beyond is dropped unwritten. What is staged below stays so. do must not call
// the File.
func (f *File) Truncate(size int64, cancel <-chan struct{}, do func() error) error {
	r, err := rangeOf(size, ToEnd)
	if err != nil {
		return err
	}
	return f.bar(r, cancel, do, func() { f.cut(size) })
}

// bar runs do under a barrier, and then, if it succeeds, then with mu held.
func (f *File) bar(r span, cancel <-chan struct{}, do func() error, then func()) error {
	f.mu.Lock()
	id := f.begin(r, barrier)
	for f.busy(r, id) {
		if err := f.wait(cancel); err != nil {
			f.mu.Unlock()
			f.finish(id)
			return err
		}
	}
	f.mu.Unlock()
	defer f.finish(id)
	if err := do(); err != nil {
		return err
	}
	if then != nil {
		f.mu.Lock()
		then()
		f.unlock()
	}
	return nil
}

// busy reports whether barrier id has to wait for a flush, a write past the
// windows, a read ahead, as the kernel would, or an earlier barrier. It needs
// mu.
func (f *File) busy(r span, id uint64) bool {
	for _, o := range f.ops {
		if o.overlaps(r) && (o.kind != barrier || o.id < id) {
			return true
		}
	}
	busy := false
	f.each(r, func(w *window) { busy = busy || w.state == flushing })
	return busy
}

// cut drops what is staged from size on, where nothing is being flushed. It
// needs mu.
func (f *File) cut(size int64) {
	var empty []*window
	f.each(span{size, ToEnd}, func(w *window) {
		f.staged.Add(-w.valid.remove(max(size-w.base, 0), f.s.cfg.WindowSize))
		if len(w.valid) == 0 {
			empty = append(empty, w)
		}
	})
	f.dropAll(empty)
	if size == 0 { // a file that starts anew may be written in another way
		f.pattern = pattern{}
		f.through.Store(false)
	}
}

// dropAll drops windows, the newer ones of each range first, so that none is
// queued when the older is gone. It needs mu.
func (f *File) dropAll(ws []*window) {
	for _, w := range ws {
		if w.state == active {
			f.drop(w)
		}
	}
	for _, w := range ws {
		if w.state != done {
			f.drop(w)
		}
	}
	f.notify()
}
