package tests

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestStagedDaemonKilled kills the daemon at random moments while files are written in many ways, and then reads
// SOURCE: everything that was synced is there, and nothing that was never written, or was cut off, at any place.
func TestStagedDaemonKilled(t *testing.T) {
	settings := map[string][]string{
		"close":         {"--stage-size=1M", "--stage-memory=8M"},
		"idle":          {"--flush-on=idle", "--flush-after=50ms", "--stage-size=128k", "--stage-memory=4M"},
		"large windows": {"--flush-on=idle"},
		"buffered":      {"--backend=buffered", "--stage-size=256k", "--stage-memory=1M", "--flush-after=10ms"},
	}
	for name, args := range settings {
		t.Run(name, func(t *testing.T) {
			eachStager(t, func(t *testing.T, s *stagedSite) {
				rng := rand.New(rand.NewPCG(firstSeed(t), uint64(len(name))))
				durable := 0
				for round := range pickLong(2, 30) {
					durable += crashOnce(t, s, rng, fmt.Sprint("round", round), args)
					if t.Failed() {
						return
					}
				}
				if durable == 0 {
					t.Error("nothing was synced")
				}
			})
		})
	}
}

// TestStagedDaemonEnds does the same but unmounts: everything must be in SOURCE then.
func TestStagedDaemonEnds(t *testing.T) {
	eachStager(t, func(t *testing.T, s *stagedSite) {
		rng := rand.New(rand.NewPCG(firstSeed(t), 77))
		for round := range pickLong(2, 30) {
			s.start("--flush-on=idle", "--flush-after=20ms", "--stage-size=128k", "--stage-memory=1M")
			w := newCellWriters(t, s, rng, fmt.Sprint("round", round), false)
			time.Sleep(time.Duration(200+rng.IntN(600)) * time.Millisecond)
			close(w.stop)
			w.wait.Wait()
			must(t, errors.Join(w.errs...))
			s.unmountClean()
			for _, f := range w.files {
				must(t, f.sync(func(int) error { return nil }))
			}
			w.check(t)
			if t.Failed() {
				return
			}
		}
	})
}

// crashOnce mounts, has files written in a folder, kills the daemon, and reports how many cells were found that had
// to be there.
func crashOnce(t *testing.T, s *stagedSite, rng *rand.Rand, folder string, args []string) int {
	t.Helper()
	s.start(args...)
	w := newCellWriters(t, s, rng, folder, !slices.Contains(args, "--flush-on=idle"))
	time.Sleep(time.Duration(rng.IntN(1000)) * time.Millisecond)
	s.kill()
	w.wait.Wait()
	for _, err := range w.errs {
		// ENOENT is what an open gets of the empty folder below the mount that was.
		if err == nil || !oneOf(err, unix.ENOTCONN, unix.ECONNABORTED, unix.EIO, unix.ENOENT) {
			t.Errorf("a writer ended with %v", err)
		}
	}
	return w.check(t)
}

// cellWriters change files of cells until they are stopped, or fail.
type cellWriters struct {
	s     *stagedSite
	files []*cellFile
	errs  []error // by writer
	stop  chan struct{}
	wait  sync.WaitGroup
}

const (
	cellWriterCount = 3
	cellFilesEach   = 3
)

// newCellWriters starts writers, each with files of its own in a new folder. flushes says that a close does so.
func newCellWriters(t *testing.T, s *stagedSite, rng *rand.Rand, folder string, flushes bool) *cellWriters {
	t.Helper()
	s.must(func() error { return unix.Mkdir(s.path(folder), 0o755) })
	w := &cellWriters{s: s, errs: make([]error, cellWriterCount), stop: make(chan struct{})}
	for i := range cellWriterCount * cellFilesEach {
		skew := []int64{0, 7, 4096, 4097}[rng.IntN(4)]
		f := newCellFile(s.path(folder, fmt.Sprint(i)), rng.Uint32()|1, skew)
		f.flushes = flushes
		s.must(func() error { return f.open(unix.O_CREAT | unix.O_EXCL) })
		w.files = append(w.files, f)
	}
	for i := range w.errs {
		own, seed := w.files[i*cellFilesEach:][:cellFilesEach], rng.Uint64()
		w.wait.Go(func() { w.errs[i] = s.do(func() error { return w.change(own, seed) }) })
	}
	return w
}

func (w *cellWriters) change(files []*cellFile, seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 1))
	defer func() {
		for _, f := range files {
			_ = f.close() // the daemon may be gone
		}
	}()
	for {
		select {
		case <-w.stop:
			return nil
		default:
		}
		f := files[rng.IntN(len(files))]
		for range 1 + rng.IntN(5) {
			if err := f.change(rng); err != nil {
				return err
			}
		}
	}
}

// check reads the files in SOURCE.
func (w *cellWriters) check(t *testing.T) (durable int) {
	t.Helper()
	for _, f := range w.files {
		rel := strings.TrimPrefix(f.path, w.s.mnt)
		n, err := f.checkCrashed(filepath.Join(w.s.src, rel))
		if err != nil {
			t.Error(err)
		}
		durable += n
	}
	return durable
}

// TestStagedSharedFile has threads write, punch and read parts of one file, which meet within pages, through
// descriptors of their own. Each must find its part as it has left it, and SOURCE all parts in the end.
func TestStagedSharedFile(t *testing.T) {
	const parts, cells = 4, 1 << 17
	settings := map[string][]string{
		"small": {"--stage-size=64k", "--stage-memory=256k", "--flush-after=3ms"},
		"large": {"--flush-on=idle", "--flush-after=50ms", "--stage-size=8M", "--stage-memory=16M"},
	}
	for name, args := range settings {
		t.Run(name, func(t *testing.T) {
			s := newStagedSite(t, unprivileged())
			s.start(args...)
			s.must(func() error { return makeFile(s.path("file"), 0, 0o644) })
			files := make([]*cellFile, parts)
			var wait sync.WaitGroup
			end := time.Now().Add(pickLong(2*time.Second, time.Minute))
			for i := range files {
				f := newCellFile(s.path("file"), uint32(i+1), int64(i)*(cells*cellSize+8)+5)
				files[i] = f
				wait.Go(func() {
					if err := s.do(func() error { return f.sharePart(rand.New(rand.NewPCG(firstSeed(t), uint64(i))), cells, end) }); err != nil {
						t.Error(err)
					}
				})
			}
			wait.Wait()
			s.unmountClean()
			for _, f := range files {
				f.path = s.backing("file")
				must(t, errors.Join(f.open(0), f.readBack(0, cells), f.close()))
			}
		})
	}
}
