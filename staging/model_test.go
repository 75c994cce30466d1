package staging

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var (
	modelSeed  = flag.Uint64("model.seed", 0, "seed of the random operations; 0: by time")
	modelSteps = flag.Int("model.steps", 600, "random operations per goroutine")
)

// modelRun is random operations on one file by several goroutines. Each owns
// every so many-th stripe of the file, so that what a stripe must hold is
// known; what concerns the whole file keeps the others out, as the kernel's
// inode lock does.
type modelRun struct {
	t       *testing.T
	s       *Stager
	b       *fake
	stripes int64

	whole sync.RWMutex // held exclusively by operations on the whole file
	f     *File        // guarded by whole

	mu   sync.Mutex
	want []byte // guarded by mu; each stripe changes by its owner only, or with whole held
}

const (
	stripe    = 12 << 10
	modelSize = 600 << 10
	poison    = 0xA5
)

func TestRandomOperations(t *testing.T) {
	seed := *modelSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	for _, c := range []struct {
		name       string
		cfg        Config
		goroutines int
	}{
		{"alone", Config{MinDirect: 4096, Age: -1}, 1},
		{"aging", Config{MinDirect: 8192, Age: time.Millisecond}, 2},
		{"tight", Config{MinDirect: 4096, Memory: 128 << 10, Workers: 2, Age: -1}, 4},
		{"bypassing", Config{MinDirect: 4096, Bypass: 4096, Memory: 256 << 10, Age: 5 * time.Millisecond}, 4},
		{"mapped", Config{MinDirect: 4096, Bypass: 4096, Memory: 192 << 10, Age: 5 * time.Millisecond}, 4},
		{"ahead alone", Config{MinDirect: 4096, ReadAhead: 256 << 10, chunk: 16 << 10, Age: -1}, 1},
		{"ahead", Config{MinDirect: 4096, Bypass: 4096, ReadAhead: 128 << 10, chunk: 16 << 10, Age: time.Millisecond}, 4},
		{"ahead tight", Config{MinDirect: 4096, Memory: 256 << 10, ReadAhead: 128 << 10, chunk: 8 << 10, Age: -1}, 4},
		{"ahead mapped", Config{MinDirect: 4096, Bypass: 4096, ReadAhead: 128 << 10, chunk: 16 << 10, Age: time.Millisecond}, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			t.Logf("-model.seed=%d", seed)
			cfg := c.cfg
			cfg.WindowSize, cfg.MaxPiece, cfg.Poison = 64<<10, 64<<10, poison
			cfg.RetryMin, cfg.RetryMax = time.Millisecond, 4*time.Millisecond
			cfg.heap = !strings.HasSuffix(c.name, "mapped")
			m := &modelRun{t: t, s: pool(t, cfg), b: newFake(t), stripes: int64(c.goroutines)}
			m.b.check = poison
			m.b.setFail(flaky(seed))
			if cfg.ReadAhead > 0 {
				m.b.delay = func() { time.Sleep(time.Duration(rand.IntN(200)) * time.Microsecond) }
				m.b.setLate(dawdling(seed))
			}
			m.f = m.s.Open(m.b)
			var wg sync.WaitGroup
			for g := range c.goroutines {
				wg.Go(func() { m.goroutine(int64(g), rand.New(rand.NewPCG(seed, uint64(g)))) })
			}
			wg.Wait()
			m.b.setFail(nil)
			m.compare()
			if l := m.f.Close(nil); l != nil {
				t.Errorf("lost %v", l)
			}
			if got := m.b.content(); !bytes.Equal(got, m.want) {
				t.Errorf("the backing file differs at %d of %d, %d", differ(got, m.want), len(got), len(m.want))
			}
			st := m.s.Stats()
			t.Logf("%+v", st)
			if st.Lost != 0 || st.Failing != 0 || cfg.ReadAhead > 0 && cfg.Memory == 0 && st.AheadServed == 0 {
				t.Errorf("%+v", st)
			}
		})
	}
}

// flaky shortens one in eight writes and fails one in sixteen.
func flaky(seed uint64) func(bool, int64, int) (int, error) {
	r := rand.New(rand.NewPCG(seed, 99))
	return func(_ bool, _ int64, n int) (int, error) {
		switch r.IntN(16) {
		case 0:
			return r.IntN(n), []error{unix.ENOSPC, unix.EIO, unix.EINTR}[r.IntN(3)]
		case 1, 2:
			return 1 + r.IntN(n), nil
		}
		return n, nil
	}
}

