package staging

import (
	"math"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// ToEnd, as a length, means as far as a file can go.
const ToEnd = math.MaxInt64

// all is every byte of a file.
var all = span{0, ToEnd}

// File is what is staged of one file; all handles of an inode share it. Its
// methods may be called from several goroutines at once. A closed cancel
// channel ends a method's waiting with EINTR; nil waits as long as it takes.
type File struct {
	s *Stager
	b Backing

	staged  atomic.Int64 // valid bytes of all windows
	through atomic.Bool  // the pattern says not to stage; changes under mu

	grid     func() int64 // where runs are split; 0 without a direct path
	mu       sync.Mutex
	slots    map[int64]slot // guarded by mu; by window.index
	last     *window        // guarded by mu; active, written to last, or nil
	ops      []op           // guarded by mu; what goes on outside of windows, and barriers
	opID     uint64         // guarded by mu
	changed  chan struct{}  // guarded by mu; closed when what others wait for may have come
	seq      uint64         // guarded by mu; of the newest window
	attempts uint64         // guarded by mu; flushes of windows begun
	err      error          // guarded by mu; of the last failed flush, while what it left is staged
	syncErr  error          // guarded by mu; of a failed sync, for good
	pattern  pattern        // guarded by mu
	ending   ending         // guarded by mu
	ahead    *ahead         // nil if nothing is read ahead; what it holds is guarded by mu
}

// slot is the windows of one range.
type slot struct{ sealed, active *window }

// op is something that goes on outside of windows, or a barrier.
type op struct {
	span
	id   uint64
	kind kind
}

// kind is what an op does.
type kind uint8

const (
	writing kind = iota // past the windows
	barrier             // keeps flushes and writes from beginning
	reading             // ahead; of no concern to writers
)

// Open makes a File over b, without touching b. End it with Close, CloseLater
// or Drop. Two Files over the same backing file do not know of each other.
func (s *Stager) Open(b Backing) *File {
	f := &File{s: s, b: b, slots: make(map[int64]slot)}
	f.ahead = s.newAhead(b)
	f.grid = sync.OnceValue(func() int64 { return b.Align().grid(s.cfg.WindowSize) })
	s.mu.Lock()
	s.files[f] = struct{}{}
	s.mu.Unlock()
	return f
}

// Backing is what the file was opened over.
func (f *File) Backing() Backing { return f.b }

// StagedBytes is how many bytes are staged.
func (f *File) StagedBytes() int64 { return f.staged.Load() }

// Through reports whether writes go to the backing file now since staging them
// would not gain. It can change with every write.
func (f *File) Through() bool { return f.through.Load() }

// End is the offset after the last staged byte, 0 without any. The file's size
// is this or the backing file's, whichever is larger; take this one first, as
// a flush in between moves bytes from here to there.
func (f *File) End() int64 {
	if f.staged.Load() == 0 {
		return 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.end()
}

// end needs mu.
func (f *File) end() (end int64) {
	for _, sl := range f.slots {
		for _, w := range [2]*window{sl.sealed, sl.active} {
			if w != nil && len(w.valid) > 0 {
				end = max(end, w.base+w.valid[len(w.valid)-1].hi)
			}
		}
	}
	return end
}

// Err is the error of the last failed flush while data that it could not write
// is still staged, or that of a failed sync; else nil.
func (f *File) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.syncErr != nil {
		return f.syncErr
	}
	return f.err
}

// index is the window range that off lies in.
func (f *File) index(off int64) int64 { return off / f.s.cfg.WindowSize }

// each calls do for the windows of a range that it may concern. It needs mu.
func (f *File) each(r span, do func(w *window)) {
	for index, sl := range f.slots {
		base := index * f.s.cfg.WindowSize
		if !(span{base, base + f.s.cfg.WindowSize}).overlaps(r) {
			continue
		}
		if sl.sealed != nil {
			do(sl.sealed)
		}
		if sl.active != nil {
			do(sl.active)
		}
	}
}

// holds reports whether any byte of r is staged. It needs mu.
func (f *File) holds(r span) bool {
	for i := f.index(r.lo); i <= f.index(r.hi-1) && len(f.slots) > 0; i++ {
		sl := f.slots[i]
		if sl.sealed != nil && sl.sealed.holds(r) || sl.active != nil && sl.active.holds(r) {
			return true
		}
	}
	return false
}

// notify wakes those that wait. It needs mu.
func (f *File) notify() {
	if f.changed != nil {
		close(f.changed)
		f.changed = nil
	}
}

// wait releases mu until something changes or cancel is closed.
func (f *File) wait(cancel <-chan struct{}) error {
	if f.changed == nil {
		f.changed = make(chan struct{})
	}
	changed := f.changed
	f.mu.Unlock()
	defer f.mu.Lock()
	select {
	case <-changed:
		return nil
	case <-cancel:
		return unix.EINTR
	}
}

// rangeOf checks an offset and a length as callers give them.
func rangeOf(off, n int64) (span, error) {
	if off < 0 || n < 0 {
		return span{}, unix.EINVAL
	}
	if n > ToEnd-off {
		n = ToEnd - off
	}
	return span{off, off + n}, nil
}
