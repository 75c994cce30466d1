package fs

import "sync/atomic"

// counted is a number of references. What it counts for is given back with the
// last, and can't be had again.
type counted struct{ n atomic.Int32 }

// start begins with n references.
func (c *counted) start(n int32) { c.n.Store(n) }

// take takes one more for somebody who has one.
func (c *counted) take() { c.n.Add(1) }

// acquire takes a reference unless the last is gone.
func (c *counted) acquire() bool {
	for {
		n := c.n.Load()
		if n == 0 {
			return false
		}
		if c.n.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// drop gives a reference back and reports whether it was the last.
func (c *counted) drop() bool { return c.n.Add(-1) == 0 }

// dropOnly gives a reference back if it is the last, and reports whether it was.
func (c *counted) dropOnly() bool { return c.n.CompareAndSwap(1, 0) }
