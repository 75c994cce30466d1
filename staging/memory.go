package staging

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// errSpent says that the budget is spent and waiting would not help, since
// flushes fail.
var errSpent = errors.New("staging memory is spent and flushes fail")

// maxCold bounds the pooled buffers without resident pages; they cost address
// space and save a system call.
const maxCold = 64

// memory is the pool of buffers and the budget of resident pages. Its lock is
// the innermost: nothing else is locked under it.
type memory struct {
	limit  int64 // pages
	source source

	used   atomic.Int64 // resident or promised pages; at most limit
	queued atomic.Int32 // waiters; while there are any, nobody overtakes them

	mu     sync.Mutex
	warm   []*buffer // guarded by mu; pooled, with resident pages
	cold   []*buffer // guarded by mu; pooled, without any
	pooled int64     // guarded by mu; resident pages of warm
	queue  []*waiter // guarded by mu; in order of arrival
}

// waiter is a writer in the queue.
type waiter struct {
	pages  int64 // it needs at most
	buffer bool  // a pooled buffer would do as well
	ready  chan struct{}
	got    grant // guarded by memory.mu until ready is closed
	err    error // likewise
}

// grant is what a writer got by waiting: a buffer, or pages promised to it.
type grant struct {
	buf   *buffer
	pages int64
}

