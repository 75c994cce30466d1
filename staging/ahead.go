package staging

import "time"

// ahead is what is read ahead of one file. Guarded by File.mu.
type ahead struct {
	src      DirectReader
	size     int64 // of a chunk, in bytes
	most     int64 // chunks ahead of a stream
	least    int64 // bytes that a stretch of a stream has at least
	off      bool  // the file cannot be read directly
	requests uint64
	streams  [streams]stream
	chunks   map[int64]*chunk // those alive, by index: offset over size
	users    int              // of all chunks
}

// chunk is an aligned range of a file that is, or is being, read ahead. Guarded
// by File.mu; the memory of one that is filled changes no more.
type chunk struct {
	span
	file   *File
	reader *stream // whom it was read for; another one may have that place now

	filling bool
	filled  chan struct{} // closed then
	content               // once it is filled
	dead    bool          // not for requests that come now; its memory goes with its last user
	users   int           // requests that copy from it, or wait to
	served  int64         // bytes that requests got from it
	began   time.Time     // to be filled
	used    time.Time     // last
}

// content is what came of reading a chunk.
type content struct {
	buf   *buffer
	n     int64 // bytes that were read, from the start of the range
	short bool  // the file ended there
}

// newAhead returns nil if b cannot be read ahead.
func (s *Stager) newAhead(b Backing) *ahead {
	src, ok := b.(DirectReader)
	if !ok || s.cfg.ReadAhead == 0 {
		return nil
	}
	a := &ahead{src: src, size: s.cfg.chunk, most: s.cfg.ReadAhead / s.cfg.chunk}
	a.least = a.fewest()
	a.chunks = make(map[int64]*chunk)
	return a
}

// fewest and a multiple of it bound least: the more was read ahead for nothing,
// the longer a reader has to be sequential first.
func (a *ahead) fewest() int64 { return a.size / 2 }

// taken is what one request has of a chunk.
type taken struct {
	*chunk
	wait   bool  // it is being filled
	usable int64 // bytes from its start
	served int64
}

// take notes a request for r, has read ahead what is likely to follow, and adds
// to list the chunks that have, or will have, bytes of r, in order. It needs mu.
func (f *File) take(r span, list []taken) []taken {
	a := f.ahead
	s := a.note(r)
	f.plan(s)
	for i := r.lo / a.size; i <= (r.hi-1)/a.size && len(a.chunks) > 0; i++ {
		c := a.chunks[i]
		if c == nil || !c.filling && c.n == 0 {
			continue
		}
		if c.filling && c.users == 0 { // the reader has caught up with the disk
			s.depth = min(2*s.depth, a.most)
		}
		c.users++
		a.users++
		list = append(list, taken{chunk: c, wait: c.filling, usable: c.n})
	}
	return list
}

// await waits for what is being filled. Chunks that died meanwhile may be older
// than what was written since. This request began before, and might show that;
// the backing file is as good, and fresher.
func (f *File) await(list []taken) {
	waited := false
	for i := range list {
		if list[i].wait {
			<-list[i].filled
			waited = true
		}
	}
	if !waited {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range list {
		if t := &list[i]; t.wait && !t.dead {
			t.usable = t.n
		}
	}
}

// copyAt copies what the chunk has at off.
func (t *taken) copyAt(p []byte, off int64) int {
	if off < t.lo || off >= t.lo+t.usable {
		return 0
	}
	n := copy(p, t.buf.mem[off-t.lo:t.usable])
	t.served += int64(n)
	return n
}

// untake ends the use of what was taken. Chunks that are used up go.
func (f *File) untake(list []taken) {
	if len(list) == 0 {
		return
	}
	now := time.Now()
	f.mu.Lock()
	defer f.unlock()
	a := f.ahead
	for i := range list {
		c := list[i].chunk
		c.users--
		a.users--
		c.served += list[i].served
		c.used = now
		f.s.count.aheadServed.Add(list[i].served)
		if c.n > 0 && c.served >= c.n {
			a.least = max(a.least/2, a.fewest())
			f.kill(c)
		}
		f.reclaim(c)
	}
	if a.users == 0 {
		f.notify()
	}
}

// outdate makes what is read ahead of r, or is being, unusable for requests
// that come from now on. It needs mu.
func (f *File) outdate(r span) {
	if f.ahead == nil {
		return
	}
	for _, c := range f.ahead.chunks {
		if c.overlaps(r) {
			f.kill(c)
		}
	}
}

// unused drops a chunk that its reader does not ask for. It needs mu.
func (f *File) unused(c *chunk) {
	if a := f.ahead; c.n > 0 && c.served == 0 && !c.dead {
		a.least = min(2*a.least, 32*a.fewest())
	}
	f.kill(c)
}

// kill takes a chunk away from requests that come from now on. It needs mu.
func (f *File) kill(c *chunk) {
	if c.dead {
		return
	}
	c.dead = true
	delete(f.ahead.chunks, c.lo/f.ahead.size)
	f.s.unlistChunk(c)
	f.reclaim(c)
}

// reclaim returns the memory of a chunk that is dead and has no users. It needs
// mu.
func (f *File) reclaim(c *chunk) {
	if !c.dead || c.filling || c.users > 0 || c.buf == nil {
		return
	}
	f.s.count.aheadWasted.Add(max(c.n-c.served, 0))
	f.s.mem.give(c.buf)
	c.buf = nil
}

// copying reports whether requests use what was read ahead. It needs mu.
func (f *File) copying() bool { return f.ahead != nil && f.ahead.users > 0 }

// awaitReaders waits for the requests that do, which end by themselves.
func (f *File) awaitReaders() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.copying() {
		_ = f.wait(nil)
	}
}
