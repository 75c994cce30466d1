package staging

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fake is a backing file in memory. It checks what it is given, and fails,
// shortens and delays what its hooks say.
type fake struct {
	tb    testing.TB
	align Alignment
	check byte // must never be written; 0 for no check

	mu      sync.Mutex
	data    []byte
	synced  []byte
	direct  []span // extents in order
	buffers []span
	syncErr error

	// fail may shorten a write (n < len) or fail it (err). Guarded by mu.
	fail  func(direct bool, off int64, n int) (int, error)
	delay func()

	// Direct reads: late is called when the data of one is there and before it
	// arrives, and may shorten it or fail it; cached answers Cached.
	late   func(off int64, n int) (int, error)
	cached func(off, n int64) bool
	ahead  []span // that were read, in order
	plain  int64  // bytes that ReadAt was asked for
	stop   func() // called by ReadAt
}

func newFake(tb testing.TB) *fake {
	return &fake{tb: tb, align: Alignment{Memory: 512, Offset: 512}}
}

func (b *fake) Align() Alignment { return b.align }

func (b *fake) WriteDirect(p []byte, off int64) (int, error) {
	if off%b.align.Offset != 0 || int64(len(p))%b.align.Offset != 0 || address(p)%b.align.Memory != 0 {
		b.tb.Errorf("direct write of %d bytes at %d, memory at %#x, is not aligned", len(p), off, address(p))
	}
	return b.write(true, p, off)
}

func (b *fake) WriteBuffered(p []byte, off int64) (int, error) { return b.write(false, p, off) }

func (b *fake) write(direct bool, p []byte, off int64) (n int, err error) {
	if len(p) == 0 {
		b.tb.Error("a write of nothing")
	}
	if b.delay != nil {
		b.delay()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	n = len(p)
	if b.fail != nil {
		n, err = b.fail(direct, off, n)
	}
	p = p[:n]
	if i := bytes.IndexByte(p, b.check); b.check != 0 && i >= 0 {
		b.tb.Errorf("stale memory at %d", off+int64(i))
	}
	if end := int(off) + n; n > 0 && end > len(b.data) {
		b.data = append(b.data, make([]byte, end-len(b.data))...)
	}
	copy(b.data[min(int(off), len(b.data)):], p)
	if n > 0 && direct {
		b.direct = append(b.direct, span{off, off + int64(n)})
	} else if n > 0 {
		b.buffers = append(b.buffers, span{off, off + int64(n)})
	}
	return n, err
}

func (b *fake) ReadAt(p []byte, off int64) (int, error) {
	if b.stop != nil {
		b.stop()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.plain += int64(len(p))
	return b.copyOut(p, off), nil
}

// copyOut needs mu.
func (b *fake) copyOut(p []byte, off int64) int {
	if off >= int64(len(b.data)) {
		return 0
	}
	return copy(p, b.data[off:])
}

func (b *fake) ReadDirect(p []byte, off int64) (n int, err error) {
	if off%b.align.Offset != 0 || int64(len(p))%b.align.Offset != 0 || address(p)%b.align.Memory != 0 {
		b.tb.Errorf("direct read of %d bytes at %d, memory at %#x, is not aligned", len(p), off, address(p))
	}
	b.mu.Lock()
	n = b.copyOut(p, off)
	late := b.late
	b.mu.Unlock()
	if late != nil {
		n, err = late(off, n)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ahead = append(b.ahead, span{off, off + int64(n)})
	return n, err
}

func (b *fake) Cached(off, n int64) bool {
	b.mu.Lock()
	cached := b.cached
	b.mu.Unlock()
	return cached != nil && cached(off, n)
}

func (b *fake) Size() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return int64(len(b.data))
}

// counted is how many bytes ReadAt was asked for since the last call.
func (b *fake) counted() (plain int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	plain, b.plain = b.plain, 0
	return plain
}

// setLate installs a hook, or removes it.
func (b *fake) setLate(late func(off int64, n int) (int, error)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.late = late
}

func (b *fake) Sync(bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.syncErr != nil {
		return b.syncErr
	}
	b.synced = bytes.Clone(b.data)
	return nil
}

func (b *fake) truncate(size int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if size <= int64(len(b.data)) {
		clear(b.data[size:])
		b.data = b.data[:size]
		return
	}
	b.data = append(b.data, make([]byte, size-int64(len(b.data)))...)
}

func (b *fake) content() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytes.Clone(b.data)
}

// setFail installs a hook, or removes it.
func (b *fake) setFail(fail func(direct bool, off int64, n int) (int, error)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fail = fail
}

func noSpace(bool, int64, int) (int, error) { return 0, unix.ENOSPC }

// pool is a stager for a test, which ends with it and must leave no memory.
func pool(tb testing.TB, c Config) *Stager {
	tb.Helper()
	s, err := New(c)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if _, err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// text is n random bytes without 0 and without the poison.
func text(r *rand.Rand, n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(1 + r.IntN(0xA0))
	}
	return p
}

func write(tb testing.TB, f *File, p []byte, off int64) {
	if n, err := f.WriteAt(p, off, nil); n != len(p) || err != nil {
		tb.Helper() // here, since it costs more than the write
		tb.Fatalf("WriteAt(%d bytes, %d) = %d, %v", len(p), off, n, err)
	}
}

func flush(tb testing.TB, f *File) {
	tb.Helper()
	if err := f.Flush(0, ToEnd, nil); err != nil {
		tb.Fatal(err)
	}
}

// wants compares what reads of the whole file show.
func wants(tb testing.TB, f *File, want []byte) {
	tb.Helper()
	got := make([]byte, len(want)+100)
	n, err := f.ReadAt(got, 0)
	if err != nil || n != len(want) || !bytes.Equal(got[:n], want) {
		tb.Fatalf("read %d bytes, %v; want %d; first difference at %d", n, err, len(want), differ(got[:n], want))
	}
}

func differ(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// eventually waits for a condition that other goroutines bring about.
func eventually(tb testing.TB, what string, cond func() bool) {
	tb.Helper()
	for end := time.Now().Add(10 * time.Second); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("not in time: %s", what)
		}
	}
}
