package tests

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestStagedCrowd has many threads make, replace, rename, link, read and remove files of few names at once, with
// hardly any memory to stage in. Each file is complete before it gets its name, so whoever opens one must find it
// complete: never another's data, nor a part.
func TestStagedCrowd(t *testing.T) {
	settings := map[string][]string{
		"close": {"--stage-size=64k", "--stage-memory=128k", "--flush-after=5ms"},
		"idle":  {"--stage-size=64k", "--stage-memory=256k", "--flush-after=20ms", "--flush-on=idle", "--attr-timeout=0s", "--entry-timeout=0s"},
		"large": {"--flush-on=idle", "--flush-after=100ms"},
	}
	for name, args := range settings {
		t.Run(name, func(t *testing.T) {
			m := mount(t, withMode("staged"), withArgs(args...))
			c := stagedCrowd{dir: m.Dir, end: time.Now().Add(pickLong(2*time.Second, time.Minute))}
			var wait sync.WaitGroup
			for i := range 8 {
				wait.Go(func() {
					if err := c.live(rand.New(rand.NewPCG(firstSeed(t), uint64(i))), i); err != nil {
						t.Error(err)
					}
				})
			}
			wait.Wait()
			m.Unmount()
			left, err := filepath.Glob(m.Backing("n*"))
			must(t, err)
			for _, path := range left {
				must(t, checkCrowdFile(path))
			}
		})
	}
}

// stagedCrowd is a folder that many use until end.
type stagedCrowd struct {
	dir string
	end time.Time
}

func (c *stagedCrowd) live(rng *rand.Rand, id int) error {
	for n := 0; time.Now().Before(c.end); n++ {
		name := func() string { return filepath.Join(c.dir, fmt.Sprintf("n%d", rng.IntN(12))) }
		var err error
		switch rng.IntN(7) {
		case 0, 1:
			err = c.make(rng, filepath.Join(c.dir, fmt.Sprintf("t%d", id)), name(), uint64(id)<<32|uint64(n))
		case 2:
			err = ignoreGone(os.Remove(name()))
		case 3:
			err = ignoreGone(os.Rename(name(), name()))
		case 4:
			if err = ignoreGone(os.Link(name(), name())); errors.Is(err, unix.EEXIST) {
				err = nil
			}
		default:
			err = checkCrowdFile(name())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// make writes a file at a temporary path, in pieces in any order, and gives it its name.
func (c *stagedCrowd) make(rng *rand.Rand, temporary, name string, id uint64) error {
	data := crowdData(id, 16+rng.IntN(1<<rng.IntN(20)))
	fd, err := unix.Open(temporary, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return err
	}
	piece := 1 + rng.IntN(len(data))
	starts := rng.Perm((len(data) + piece - 1) / piece)
	for _, i := range starts {
		lo := i * piece
		if err := writeFD(fd, data[lo:min(lo+piece, len(data))], int64(lo)); err != nil {
			return errors.Join(err, unix.Close(fd))
		}
	}
	switch rng.IntN(4) {
	case 0:
		err = unix.Fsync(fd)
	case 1:
		err = pushFD(fd)
	}
	if rng.IntN(4) == 0 {
		return errors.Join(err, os.Rename(temporary, name), unix.Close(fd))
	}
	return errors.Join(err, unix.Close(fd), os.Rename(temporary, name))
}

// crowdData is a whole file: its length, its number, and bytes that follow from the number.
func crowdData(id uint64, size int) []byte {
	b := stagedBytes(int(id), size)
	binary.LittleEndian.PutUint64(b, uint64(size))
	binary.LittleEndian.PutUint64(b[8:], id)
	return b
}

// checkCrowdFile wants a whole file, if there is one.
func checkCrowdFile(path string) error {
	got, err := os.ReadFile(path)
	if err != nil {
		return ignoreGone(err)
	}
	if len(got) < 16 {
		return fmt.Errorf("%s has %d bytes", path, len(got))
	}
	size, id := binary.LittleEndian.Uint64(got), binary.LittleEndian.Uint64(got[8:])
	if size > 1<<21 {
		return fmt.Errorf("%s begins with %x", path, got[:16])
	}
	if where := differ(got, crowdData(id, int(size))); where != "" {
		return fmt.Errorf("%s (number %x): %s", path, id, where)
	}
	return nil
}

// TestStagedSynchronous: what is written with O_SYNC or O_DSYNC is in SOURCE when write(2) returns.
func TestStagedSynchronous(t *testing.T) {
	eachStager(t, func(t *testing.T, s *stagedSite) {
		s.start("--flush-on=idle", "--flush-after=1h")
		for name, flags := range map[string]int{"sync": unix.O_SYNC, "dsync": unix.O_DSYNC, "direct": unix.O_DIRECT | unix.O_DSYNC} {
			fd := s.open(s.path(name), unix.O_RDWR|unix.O_CREAT|flags)
			data := []byte(nil)
			b := alignedBuffer(64 << 10)
			for i := range 11 {
				copy(b, stagedBytes(i, len(b)))
				data = append(data, b...)
				must(t, writeFD(fd, b, int64(i*len(b))))
				if i%10 == 0 {
					wantFile(t, s.backing(name), data)
				}
			}
			wantFile(t, s.backing(name), data)
			must(t, unix.Close(fd))
		}
		s.unmountClean()
	})
}