// dawdling delivers direct reads late, one in eight in part, and one in a
// hundred not at all.
func dawdling(seed uint64) func(int64, int) (int, error) {
	var mu sync.Mutex
	r := rand.New(rand.NewPCG(seed, 98))
	return func(_ int64, n int) (int, error) {
		mu.Lock()
		pause, part, much := time.Duration(r.IntN(300))*time.Microsecond, r.IntN(8) == 0, r.IntN(n+1)
		fail := r.IntN(100) == 0
		mu.Unlock()
		if time.Sleep(pause); part {
			n = much
		}
		if fail {
			return n, unix.EIO
		}
		return n, nil
	}
}

func (m *modelRun) goroutine(g int64, r *rand.Rand) {
	for step := range *modelSteps {
		if m.t.Failed() {
			return
		}
		at := fmt.Sprintf("goroutine %d step %d", g, step)
		switch k := r.IntN(100); {
		case k < 55:
			m.write(at, g, r)
		case k < 70 || k < 80 && m.s.cfg.ReadAhead == 0:
			m.read(at, g, r)
		case k < 80:
			m.scan(at, g, r)
		case k < 88:
			m.shared(func() { _ = m.f.Flush(r.Int64N(modelSize), r.Int64N(modelSize), nil) })
		case k < 90:
			m.shared(func() { m.f.FlushAsync() })
		case k < 92:
			m.shared(func() { _ = m.f.Sync(true, nil) })
		case k < 95:
			m.interrupted(r)
		case k < 97:
			m.truncate(at, r)
		case k < 98:
			m.punch(r)
		case k < 99:
			m.compare()
		default:
			m.reopen(r)
		}
	}
}

func (m *modelRun) shared(do func()) {
	m.whole.RLock()
	defer m.whole.RUnlock()
	do()
}

// place is a range within a stripe that g owns.
func (m *modelRun) place(g int64, r *rand.Rand) (lo, hi int64) {
	n := r.Int64N(modelSize / stripe / m.stripes)
	base := (n*m.stripes + g) * stripe
	if m.stripes == 1 && r.IntN(4) == 0 { // alone: anything goes
		base = r.Int64N(modelSize/4096) * 4096
		return base, min(base+4096*(1+r.Int64N(40)), modelSize)
	}
	if r.IntN(4) == 0 {
		return base, base + stripe
	}
	lo = base + r.Int64N(stripe)
	return lo, lo + 1 + r.Int64N(base+stripe-lo)
}

func (m *modelRun) write(at string, g int64, r *rand.Rand) {
	m.whole.RLock()
	defer m.whole.RUnlock()
	lo, hi := m.place(g, r)
	p := alignedHeap((hi - lo + 4095) &^ 4095)[:hi-lo]
	copy(p, text(r, len(p)))
	var n int
	var err error
	if r.IntN(16) == 0 {
		n, err = m.f.WriteThrough(p, lo, nil)
	} else {
		n, err = m.f.WriteAt(p, lo, nil)
	}
	if n > len(p) || err == nil && n < len(p) {
		m.t.Errorf("%s: WriteAt(%d, %d) = %d, %v", at, len(p), lo, n, err)
	}
	m.wrote(p[:n], lo)
	if err != nil { // a program would try again
		m.retry(at, p[n:], lo+int64(n))
	}
}

// retry writes until the backing lets it. What a failed write has left of its
// range is unknown before.
func (m *modelRun) retry(at string, p []byte, off int64) {
	for try := 0; len(p) > 0; try++ {
		n, err := m.f.WriteAt(p, off, nil)
		m.wrote(p[:n], off)
		p, off = p[n:], off+int64(n)
		if err != nil && try > 1000 {
			m.t.Errorf("%s: still %v", at, err)
			return
		}
	}
}

func (m *modelRun) wrote(p []byte, off int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if end := off + int64(len(p)); len(p) > 0 && end > int64(len(m.want)) {
		m.want = append(m.want, make([]byte, end-int64(len(m.want)))...)
	}
	copy(m.want[min(off, int64(len(m.want))):], p)
}

func (m *modelRun) read(at string, g int64, r *rand.Rand) {
	m.whole.RLock()
	defer m.whole.RUnlock()
	lo, hi := m.place(g, r)
	got := bytes.Repeat([]byte{poison}, int(hi-lo))
	n, err := m.f.ReadAt(got, lo)
	m.mu.Lock()
	defer m.mu.Unlock()
	want := m.want[min(lo, int64(len(m.want))):min(hi, int64(len(m.want)))]
	if m.stripes > 1 { // another may have made the file longer after our read
		if len(want) > n {
			for _, c := range want[n:] {
				if c != 0 {
					m.t.Errorf("%s: read of %d at %d is too short", at, hi-lo, lo)
					break
				}
			}
			want = want[:n]
		}
		for n > len(want) && got[n-1] == 0 { // or before the model knew
			n--
		}
	}
	if err != nil || !bytes.Equal(got[:n], want) {
		m.t.Errorf("%s: read of %d at %d gives %d bytes, %v, want %d; first difference at %d",
			at, hi-lo, lo, n, err, len(want), lo+int64(differ(got[:n], want)))
	}
}

