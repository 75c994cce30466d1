package fs

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"tunefs/policy"
	"tunefs/staging"
)

// Backing is what the data of one open file is written to, and what has to be
// given back for it.
type Backing interface {
	staging.DirectReader
	// Close is called once, after all other methods have returned. The
	// descriptor that the Backing was made of stays open until then.
	Close() error
}

// Staging is how a mount in staged mode gathers writes.
type Staging struct {
	// Stager holds the windows; nil leaves gathering to the kernel's page
	// cache. The tree closes it at the end of the mount.
	Stager *staging.Stager
	// Open makes a Backing of a regular file that is open for reading, and for
	// writing too unless it is only read. Its error is that of the program's
	// open(2).
	Open func(fd int) (Backing, error)
	// FlushOnClose has a program's close(2) wait until the file is flushed,
	// and tells it of errors.
	FlushOnClose bool
	// DirectReads has files that are only read go through the Stager as well,
	// for what that reads ahead.
	DirectReads bool
}

// stage is what is staged of an inode: from the first open for writing until
// there is no writer and nothing staged any more. With Staging.DirectReads it
// may be there for readers alone.
type stage struct {
	*staging.File
	in      *inode
	file    *file // whose descriptor the data goes through; a reference is held
	backing Backing

	// plain says that the file has no capabilities that a write takes away.
	plain atomic.Bool
	// wrote says that a member that has left changed the file.
	wrote atomic.Bool

	refs    counted // the File's life and requests at work; with the last all is given back
	ended   sync.Once
	life    sync.Mutex // over members and the end that their number decides
	members int        // guarded by life; open handles that have joined
}

// patient is for waits that no signal ends: a program on a disk's own
// filesystem sees no EINTR from these calls either, and FUSE tells of signals
// that a program handles as of those that end it. The waits end by themselves,
// with success or an error.
var patient <-chan struct{} // never closed

func (s *stage) release(t *Tree) {
	if !s.refs.drop() {
		return
	}
	if err := s.backing.Close(); err != nil {
		t.Log.Error("closing a staged file", "path", t.path(s.in), "err", err)
	}
	s.file.release()
}

// staged returns the stage of in with a reference for the caller, or nil if
// there is none, or none any more: then the backing file alone has all the data.
func (in *inode) staged() *stage {
	if s := in.stage.Load(); s != nil && s.refs.acquire() {
		return s
	}
	return nil
}

// ours reports whether the kernel knows the file better than its backing file
// does: the mount has it open for writing, or data of it is staged.
func (in *inode) ours() bool {
	s := in.stage.Load()
	return s != nil && s.StagedBytes() > 0 || in.isWritten()
}

// stages reports whether a handle, for a file in the mode io, joins a stage.
func (t *Tree) stages(f *file, io policy.IO) bool {
	return io == policy.Staged && t.Staging.Stager != nil && (f.writes() || t.Staging.DirectReads)
}

// joinStage makes f a member of its inode's stage.
func (t *Tree) joinStage(f *file) error {
	for {
		s := f.in.stage.Load()
		switch {
		case s == nil:
			fresh, err := t.newStage(f)
			if err != nil {
				return err
			}
			if f.in.stage.CompareAndSwap(nil, fresh) {
				f.stage = fresh
				return nil
			}
			t.dropStage(fresh)
		case f.writes() && !s.file.writes():
			t.dropStage(s) // its readers go on without
		case s.join():
			f.stage = s
			return nil
		default: // it has ended, and is about to say so
			f.in.stage.CompareAndSwap(s, nil)
		}
	}
}

func (s *stage) join() bool {
	s.life.Lock()
	defer s.life.Unlock()
	if !s.Reopen() {
		return false
	}
	s.members++
	return true
}

// dropStage ends a stage in which nothing is staged.
func (t *Tree) dropStage(s *stage) {
	s.Drop()
	t.endStage(s, nil)
}

// newStage has one member, f.
func (t *Tree) newStage(f *file) (*stage, error) {
	b, err := t.Staging.Open(f.fd)
	if err != nil {
		return nil, err
	}
	s := &stage{in: f.in, file: f, backing: b, members: 1}
	s.refs.start(1)
	f.refs.take()
	s.File = t.Staging.Stager.Open(timekeeper{b, s})
	return s, nil
}

// leaveStage takes one member off. Without any, what is staged leaves in its
// own time.
func (t *Tree) leaveStage(s *stage) {
	s.life.Lock()
	defer s.life.Unlock()
	s.members--
	if s.members == 0 {
		s.CloseLater(func(lost []staging.Lost) { t.endStage(s, lost) })
	}
}

