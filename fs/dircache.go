package fs

import (
	"sync"
	"sync/atomic"
)

// dirFD is a shared O_PATH descriptor of a directory. The cache holds one
// reference; the descriptor is closed with the last.
type dirFD struct {
	fd   int
	refs counted
	hot  atomic.Bool // used since the clock's hand came by
	in   *inode
	slot int // guarded by dirCache.mu; -1 when not in the cache
}

// acquire takes a reference unless the descriptor is closed already.
func (d *dirFD) acquire() bool {
	if !d.refs.acquire() {
		return false
	}
	if !d.hot.Load() {
		d.hot.Store(true)
	}
	return true
}

func (d *dirFD) release() {
	if d.refs.drop() {
		close_(d.fd)
	}
}

// evict closes the descriptor if only the cache refers to it.
func (d *dirFD) evict() bool {
	if !d.refs.dropOnly() {
		return false
	}
	d.in.dir.CompareAndSwap(d, nil)
	close_(d.fd)
	return true
}

// dirCache bounds the open directory descriptors, by the clock algorithm. What
// is in use stays, so the bound can be passed for the length of a request.
type dirCache struct {
	limit int

	mu   sync.Mutex
	ring []*dirFD
	hand int
}

// add puts d, of which the cache takes over one reference, into the cache.
func (c *dirCache) add(d *dirFD) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.ring) >= c.limit && c.evictOne() {
	}
	d.slot = len(c.ring)
	c.ring = append(c.ring, d)
}

// remove takes d out and gives up the cache's reference.
func (c *dirCache) remove(d *dirFD) {
	c.mu.Lock()
	in := d.slot >= 0 && d.slot < len(c.ring) && c.ring[d.slot] == d
	if in {
		c.take(d.slot)
	}
	c.mu.Unlock()
	if in {
		d.release()
	}
}

// shrink closes up to half of the cached descriptors that nobody uses; it
// reports whether there was any.
func (c *dirCache) shrink() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	any := false
	for n := (len(c.ring) + 1) / 2; n > 0 && c.evictOne(); n-- {
		any = true
	}
	return any
}

// evictOne needs mu. It gives every descriptor one second chance.
func (c *dirCache) evictOne() bool {
	for n := 2 * len(c.ring); n > 0; n-- {
		c.hand %= len(c.ring)
		d := c.ring[c.hand]
		if d.hot.Swap(false) || !d.evict() {
			c.hand++
			continue
		}
		c.take(c.hand)
		return true
	}
	return false
}

// take needs mu. The last entry moves into the free slot.
func (c *dirCache) take(slot int) {
	last := len(c.ring) - 1
	c.ring[slot].slot = -1
	if slot != last {
		c.ring[slot] = c.ring[last]
		c.ring[slot].slot = slot
	}
	c.ring[last] = nil
	c.ring = c.ring[:last]
}
