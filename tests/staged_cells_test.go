package tests

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A cell is what a file of cells consists of: it says which file it belongs to, where in it, and which change of the
// file wrote it. So a byte that does not belong where it is found cannot pass for one that does: stale memory,
// another file's data, data at a wrong place, or data that was written over or cut off.
const cellSize = 16

// cellFile is a file of cells and what must, and may, be in it. It has one user at a time.
type cellFile struct {
	path string
	id   uint32
	skew int64 // where the first cell begins; there are zeros before
	fd   int

	flushes bool // closing it puts all into SOURCE

	seq    uint32       // of the last change
	writes [][2]int64   // by change: the cells that it wrote; the first and the one after the last
	latest []uint32     // by cell: the change whose data a reader must see; 0 for none
	least  []uint32     // by cell: the oldest change whose data may be in SOURCE after a crash
	absent []bool       // by cell: there may be nothing of it in SOURCE after a crash
	since  map[int]bool // cells changed since the last sync
}

// newCellFile is the file of a path, not open.
func newCellFile(path string, id uint32, skew int64) *cellFile {
	return &cellFile{path: path, id: id, skew: skew, fd: -1, writes: make([][2]int64, 1), since: map[int]bool{}}
}

func (f *cellFile) open(flags int) (err error) {
	f.fd, err = unix.Open(f.path, unix.O_RDWR|unix.O_CLOEXEC|flags, 0o644)
	return err
}

func (f *cellFile) close() error {
	fd := f.fd
	f.fd = -1
	if fd < 0 {
		return nil
	}
	return unix.Close(fd)
}

// offset is where a cell begins.
func (f *cellFile) offset(cell int64) int64 { return f.skew + cell*cellSize }

// begin notes that a change of the cells lo to hi-1 begins.
func (f *cellFile) begin(lo, hi int64) uint32 {
	for int64(len(f.latest)) < hi {
		f.latest, f.least, f.absent = append(f.latest, 0), append(f.least, 0), append(f.absent, true)
	}
	f.seq++
	f.writes = append(f.writes, [2]int64{lo, hi})
	return f.seq
}

// write writes n cells from lo on with one system call.
func (f *cellFile) write(lo, n int64) error {
	seq := f.begin(lo, lo+n)
	b := make([]byte, n*cellSize)
	for i := range n {
		f.fill(b[i*cellSize:], seq, lo+i)
	}
	if err := writeFD(f.fd, b, f.offset(lo)); err != nil {
		return err
	}
	for i := lo; i < lo+n; i++ {
		f.latest[i] = seq
		f.since[int(i)] = true
	}
	return nil
}

func (f *cellFile) fill(b []byte, seq uint32, cell int64) {
	binary.LittleEndian.PutUint32(b, f.id)
	binary.LittleEndian.PutUint32(b[4:], seq)
	binary.LittleEndian.PutUint64(b[8:], uint64(cell)*0x9e3779b97f4a7c15+uint64(f.id)+uint64(seq)<<40)
}

// parse is the change that wrote what is in a cell, 0 for zeros.
func (f *cellFile) parse(b []byte, cell int64) (seq uint32, err error) {
	var want [cellSize]byte
	if [cellSize]byte(b) == want {
		return 0, nil
	}
	seq = binary.LittleEndian.Uint32(b[4:])
	f.fill(want[:], seq, cell)
	if [cellSize]byte(b[:cellSize]) != want || int(seq) >= len(f.writes) || cell < f.writes[seq][0] || cell >= f.writes[seq][1] {
		return 0, fmt.Errorf("%s: at %d is %x, which was never written there (the file's number is %x)", f.path, f.offset(cell), b[:cellSize], f.id)
	}
	return seq, nil
}

// erase has do take away the cells from lo to hi-1: a truncation, or the punching of a hole. When it returns they
// are gone from SOURCE, and for good.
func (f *cellFile) erase(lo, hi int64, do func() error) error {
	hi = min(hi, int64(len(f.latest)))
	seq := f.begin(0, 0)
	for i := lo; i < hi; i++ {
		f.absent[i] = true
	}
	if err := do(); err != nil {
		return err
	}
	for i := lo; i < hi; i++ {
		f.latest[i], f.least[i] = 0, seq
		delete(f.since, int(i))
	}
	return nil
}

// truncate cuts off the cells from n on.
func (f *cellFile) truncate(n int64) error {
	return f.erase(n, int64(len(f.latest)), func() error { return unix.Ftruncate(f.fd, f.offset(n)) })
}

func (f *cellFile) punch(lo, n int64) error {
	return f.erase(lo, lo+n, func() error {
		return unix.Fallocate(f.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, f.offset(lo), n*cellSize)
	})
}

// sync makes what was written durable, and has it expected.
func (f *cellFile) sync(do func(fd int) error) error {
	if err := do(f.fd); err != nil {
		return err
	}
	for i := range f.since {
		if seq := f.latest[i]; seq != 0 {
			f.least[i], f.absent[i] = seq, false
		}
	}
	clear(f.since)
	return nil
}

