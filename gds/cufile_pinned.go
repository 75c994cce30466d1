package gds

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"unsafe"
)

// pinnedMemory knows what memory is registered with cuFile, which wants to be
// given its beginning whenever a part is used.
type pinnedMemory struct {
	mu     sync.RWMutex
	pieces []pinnedPiece // by address, without overlaps
}

type pinnedPiece struct {
	base unsafe.Pointer
	n    int // bytes
}

func (p pinnedPiece) addr() uintptr { return uintptr(p.base) }

// Pin registers memory, so that the driver need not pin it for every request; it
// touches every page. The memory must be outside the Go heap, stay mapped until
// Unpin, and be pinned once at a time (EEXIST).
func (c *CuFile) Pin(mem []byte) error {
	piece := pinnedPiece{unsafe.Pointer(unsafe.SliceData(mem)), len(mem)}
	c.pinned.mu.Lock()
	defer c.pinned.mu.Unlock()
	if err := c.calls.pin(piece.base, piece.n); err != nil {
		return err
	}
	i, _ := c.pinned.search(piece.addr())
	c.pinned.pieces = slices.Insert(c.pinned.pieces, i, piece)
	return nil
}

// Unpin takes Pin of the same memory back. No request may be using it.
func (c *CuFile) Unpin(mem []byte) error {
	base := unsafe.Pointer(unsafe.SliceData(mem))
	c.pinned.mu.Lock()
	defer c.pinned.mu.Unlock()
	if err := c.calls.unpin(base); err != nil {
		return err
	}
	if i, found := c.pinned.search(uintptr(base)); found {
		c.pinned.pieces = slices.Delete(c.pinned.pieces, i, i+1)
	}
	return nil
}

// search finds the piece that begins at an address, or where it would be. The
// caller holds mu.
func (m *pinnedMemory) search(addr uintptr) (int, bool) {
	return slices.BinarySearchFunc(m.pieces, addr, func(p pinnedPiece, addr uintptr) int {
		return cmp.Compare(p.addr(), addr)
	})
}

// place is where p is for cuFile: the beginning of the piece that has all of it
// and the bytes before it there, or p itself.
func (m *pinnedMemory) place(p []byte) (base unsafe.Pointer, skip int64) {
	base = unsafe.Pointer(unsafe.SliceData(p))
	m.mu.RLock()
	defer m.mu.RUnlock()
	i, found := m.search(uintptr(base))
	if !found {
		i--
	}
	if i < 0 {
		return base, 0
	}
	// Pinned memory does not move, so distances of addresses stay true.
	before := int(uintptr(base) - m.pieces[i].addr())
	if before+len(p) > m.pieces[i].n {
		return base, 0
	}
	return m.pieces[i].base, int64(before)
}

func (m *pinnedMemory) len() int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return len(m.pieces)
}

// drop unpins everything.
func (m *pinnedMemory) drop(calls cufileCalls) (err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.pieces {
		err = errors.Join(err, calls.unpin(p.base))
	}
	m.pieces = nil
	return err
}