// endStage gives a stage up that nothing uses any more, and reports what could
// not be written of it: no program is left to be told.
func (t *Tree) endStage(s *stage, lost []staging.Lost) {
	s.ended.Do(func() {
		for _, l := range lost {
			t.lose(s.in, l.Off, l.Len, l.Err)
		}
		if s.wrote.Load() {
			s.in.cacheIs(s.file.fd)
		}
		s.in.stage.CompareAndSwap(s, nil)
		s.release(t)
		t.forget(s.in, 0) // which the stage has kept known
	})
}

// dropUnreachable drops what is staged of a file that has no name left and is
// not known to the kernel either, so that nobody can ever read it.
func (t *Tree) dropUnreachable(in *inode) {
	if in.stage.Load() == nil || t.inodes.wanted(in) {
		return
	}
	s := in.staged()
	if s == nil {
		return
	}
	defer s.release(t)
	if s.nameless() {
		s.Drop()
	}
}

// nameless reports whether the file has no name any more.
func (s *stage) nameless() bool {
	var st unix.Stat_t
	return unix.Fstat(s.file.fd, &st) == nil && st.Nlink == 0
}

// write stages p at off, or has it written where that is better; past says
// that the program wants it in the file.
func (s *stage) write(p []byte, off int64, past bool) (int, error) {
	if !s.plain.Load() {
		// The flush would take them off, but late.
		switch err := unix.Fremovexattr(s.file.fd, capability); err {
		case nil, unix.ENODATA, unix.ENOTSUP, unix.EPERM: // EPERM: only root can have set it
		default:
			return 0, err
		}
		s.plain.Store(true)
	}
	if past {
		return s.WriteThrough(p, off, patient)
	}
	return s.WriteAt(p, off, patient)
}

// flushStage is a program's close.
func (t *Tree) flushStage(s *stage) error {
	switch {
	case !t.Staging.FlushOnClose:
		return s.Err()
	case !s.in.placed() && s.nameless():
		return nil // only this mount can read it, and sees what is staged
	}
	return s.Flush(0, staging.ToEnd, patient)
}

// overlay makes st, the attributes of a file, what they will be once it is
// flushed; first says that the kernel may get them for a new inode, whose size
// it takes from them, as it does not later.
func (t *Tree) overlay(in *inode, st *unix.Statx_t, first bool) {
	if !t.writeback {
		return
	}
	if s := in.staged(); s != nil {
		s.overlay(st, first)
		s.release(t)
	}
	if st.Blocks == 0 && in.isWritten() {
		// The kernel may hold data that we don't know of. Programs take a file
		// without blocks for one without data.
		st.Blocks = 1
	}
}

func (s *stage) overlay(st *unix.Statx_t, first bool) {
	end, bytes := uint64(s.End()), uint64(s.StagedBytes())
	if first {
		// Anew, and after the end: a flush moves bytes from the one to the other.
		if statFD(s.file.fd, st) != nil {
			return // st is right but for what happened since
		}
	}
	if end > st.Size {
		const unit = 512 // of st_blocks
		st.Blocks += (min(bytes, end-st.Size) + unit - 1) / unit
		st.Size = end
	}
	if s.in.belief.set.Load() {
		mtime := unix.NsecToTimespec(s.in.belief.mtime.Load())
		st.Mtime.Sec, st.Mtime.Nsec = mtime.Sec, uint32(mtime.Nsec)
	}
}

// barrier calls do, which reads or changes the backing file itself, when what
// is staged of the n bytes at off is in it. do must not use the stage.
func (t *Tree) barrier(in *inode, off, n int64, do func() error) error {
	s := in.staged()
	if s == nil {
		return do()
	}
	defer s.release(t)
	return s.Barrier(off, n, patient, do)
}

// settle flushes what is staged of in, for changes that a later flush would
// undo: the backing kernel takes privileges off a file that is written to.
func (t *Tree) settle(in *inode) error {
	s := in.staged()
	if s == nil {
		return nil
	}
	defer s.release(t)
	return s.Flush(0, staging.ToEnd, patient)
}

// timekeeper is a Backing whose writes leave the mtime as the kernel has it.
type timekeeper struct {
	Backing
	s *stage
}

// WriteDirect is part of staging.Backing.
func (k timekeeper) WriteDirect(p []byte, off int64) (int, error) {
	n, err := k.Backing.WriteDirect(p, off)
	k.keep()
	return n, err
}

// WriteBuffered is part of staging.Backing.
func (k timekeeper) WriteBuffered(p []byte, off int64) (int, error) {
	n, err := k.Backing.WriteBuffered(p, off)
	k.keep()
	return n, err
}

func (k timekeeper) keep() { k.s.in.belief.restore(k.s.file.fd) }