// readBack wants what was written, in the cells lo to hi-1.
func (f *cellFile) readBack(lo, hi int64) error {
	hi = min(hi, int64(len(f.latest)))
	b := make([]byte, max(hi-lo, 0)*cellSize)
	if err := readFD(f.fd, b, f.offset(lo)); err != nil {
		return err
	}
	for i := lo; i < hi; i++ {
		seq, err := f.parse(b[(i-lo)*cellSize:], i)
		if err != nil {
			return fmt.Errorf("reading: %w", err)
		}
		if seq != f.latest[i] {
			return fmt.Errorf("reading %s: at %d is change %d, want %d of %d", f.path, f.offset(i), seq, f.latest[i], f.seq)
		}
	}
	return nil
}

// checkCrashed wants of the file, which lies at a path of SOURCE now, what must and nothing but what may have
// survived. It reports how many cells had to.
func (f *cellFile) checkCrashed(path string) (durable int, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	if most := f.offset(int64(len(f.latest))); int64(len(b)) > most {
		return 0, fmt.Errorf("%s has %d bytes; %d at most were written", path, len(b), most)
	}
	for i, c := range b[:min(int64(len(b)), f.skew)] {
		if c != 0 {
			return 0, fmt.Errorf("%s: at %d is %x, want the zero before the first cell", path, i, c)
		}
	}
	b = append(b, make([]byte, cellSize)...)
	for i := range f.latest {
		lo := min(f.offset(int64(i)), int64(len(b))-cellSize)
		seq, err := f.parse(b[lo:lo+cellSize], int64(i))
		if err != nil && f.torn(b[lo:lo+cellSize], int64(i)) {
			continue
		}
		switch {
		case err != nil:
			return 0, err
		case seq == 0 && !f.absent[i]:
			return 0, fmt.Errorf("%s: at %d is nothing, though change %d was synced", path, f.offset(int64(i)), f.least[i])
		case seq != 0 && seq < f.least[i]:
			return 0, fmt.Errorf("%s: at %d is change %d, though change %d was synced, or cut it off", path, f.offset(int64(i)), seq, f.least[i])
		}
		if !f.absent[i] {
			durable++
		}
	}
	return durable, nil
}

// torn reports whether a cell that crosses the end of a page, and so may get to SOURCE in two parts, has two that
// may be there.
func (f *cellFile) torn(b []byte, cell int64) bool {
	const page = 4096
	cut := int(page - f.offset(cell)%page)
	if cut >= cellSize {
		return false
	}
	return f.holdsPart(b, cell, 0, cut) && f.holdsPart(b, cell, cut, cellSize)
}

// holdsPart reports whether the bytes lo to hi-1 of a cell are those of a change that may be in SOURCE.
func (f *cellFile) holdsPart(b []byte, cell int64, lo, hi int) bool {
	var want [cellSize]byte
	if f.absent[cell] && bytes.Equal(b[lo:hi], want[lo:hi]) {
		return true
	}
	for seq := max(f.least[cell], 1); seq <= f.seq; seq++ {
		f.fill(want[:], seq, cell)
		if w := f.writes[seq]; w[0] <= cell && cell < w[1] && bytes.Equal(b[lo:hi], want[lo:hi]) {
			return true
		}
	}
	return false
}

// change does something random to the file.
func (f *cellFile) change(rng *rand.Rand) error {
	end := int64(len(f.latest))
	switch n := rng.IntN(100); {
	case n < 45: // runs on
		size := 1 + rng.Int64N(1<<rng.IntN(17))
		return f.write(end, size)
	case n < 65: // written over, or far beyond
		return f.write(rng.Int64N(end+1+rng.Int64N(1<<14)), 1+rng.Int64N(1<<rng.IntN(12)))
	case n < 75:
		return f.sync(unix.Fsync)
	case n < 80:
		return f.sync(unix.Fdatasync)
	case n < 85:
		lo := rng.Int64N(end + 1)
		return f.readBack(lo, lo+1<<14)
	case n < 88:
		return pushFD(f.fd)
	case n < 92:
		closing := func(int) error { return f.close() }
		if !f.flushes {
			return errors.Join(closing(0), f.open(0))
		}
		return errors.Join(f.sync(closing), f.open(0))
	case n < 96:
		return f.punch(rng.Int64N(end+1), 1+rng.Int64N(1<<14))
	}
	return f.truncate(rng.Int64N(end + 1))
}

// sharePart changes the first cells of the file until end, and nothing else of it.
func (f *cellFile) sharePart(rng *rand.Rand, cells int64, end time.Time) error {
	if err := f.open(0); err != nil {
		return err
	}
	for time.Now().Before(end) {
		lo := rng.Int64N(cells)
		n := 1 + rng.Int64N(min(1<<rng.IntN(17), cells-lo))
		var err error
		switch k := rng.IntN(20); {
		case k < 10:
			err = f.write(lo, n)
		case k < 15:
			err = f.readBack(lo, lo+n)
		case k < 16:
			if int64(len(f.latest)) > lo {
				err = f.punch(lo, min(n, int64(len(f.latest))-lo))
			}
		case k < 17:
			err = f.sync(unix.Fdatasync)
		case k < 18:
			err = pushFD(f.fd)
		case k < 19:
			err = errors.Join(f.close(), f.open(0))
		default:
			err = unix.Fstat(f.fd, new(unix.Stat_t))
		}
		if err != nil {
			return err
		}
	}
	return errors.Join(f.readBack(0, cells), f.close())
}
