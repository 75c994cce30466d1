package staging

import (
	"slices"
	"time"
)

// How long what was read ahead may be wrong about a file that somebody changes
// behind the File's back.
const (
	mostIdle = time.Second     // after the last use of a chunk
	mostOld  = 4 * time.Second // after it was read
)

// restraint is how long nothing is read ahead once the budget was short.
const restraint = 250 * time.Millisecond

// listChunk adds a chunk and sees to it that its age is watched.
func (s *Stager) listChunk(c *chunk) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.chunks = append(s.chunks, c)
	if len(s.chunks) == 1 && !s.closed {
		s.chunkClock.Reset(mostIdle / 4)
	}
}

func (s *Stager) unlistChunk(c *chunk) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.chunks, c); i >= 0 {
		s.chunks = slices.Delete(s.chunks, i, i+1)
	}
}

// expire drops the chunks that nobody has used for long, or that are old.
func (s *Stager) expire() {
	s.mu.Lock()
	list := slices.Clone(s.chunks)
	s.mu.Unlock()
	for _, c := range list {
		f := c.file
		f.mu.Lock()
		if !c.filling && (time.Since(c.used) >= mostIdle || time.Since(c.began) >= mostOld) {
			f.unused(c)
		}
		f.unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.chunks) > 0 && !s.closed {
		s.chunkClock.Reset(mostIdle / 4)
	}
}

// giveUp drops the oldest chunk, for writers who are short of memory, and
// reports whether there was one. Its pages may still be on their way.
func (s *Stager) giveUp() bool {
	s.mu.Lock()
	if len(s.chunks) == 0 {
		s.mu.Unlock()
		return false
	}
	c := s.chunks[0]
	s.mu.Unlock()
	s.pause()
	c.file.mu.Lock()
	c.file.kill(c)
	c.file.unlock()
	return true
}

// pause leaves the memory to writers for a while.
func (s *Stager) pause() { s.paused.Store(int64(time.Since(s.born) + restraint)) }

func (s *Stager) pausing() bool {
	until := s.paused.Load()
	return until > 0 && int64(time.Since(s.born)) < until
}