// reserve takes n pages from the budget if they are there and nobody waits.
func (m *memory) reserve(n int64) bool {
	if m.queued.Load() > 0 {
		return n == 0
	}
	for {
		used := m.used.Load()
		if used+n > m.limit {
			return n == 0
		}
		if m.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// unreserve gives back n pages that are not resident any more, or never were.
func (m *memory) unreserve(n int64) {
	if n == 0 {
		return
	}
	m.used.Add(-n)
	if m.queued.Load() > 0 {
		m.mu.Lock()
		m.serve()
		m.mu.Unlock()
	}
}

// takeWarm returns a pooled buffer with resident pages, which its taker may
// use without reserving them, or nil.
func (m *memory) takeWarm() *buffer {
	if m.queued.Load() > 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	b := pop(&m.warm)
	if b != nil {
		m.pooled -= b.pages
	}
	return b
}

// takeCold returns a buffer without resident pages.
func (m *memory) takeCold() (*buffer, error) {
	m.mu.Lock()
	b := pop(&m.cold)
	m.mu.Unlock()
	if b != nil {
		return b, nil
	}
	return m.source.make()
}

// hasSpare is spare.
func (m *memory) hasSpare(n int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.spare(n)
}

// spare reports whether the budget has n bytes and a quarter of it would be left
// for writers then. mu is held.
func (m *memory) spare(n int64) bool {
	return m.limit-m.used.Load()+m.pooled-n/PageSize >= m.limit/4
}

// takeSpare returns a buffer of which n bytes, whole pages, are paid for, and
// hardly more, or nil if there are none to spare.
func (m *memory) takeSpare(n int64) *buffer {
	b, need, ok := m.paySpare(n)
	if !ok {
		return nil
	}
	if b == nil {
		var err error
		if b, err = m.takeCold(); err != nil {
			m.unreserve(need)
			return nil
		}
	}
	b.touch(0, n)
	if keep := (spans{{0, n}}); b.spare(keep) >= worthTrimming {
		m.unreserve(b.trim(keep))
	}
	return b
}

// paySpare pays for n bytes, if they are spare: with the pages of a pooled
// buffer, if there is one, and need pages besides.
func (m *memory) paySpare(n int64) (b *buffer, need int64, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.spare(n) {
		return nil, 0, false
	}
	need = n / PageSize
	if b = pop(&m.warm); b != nil {
		m.pooled -= b.pages
		need = b.missing(0, n)
	}
	for m.used.Load()+need > m.limit && m.shrink() {
	}
	if m.reserve(need) {
		return b, need, true
	}
	if b != nil {
		m.pool(b)
	}
	return nil, 0, false
}

func pop(list *[]*buffer) *buffer {
	n := len(*list)
	if n == 0 {
		return nil
	}
	b := (*list)[n-1]
	(*list)[n-1] = nil
	*list = (*list)[:n-1]
	return b
}

// give returns a buffer to the pool, as it is.
func (m *memory) give(b *buffer) {
	b.fill(b.mem)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pool(b)
	m.serve()
}

// pool files b. mu is held.
func (m *memory) pool(b *buffer) {
	switch {
	case b.pages > 0:
		m.warm = append(m.warm, b)
		m.pooled += b.pages
	case len(m.cold) < maxCold:
		m.cold = append(m.cold, b)
	default:
		_ = b.free() // an unmapping that fails leaves a mapping without pages
	}
}

// serve gives the waiters, first come first, what there is. mu is held.
func (m *memory) serve() {
	for len(m.queue) > 0 {
		w := m.queue[0]
		if n := len(m.warm); n > 0 && w.buffer && m.warm[n-1].pages >= w.pages {
			b := pop(&m.warm) // spares it the faults, and the system the pages
			m.pooled -= b.pages
			m.finish(0, grant{buf: b}, nil)
			continue
		}
		for m.used.Load()+w.pages > m.limit && m.shrink() {
		}
		if m.used.Add(w.pages) > m.limit {
			m.used.Add(-w.pages)
			return
		}
		m.finish(0, grant{pages: w.pages}, nil)
	}
}

// shrink makes one pooled buffer give its pages back to the system, and
// reports whether there was one. mu is held, for the milliseconds that this
// takes, so that its pages are not missing from all counts meanwhile.
func (m *memory) shrink() bool {
	b := pop(&m.warm)
	if b == nil {
		return false
	}
	m.pooled -= b.pages
	freed := b.trim(nil)
	m.used.Add(-freed)
	if b.pages > 0 {
		// The system keeps the pages. Unmapping is the other way.
		m.used.Add(-b.pages)
		_ = b.free()
		return true
	}
	m.pool(b)
	return true
}

// finish lets waiter i go. mu is held.
func (m *memory) finish(i int, g grant, err error) {
	w := m.queue[i]
	m.queue = slices.Delete(m.queue, i, i+1)
	m.queued.Add(-1)
	w.got, w.err = g, err
	close(w.ready)
}

// enqueue puts a writer into the queue. It may be served at once.
func (m *memory) enqueue(pages int64, buffer bool) *waiter {
	w := &waiter{pages: pages, buffer: buffer, ready: make(chan struct{})}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.queue = append(m.queue, w)
	m.queued.Add(1)
	m.serve()
	return w
}

// wait returns what w got, errSpent, or EINTR once cancel is closed.
func (m *memory) wait(w *waiter, cancel <-chan struct{}) (grant, error) {
	select {
	case <-w.ready:
		return w.got, w.err
	case <-cancel:
	}
	m.mu.Lock()
	if i := slices.Index(m.queue, w); i >= 0 {
		m.finish(i, grant{}, unix.EINTR)
		m.serve() // the next one may need less
	}
	m.mu.Unlock()
	return w.got, w.err // served meanwhile, perhaps
}

// release gives back what is left of a grant.
func (m *memory) release(g *grant) {
	if g.buf != nil {
		m.give(g.buf)
	}
	m.unreserve(g.pages)
	*g = grant{}
}

// refuse sends all waiters away with errSpent.
func (m *memory) refuse() {
	if m.queued.Load() == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.queue) > 0 {
		m.finish(0, grant{}, errSpent)
	}
}

// short reports whether waiters need more pages than are free, pooled, or in
// coming, which are those being flushed.
func (m *memory) short(coming int64) bool {
	if m.queued.Load() == 0 {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	need := int64(0)
	for _, w := range m.queue {
		need += w.pages
	}
	return need > m.limit-m.used.Load()+m.pooled+coming
}

// freePool unmaps the pooled buffers.
func (m *memory) freePool() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, list := range []*[]*buffer{&m.warm, &m.cold} {
		for b := pop(list); b != nil; b = pop(list) {
			m.used.Add(-b.pages)
			m.pooled -= b.pages
			errs = append(errs, b.free())
		}
	}
	return errors.Join(errs...)
}