// scan reads on from some place, with some disorder, and checks what g owns.
func (m *modelRun) scan(at string, g int64, r *rand.Rand) {
	const request, group = 4 << 10, 3
	base := r.Int64N(modelSize/request) * request
	for range 5 + r.IntN(30) {
		for _, i := range r.Perm(group) {
			m.whole.RLock()
			m.scanned(at, g, base+int64(i)*request, request)
			m.whole.RUnlock()
		}
		base += group * request
	}
}

func (m *modelRun) scanned(at string, g, off int64, size int) {
	got := bytes.Repeat([]byte{poison}, size)
	n, err := m.f.ReadAt(got, off)
	if err != nil {
		m.t.Errorf("%s: scan of %d at %d: %v", at, size, off, err)
	}
	if i := bytes.IndexByte(got[:n], poison); i >= 0 {
		m.t.Errorf("%s: stale memory at %d", at, off+int64(i))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range int64(n) {
		if (off+i)/stripe%m.stripes != g || off+i >= int64(len(m.want)) {
			continue
		}
		if got[i] != m.want[off+i] {
			m.t.Errorf("%s: scan of %d at %d gives %d bytes; wrong at %d", at, size, off, n, off+i)
			return
		}
	}
	if m.stripes == 1 && int64(n) < min(off+int64(size), int64(len(m.want)))-off {
		m.t.Errorf("%s: scan of %d at %d gives %d bytes of %d", at, size, off, n, len(m.want))
	}
}

// interrupted calls what can be interrupted with a channel that is closed.
func (m *modelRun) interrupted(r *rand.Rand) {
	m.whole.RLock()
	defer m.whole.RUnlock()
	cancel := make(chan struct{})
	close(cancel)
	switch r.IntN(2) {
	case 0:
		_ = m.f.Flush(0, ToEnd, cancel)
	case 1:
		_ = m.f.Barrier(r.Int64N(modelSize), 10000, cancel, func() error { return nil })
	}
}

func (m *modelRun) truncate(at string, r *rand.Rand) {
	m.whole.Lock()
	defer m.whole.Unlock()
	size := r.Int64N(modelSize)
	err := m.f.Truncate(size, nil, func() error { m.b.truncate(size); return nil })
	if err != nil {
		m.t.Errorf("%s: truncate: %v", at, err)
	}
	m.want = append(m.want[:min(size, int64(len(m.want)))], make([]byte, max(0, size-int64(len(m.want))))...)
}

// punch zeroes a range behind a barrier.
func (m *modelRun) punch(r *rand.Rand) {
	m.whole.Lock()
	defer m.whole.Unlock()
	lo := r.Int64N(modelSize)
	hi := min(lo+r.Int64N(50000), int64(len(m.want)))
	if lo >= hi {
		return
	}
	err := m.f.Barrier(lo, hi-lo, nil, func() error {
		m.b.mu.Lock()
		defer m.b.mu.Unlock()
		clear(m.b.data[min(int(lo), len(m.b.data)):min(int(hi), len(m.b.data))])
		return nil
	})
	if err == nil {
		clear(m.want[lo:hi])
	}
}

// compare reads the whole file.
func (m *modelRun) compare() {
	m.whole.Lock()
	defer m.whole.Unlock()
	got := bytes.Repeat([]byte{poison}, modelSize+1000)
	n, err := m.f.ReadAt(got, 0)
	if err != nil || !bytes.Equal(got[:n], m.want) {
		m.t.Errorf("read %d bytes, %v, want %d; first difference at %d", n, err, len(m.want), differ(got[:n], m.want))
	}
}

// reopen ends the file in one of the ways that lose nothing, and opens another.
func (m *modelRun) reopen(r *rand.Rand) {
	m.whole.Lock()
	defer m.whole.Unlock()
	if r.IntN(2) == 0 {
		for m.f.Flush(0, ToEnd, nil) != nil {
		}
		if l := m.f.Close(nil); l != nil {
			m.t.Errorf("lost %v", l)
		}
		m.f = m.s.Open(m.b)
		return
	}
	ended := make(chan []Lost, 1)
	m.f.CloseLater(func(l []Lost) { ended <- l })
	if r.IntN(2) == 0 && m.f.Reopen() {
		return
	}
	for m.f.Flush(0, ToEnd, nil) != nil {
	}
	if l := <-ended; l != nil {
		m.t.Errorf("lost %v", l)
	}
	m.f = m.s.Open(m.b)
}
