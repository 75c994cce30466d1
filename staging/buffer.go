package staging

import (
	"math/bits"
	"unsafe"

	"golang.org/x/sys/unix"
)

// buffer is the memory of one window. It belongs to one window, or to the pool.
type buffer struct {
	mem     []byte
	touched []uint64 // a bit for each page that is resident
	pages   int64    // how many bits are set
	source  source
}

// source is where buffers come from: how many bytes each, and what tests want.
type source struct {
	size   int64
	poison byte // fills fresh and returned buffers if not zero
	heap   bool // use the Go heap, which the race detector watches
}

func (src source) make() (*buffer, error) {
	b := &buffer{touched: make([]uint64, (src.size/PageSize+63)/64), source: src}
	if src.heap {
		b.mem = alignedHeap(src.size)
	} else {
		mem, err := unix.Mmap(-1, 0, int(src.size), unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
		if err != nil {
			return nil, err
		}
		// A huge page would make one byte cost 2 MiB. Kernels built without
		// them refuse the call, and need it as little.
		_ = unix.Madvise(mem, unix.MADV_NOHUGEPAGE)
		b.mem = mem
	}
	b.fill(b.mem)
	return b, nil
}

func alignedHeap(size int64) []byte {
	mem := make([]byte, size+PageSize)
	// Safe because the address is only looked at, and heap objects don't move.
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(mem))) & (PageSize - 1)
	return mem[skip:][:size:size]
}

// fill poisons memory that holds no valid bytes, in tests.
func (b *buffer) fill(mem []byte) {
	if b.source.poison == 0 || len(mem) == 0 {
		return
	}
	mem[0] = b.source.poison
	for n := 1; n < len(mem); n *= 2 {
		copy(mem[n:], mem[:n])
	}
}

// free gives the memory back to the system; the buffer is not to be used again.
func (b *buffer) free() error {
	mem := b.mem
	b.mem = nil
	if b.source.heap {
		return nil
	}
	return unix.Munmap(mem)
}

// missing counts the pages of [lo, hi) that are not resident yet.
func (b *buffer) missing(lo, hi int64) (n int64) {
	first, last := lo/PageSize, (hi-1)/PageSize
	for i := first / 64; i <= last/64; i++ {
		n += int64(bits.OnesCount64(pageMask(i, first, last) &^ b.touched[i]))
	}
	return n
}

// touch notes that the pages of [lo, hi) are resident.
func (b *buffer) touch(lo, hi int64) {
	first, last := lo/PageSize, (hi-1)/PageSize
	for i := first / 64; i <= last/64; i++ {
		fresh := pageMask(i, first, last) &^ b.touched[i]
		b.touched[i] |= fresh
		b.pages += int64(bits.OnesCount64(fresh))
	}
}

// pageMask has the bits of pages first to last that are in word i.
func pageMask(i, first, last int64) uint64 {
	m := ^uint64(0)
	if i == first/64 {
		m <<= uint(first % 64)
	}
	if i == last/64 {
		m &= ^uint64(0) >> uint(63-last%64)
	}
	return m
}

// spare counts resident pages without a byte of keep.
func (b *buffer) spare(keep spans) int64 {
	n := b.pages
	next := int64(0) // pages below are accounted for
	for _, r := range keep {
		first, last := max(r.lo/PageSize, next), (r.hi-1)/PageSize
		n -= max(last-first+1, 0)
		next = max(next, last+1)
	}
	return n
}

// trim gives the resident pages without a byte of keep back to the system, and
// returns how many those were.
func (b *buffer) trim(keep spans) int64 {
	before := b.pages
	next := int64(0)
	for _, r := range keep {
		b.discard(next, r.lo/PageSize)
		next = max(next, (r.hi-1)/PageSize+1)
	}
	b.discard(next, int64(len(b.mem))/PageSize)
	return before - b.pages
}

// discard drops the pages first to end-1, as far as the system lets it.
func (b *buffer) discard(first, end int64) {
	if first >= end {
		return
	}
	n := end - first - b.missing(first*PageSize, end*PageSize)
	if n == 0 {
		return
	}
	mem := b.mem[first*PageSize : end*PageSize]
	if !b.source.heap && unix.Madvise(mem, unix.MADV_DONTNEED) != nil {
		return // still resident, and counted as such
	}
	b.fill(mem)
	for i := first / 64; i <= (end-1)/64; i++ {
		b.touched[i] &^= pageMask(i, first, end-1)
	}
	b.pages -= n
}
