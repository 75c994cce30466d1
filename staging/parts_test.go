package staging

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// slowSplit finds the middle block by block.
func slowSplit(run span, grid, least int64) parts {
	none := parts{run, span{run.hi, run.hi}, span{run.hi, run.hi}}
	if grid == 0 {
		return none
	}
	var m span
	for b := int64(0); b < run.hi; b += grid {
		if b >= run.lo && b+grid <= run.hi {
			if m.hi == 0 {
				m.lo = b
			}
			m.hi = b + grid
		}
	}
	if m.len() == 0 || m.len() < least {
		return none
	}
	return parts{span{run.lo, m.lo}, m, span{m.hi, run.hi}}
}

func TestSplitSweep(t *testing.T) {
	for _, grid := range []int64{0, 8, 16} {
		for _, least := range []int64{0, 1, 8, 17, 24} {
			for lo := int64(0); lo < 40; lo++ {
				for hi := lo; hi < 100; hi++ {
					run := span{lo, hi}
					if got, want := split(run, grid, least), slowSplit(run, grid, least); got != want {
						t.Fatalf("split(%v, %d, %d) = %v, want %v", run, grid, least, got, want)
					}
				}
			}
		}
	}
}

func TestPiecesSweep(t *testing.T) {
	for _, grid := range []int64{0, 1, 4} {
		for most := int64(8); most <= 32; most *= 2 {
			for n := int64(1); n < 200; n++ {
				if grid > 0 && n%grid != 0 {
					continue
				}
				rest := span{grid * 3, grid*3 + n}
				pieces := 0
				for rest.len() > 0 {
					p := piece(rest, grid, most)
					if p.lo != rest.lo || p.len() <= 0 || p.len() > most || p.hi > rest.hi || grid > 0 && p.len()%grid != 0 {
						t.Fatalf("piece(%v, %d, %d) = %v", rest, grid, most, p)
					}
					rest.lo = p.hi
					pieces++
				}
				if want := int((n + most - 1) / most); pieces != want {
					t.Fatalf("%d bytes in %d pieces of at most %d, want %d", n, pieces, most, want)
				}
			}
		}
	}
}

func TestSpansAgainstBits(t *testing.T) {
	const size = 64
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var s spans
		var bits [size]bool
		for step := range 60 {
			lo := r.Int64N(size)
			hi := lo + 1 + r.Int64N(min(size-lo, 12))
			if r.IntN(3) == 0 {
				want := int64(0)
				for i := lo; i < hi; i++ {
					if bits[i] {
						want++
					}
					bits[i] = false
				}
				if got := s.remove(lo, hi); got != want {
					t.Fatalf("step %d: remove(%d, %d) = %d, want %d", step, lo, hi, got, want)
				}
			} else {
				added, met := int64(0), lo > 0 && bits[lo-1] || hi < size && bits[hi]
				for i := lo; i < hi; i++ {
					met = met || bits[i]
					if !bits[i] {
						added++
					}
					bits[i] = true
				}
				if a, m := s.add(lo, hi); a != added || m != met {
					t.Fatalf("step %d: add(%d, %d) = %d, %v, want %d, %v", step, lo, hi, a, m, added, met)
				}
			}
			var want spans
			for i := int64(0); i < size; i++ {
				if bits[i] && (i == 0 || !bits[i-1]) {
					want = append(want, span{i, i})
				}
				if bits[i] {
					want[len(want)-1].hi = i + 1
				}
			}
			if !slices.Equal(s, want) {
				t.Fatalf("step %d: %v, want %v", step, s, want)
			}
			if s.overlaps(lo, hi) != slices.Contains(bits[lo:hi], true) {
				t.Fatalf("step %d: overlaps(%d, %d) = %v in %v", step, lo, hi, s.overlaps(lo, hi), s)
			}
		}
	}
}

func TestBufferCountsPages(t *testing.T) {
	const pages = 200
	b, err := source{size: pages * PageSize}.make()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.free(); err != nil {
			t.Error(err)
		}
	}()
	r := rand.New(rand.NewPCG(3, 4))
	var model [pages]bool
	for range 2000 {
		first := r.Int64N(pages)
		last := first + r.Int64N(min(pages-first, 70))
		lo, hi := first*PageSize+r.Int64N(PageSize), last*PageSize+1
		if lo >= hi {
			hi = lo + 1
		}
		switch r.IntN(4) {
		case 0:
			keep := spans{{lo, hi}}
			b.touch(lo, hi) // valid bytes are on resident pages
			want, freed := int64(0), int64(0)
			for i := range model {
				model[i] = model[i] || int64(i) >= first && int64(i) <= last
				if model[i] && (int64(i) < first || int64(i) > last) {
					want++
					model[i] = false
				}
			}
			if spare := b.spare(keep); spare != want {
				t.Fatalf("%d spare pages, want %d", spare, want)
			}
			if freed = b.trim(keep); freed != want {
				t.Fatalf("trimmed %d pages, want %d", freed, want)
			}
		default:
			want := int64(0)
			for i := first; i <= last; i++ {
				if !model[i] {
					want++
				}
				model[i] = true
			}
			if got := b.missing(lo, hi); got != want {
				t.Fatalf("%d pages missing in [%d, %d), want %d", got, lo, hi, want)
			}
			b.touch(lo, hi)
			if b.missing(lo, hi) != 0 {
				t.Fatal("touched pages are missing")
			}
		}
	}
}
