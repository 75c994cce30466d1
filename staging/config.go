package staging

import (
	"fmt"
	"math/bits"
	"time"

	"golang.org/x/sys/unix"
)

// Config is how staging is done. Zero fields mean the defaults.
type Config struct {
	// WindowSize is the range of a file that one window covers, in bytes: a
	// power of two from MinWindow to MaxWindow. Default 32 MiB.
	WindowSize int64
	// Memory bounds the touched pages of all windows, in bytes, at least two
	// windows' worth. Default 256 MiB, or two windows if that is more.
	Memory int64
	// Workers is how many windows are flushed at once. Default 4. Callers of
	// Flush, Sync and Close flush as well, besides them.
	Workers int
	// Age is how long bytes may stay staged before their flush begins.
	// Default 5 s; negative: as long as nothing else makes them leave.
	Age time.Duration
	// MaxPiece is the most that one call of the backing is given, in bytes, a
	// power of two of at least MinWindow. Default 16 MiB.
	MaxPiece int64
	// MinDirect is the least that is worth a direct write, in bytes; shorter
	// runs are written buffered. Default 1 MiB.
	MinDirect int64
	// Bypass is the least size, in bytes, of an aligned request that goes to
	// the backing file without being copied. Default 4 MiB: below that disks
	// gain more by larger extents than a copy costs. Negative: none.
	Bypass int64
	// ReadAhead is how many bytes, at most, are read past the page cache ahead
	// of a sequential reader of a large file: 0, the default, for none, or at
	// least MinReadAhead; 32 MiB suit a disk. The Backing has to be a
	// DirectReader.
	ReadAhead int64
	// RetryMin and RetryMax bound the pause before a failed flush is tried
	// again; it doubles with every failure. Default 100 ms and 5 s.
	RetryMin, RetryMax time.Duration
	// GiveUp is how long after CloseLater failing flushes are tried again
	// before what is left counts as lost. Default 30 s.
	GiveUp time.Duration

	// Poison, if not zero, fills buffers that hold no valid bytes, so that
	// tests can tell stale memory. It touches every page, uncounted.
	Poison byte

	heap  bool  // tests: memory that the race detector watches
	chunk int64 // tests: what is read ahead at once, in bytes
}

// Defaults of Config.
const (
	DefaultWindowSize = 32 << 20
	DefaultMemory     = 256 << 20
	DefaultWorkers    = 4
	DefaultAge        = 5 * time.Second
)

// Limits of Config.
const (
	MinWindow = 64 << 10
	MaxWindow = 1 << 30

	MinReadAhead = 2 * MinWindow
)

// mostChunk is how much is read ahead at once, if ReadAhead is at least twice
// that, in bytes. More makes a reader wait longer for the first byte and gains
// nothing on the disks that were measured.
const mostChunk = 2 << 20

// withDefaults fills in what is not set and refuses what cannot be.
func (c Config) withDefaults() (Config, error) {
	def(&c.WindowSize, DefaultWindowSize)
	def(&c.Memory, max(DefaultMemory, 2*c.WindowSize))
	def(&c.Workers, DefaultWorkers)
	def(&c.Age, DefaultAge)
	def(&c.MaxPiece, 16<<20)
	def(&c.MinDirect, 1<<20)
	def(&c.Bypass, 4<<20)
	def(&c.RetryMin, 100*time.Millisecond)
	def(&c.RetryMax, max(5*time.Second, c.RetryMin))
	def(&c.GiveUp, 30*time.Second)
	def(&c.chunk, min(mostChunk, c.WindowSize, largestPower(c.ReadAhead/2)))
	switch {
	case unix.Getpagesize() != PageSize:
		return c, fmt.Errorf("staging needs a kernel with pages of %d bytes, not %d", PageSize, unix.Getpagesize())
	case c.WindowSize < MinWindow || c.WindowSize > MaxWindow || !powerOfTwo(c.WindowSize):
		return c, fmt.Errorf("window size %d is not a power of two from %d to %d", c.WindowSize, MinWindow, MaxWindow)
	case c.Memory < 2*c.WindowSize:
		return c, fmt.Errorf("memory %d is below two windows of %d bytes", c.Memory, c.WindowSize)
	case c.Workers < 1:
		return c, fmt.Errorf("%d workers cannot flush", c.Workers)
	case c.MaxPiece < MinWindow || !powerOfTwo(c.MaxPiece):
		return c, fmt.Errorf("largest piece %d is not a power of two of at least %d", c.MaxPiece, MinWindow)
	case c.ReadAhead != 0 && c.ReadAhead < MinReadAhead:
		return c, fmt.Errorf("read-ahead of %d bytes is below %d", c.ReadAhead, MinReadAhead)
	case c.RetryMin < 0 || c.RetryMax < c.RetryMin:
		return c, fmt.Errorf("pauses from %v to %v before a retry make no sense", c.RetryMin, c.RetryMax)
	}
	return c, nil
}

func def[T comparable](v *T, value T) {
	var zero T
	if *v == zero {
		*v = value
	}
}

// largestPower is the largest power of two that is at most n, or 0.
func largestPower(n int64) int64 {
	if n <= 0 {
		return 0
	}
	return 1 << (bits.Len64(uint64(n)) - 1)
}

func powerOfTwo(n int64) bool { return n > 0 && n&(n-1) == 0 }
