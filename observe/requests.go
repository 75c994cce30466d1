// Package observe counts what the filesystem is asked for, on the hot path.
package observe

import "sync/atomic"

// Requests counts READ and WRITE requests by their size. The zero value is
// ready. All methods may be called by several goroutines at once, and on a
// nil *Requests, which counts nothing. A Requests must not be copied after its
// first use.
//
// Counts are exact: no request is lost or counted twice. So are sizes, for at
// least the first 4096 distinct ones in each direction; any further size is
// counted under the next power of two, so that from then on such an entry may
// also stand for smaller requests.
//
// Counting takes no lock. It allocates once per direction, about 130 KiB at
// the first request after the start or a Reset.
type Requests struct {
	reads, writes atomic.Pointer[table]
}

// Size is how often one request size was seen.
type Size struct {
	Bytes int
	Count uint64
}

// Read counts one READ request for size bytes (what was asked for, not what
// came back). A negative size, which no request has, is not counted.
func (r *Requests) Read(size int) {
	if r != nil {
		count(&r.reads, size)
	}
}

// Write counts one WRITE request of size bytes. A negative size is not
// counted.
func (r *Requests) Write(size int) {
	if r != nil {
		count(&r.writes, size)
	}
}

// Reads returns the READ requests so far, sorted by Bytes, each size once. Of
// the requests that are counted meanwhile, any may be in it or not. The slice
// is the caller's.
func (r *Requests) Reads() []Size {
	if r == nil {
		return nil
	}
	return r.reads.Load().sizes()
}

// Writes returns the WRITE requests so far, as Reads does.
func (r *Requests) Writes() []Size {
	if r == nil {
		return nil
	}
	return r.writes.Load().sizes()
}

// Reset forgets everything counted so far. A request that is being counted
// meanwhile is either forgotten too or is among the first of the new count.
func (r *Requests) Reset() {
	if r == nil {
		return
	}
	// Fresh tables instead of zeros: sizes that are no longer seen must not
	// take the room of new ones.
	r.reads.Store(nil)
	r.writes.Store(nil)
}

func count(p *atomic.Pointer[table], size int) {
	if size < 0 {
		return
	}
	t := p.Load()
	if t == nil {
		t = install(p)
	}
	t.add(size)
}

// install gives p a table, or returns the one that somebody else gave it.
func install(p *atomic.Pointer[table]) *table {
	fresh := new(table)
	for {
		if p.CompareAndSwap(nil, fresh) {
			return fresh
		}
		// nil again if a Reset came between.
		if t := p.Load(); t != nil {
			return t
		}
	}
}
