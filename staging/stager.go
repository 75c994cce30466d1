package staging

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// Stager owns the memory and the workers that files share. Its methods may be
// called from several goroutines at once.
//
// LOCK ORDER: File.mu, then Stager.mu, then memory.mu. No two files are locked
// at once, and none of the locks is held while the backing is called.
type Stager struct {
	cfg Config
	mem memory

	coming atomic.Int64 // resident pages of queued and flushing windows
	failed atomic.Int64 // windows whose flush failed
	count  counters

	mu     sync.Mutex
	wake   sync.Cond          // on mu; workers wait for queue or closing
	queue  []*window          // guarded by mu; to be flushed, some of it already is by others
	active activeList         // guarded by mu
	files  map[*File]struct{} // guarded by mu; open
	closed bool               // guarded by mu
	clock  *time.Timer        // nil without Config.Age
	ticks  bool               // guarded by mu; clock is set
	wg     sync.WaitGroup

	chunks     []*chunk     // guarded by mu; read ahead, of all files, in the order they began in
	chunkClock *time.Timer  // set while there are any
	paused     atomic.Int64 // nanoseconds after born until which nothing is read ahead
	born       time.Time
}

// New starts a stager; Close ends it. The error says what is wrong with c.
func New(c Config) (*Stager, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Stager{cfg: c, files: make(map[*File]struct{}), born: time.Now()}
	s.mem.limit = c.Memory / PageSize
	s.mem.source = source{size: c.WindowSize, poison: c.Poison, heap: c.heap}
	s.wake.L = &s.mu
	if c.Age > 0 {
		s.clock = time.AfterFunc(time.Hour, s.tick)
		s.clock.Stop()
	}
	s.chunkClock = time.AfterFunc(time.Hour, s.expire)
	s.chunkClock.Stop()
	for range c.Workers {
		s.wg.Go(s.work)
	}
	return s, nil
}

// Config is the configuration in force, defaults filled in.
func (s *Stager) Config() Config { return s.cfg }

// FlushAll flushes all files, as at the end of a mount, without syncing them.
// It returns the ranges that could not be flushed, which stay staged, with the
// reasons; closing cancel (nil: never) ends the waiting, not the flushing.
func (s *Stager) FlushAll(cancel <-chan struct{}) []Lost {
	files := s.openFiles()
	for _, f := range files {
		f.FlushAsync()
	}
	var lost []Lost
	for _, f := range files {
		if err := f.flush(all, cancel); err != nil {
			f.mu.Lock()
			lost = append(lost, f.remains(err)...)
			f.unlock()
		}
	}
	return lost
}

func (s *Stager) openFiles() []*File {
	s.mu.Lock()
	defer s.mu.Unlock()
	files := make([]*File, 0, len(s.files))
	for f := range s.files {
		files = append(files, f)
	}
	return files
}

// Close ends the workers and frees the memory. What files that are still open
// have staged is flushed first, and returned if that fails; they are closed.
func (s *Stager) Close() ([]Lost, error) {
	var lost []Lost
	s.FlushAll(nil) // all at once
	for _, f := range s.openFiles() {
		lost = append(lost, f.Close(nil)...)
	}
	s.mu.Lock()
	s.closed = true
	if s.clock != nil {
		s.clock.Stop()
	}
	s.chunkClock.Stop()
	s.wake.Broadcast()
	s.mu.Unlock()
	s.wg.Wait()
	err := s.mem.freePool()
	if used := s.mem.used.Load(); used != 0 && err == nil {
		err = errors.New("staging memory is still in use after close")
	}
	return lost, err
}

// work flushes what is queued.
func (s *Stager) work() {
	for {
		s.mu.Lock()
		for len(s.queue) == 0 && !s.closed {
			s.wake.Wait()
		}
		if len(s.queue) == 0 {
			s.mu.Unlock()
			return
		}
		w := s.queue[0]
		s.queue[0] = nil
		s.queue = s.queue[1:]
		s.mu.Unlock()
		w.file.mu.Lock()
		if w.state == queued { // else somebody was faster
			w.file.run(w)
		}
		w.file.unlock()
		s.relieve()
	}
}

// push hands a queued window to the workers.
func (s *Stager) push(w *window) {
	s.mu.Lock()
	s.queue = append(s.queue, w)
	s.wake.Signal()
	s.mu.Unlock()
}

// list adds a window to the active ones and sees to it that its age is watched.
func (s *Stager) list(w *window) {
	w.opened = time.Now()
	s.mu.Lock()
	s.active.add(w)
	if s.clock != nil && !s.ticks && !s.closed {
		s.ticks = true
		s.clock.Reset(s.tickEvery())
	}
	s.mu.Unlock()
}

func (s *Stager) unlist(w *window) {
	s.mu.Lock()
	s.active.remove(w)
	s.mu.Unlock()
}

func (s *Stager) tickEvery() time.Duration { return max(s.cfg.Age/4, time.Millisecond) }

// tick seals what is old.
func (s *Stager) tick() {
	for {
		w, f := s.oldest()
		if w == nil || !f.sealIf(w, func() bool { return time.Since(w.opened) >= s.cfg.Age }) {
			break
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ticks = s.active.first != nil && !s.closed
	if s.ticks {
		s.clock.Reset(s.tickEvery())
	}
}

// oldest is the active window that was opened first, and its file.
func (s *Stager) oldest() (*window, *File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.active.first; w != nil {
		return w, w.file
	}
	return nil, nil
}

// worthTrimming is how many spare pages make an active window give them up
// before it is sealed.
const worthTrimming = 64

// relieve gives up what was read ahead until waiters have enough pages, and then
// makes active windows leave, the oldest first, until they can hope for enough.
// No lock is held.
func (s *Stager) relieve() {
	for s.mem.short(0) && s.giveUp() {
	}
	for s.mem.short(s.coming.Load()) {
		w, f := s.oldest()
		if w == nil {
			return
		}
		f.mu.Lock()
		freed := int64(0)
		if w.state == active && w.buf.spare(w.valid) >= worthTrimming {
			freed = w.buf.trim(w.valid)
		}
		if freed == 0 && w.state == active {
			f.seal(w, s.push)
		}
		f.unlock()
		s.mem.unreserve(freed)
	}
}
