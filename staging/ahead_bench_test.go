package staging

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

var (
	benchSize = flag.Int64("bench.size", 64<<20, "bytes of the file that is read from the disk")
	benchDir  = flag.String("bench.dir", "/var/tmp", "where that file is made")
)

// disk is a backing on a real file.
type disk struct {
	null
	fd, direct int
}

func (d disk) ReadAt(p []byte, off int64) (int, error)     { return unix.Pread(d.fd, p, off) }
func (d disk) ReadDirect(p []byte, off int64) (int, error) { return unix.Pread(d.direct, p, off) }
func (d disk) Align() Alignment                            { return Alignment{4096, 4096} }

func (d disk) Size() int64 { return *benchSize }

func (d disk) Cached(off, n int64) bool {
	var st unix.Cachestat_t
	err := unix.Cachestat(uint(d.fd), &unix.CachestatRange{Off: uint64(off), Len: uint64(n)}, &st, 0)
	return err == nil && int64(st.Cache)*PageSize > n/2
}

// cached is how many bytes of the file are in the page cache.
func (d disk) cached(tb testing.TB) int64 {
	var st unix.Cachestat_t
	if err := unix.Cachestat(uint(d.fd), &unix.CachestatRange{Len: uint64(*benchSize)}, &st, 0); err != nil {
		tb.Log("cachestat: ", err)
	}
	return int64(st.Cache) * PageSize
}

// cold empties the page cache of the file.
func (d disk) cold(tb testing.TB) {
	if err := unix.Fadvise(d.fd, 0, 0, unix.FADV_DONTNEED); err != nil {
		tb.Fatal(err)
	}
}

// onDisk makes the file, which is removed at the end.
func onDisk(b *testing.B) disk {
	f, err := os.CreateTemp(*benchDir, "ahead")
	if err != nil {
		b.Skip(err)
	}
	b.Cleanup(func() {
		if err := f.Close(); err != nil {
			b.Error(err)
		}
	})
	if err := os.Remove(f.Name()); err != nil {
		b.Fatal(err)
	}
	p := make([]byte, 1<<20)
	for at := int64(0); at < *benchSize; at += int64(len(p)) {
		for i := range p {
			p[i] = byte(i*7 + i>>8 + int(at>>20))
		}
		if _, err := f.Write(p); err != nil {
			b.Fatal(err)
		}
	}
	if err := f.Sync(); err != nil {
		b.Fatal(err)
	}
	fd := int(f.Fd())
	direct, err := unix.Open("/proc/self/fd/"+strconv.Itoa(fd), unix.O_RDONLY|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		b.Skip("no direct reads: ", err)
	}
	b.Cleanup(func() {
		if err := unix.Close(direct); err != nil {
			b.Error(err)
		}
	})
	return disk{fd: fd, direct: direct}
}

// readThrough reads the file in requests of 128 KiB, four at a time.
func readThrough(b *testing.B, read func(p []byte, off int64) (int, error)) {
	const request = 128 << 10
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			p := make([]byte, request)
			for {
				off := next.Add(request) - request
				if off >= *benchSize {
					return
				}
				if n, err := read(p, off); n != request || err != nil || p[1] != byte(7+int(off>>20))+byte(int(off%(1<<20)*7+off%(1<<20)>>8)) {
					b.Errorf("read %d bytes at %d, %v: %d", n, off, err, p[1])
					return
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkColdRead compares what a reader gets of a file that is not in the
// page cache: by itself, and with chunks of several sizes read ahead.
func BenchmarkColdRead(b *testing.B) {
	d := onDisk(b)
	b.Run("plain", func(b *testing.B) { d.bench(b, d.cold, Config{}) })
	for _, chunk := range []int64{1, 2, 4, 8} {
		for _, ahead := range []int64{16, 32, 64} {
			b.Run(fmt.Sprintf("%dM-of-%dM", chunk, ahead), func(b *testing.B) {
				d.bench(b, d.cold, Config{ReadAhead: ahead << 20, chunk: chunk << 20})
			})
		}
	}
}

// BenchmarkWarmRead compares it for a file that is.
func BenchmarkWarmRead(b *testing.B) {
	d := onDisk(b)
	readThrough(b, d.ReadAt)
	b.Run("plain", func(b *testing.B) { d.bench(b, func(testing.TB) {}, Config{}) })
	b.Run("ahead", func(b *testing.B) { d.bench(b, func(testing.TB) {}, Config{ReadAhead: 16 << 20}) })
}

func (d disk) bench(b *testing.B, before func(testing.TB), c Config) {
	s := pool(b, c)
	b.SetBytes(*benchSize)
	for b.Loop() {
		b.StopTimer()
		before(b)
		f := s.Open(d)
		b.StartTimer()
		if c.ReadAhead == 0 {
			readThrough(b, d.ReadAt)
		} else {
			readThrough(b, func(p []byte, off int64) (int, error) { return f.ReadAt(p, off) })
		}
		b.StopTimer()
		f.Drop()
		b.StartTimer()
	}
	st := s.Stats()
	b.ReportMetric(float64(d.cached(b))/float64(*benchSize), "cached/op")
	b.ReportMetric(float64(st.AheadServed)/float64(b.N)/float64(*benchSize), "served/op")
	b.ReportMetric(float64(st.AheadWasted)/float64(b.N)/float64(*benchSize), "wasted/op")
}

// instant is a backing whose reads take no time.
type instant struct{ null }

func (instant) ReadAt(p []byte, _ int64) (int, error)     { return len(p), nil }
func (instant) ReadDirect(p []byte, _ int64) (int, error) { return len(p), nil }
func (instant) Cached(int64, int64) bool                  { return false }
func (instant) Size() int64                               { return ToEnd }

// BenchmarkRandomRead is what watching for streams costs a reader who is none.
func BenchmarkRandomRead(b *testing.B) {
	for _, ahead := range []int64{0, 16 << 20} {
		b.Run(fmt.Sprintf("%dM", ahead>>20), func(b *testing.B) {
			s := pool(b, Config{ReadAhead: ahead})
			f := s.Open(instant{})
			p := make([]byte, 4096)
			b.ReportAllocs()
			for i := int64(1); b.Loop(); i++ {
				if _, err := f.ReadAt(p, i*7919%1000003*4096); err != nil {
					b.Fatal(err)
				}
			}
			f.Drop()
		})
	}
}
