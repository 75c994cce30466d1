package policy

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParseBlksize(t *testing.T) {
	tests := []struct {
		word string
		want Blksize
	}{
		{"native", Native}, {"NATIVE", Native},
		{"1", 1}, {"512", 512}, {"131072", 128 << 10}, {"2147483648", MaxBlksize},
		{"0512", 512}, {"1k", 1024}, {"1024k", 1 << 20}, {"2097152k", MaxBlksize},
		{"8k", 8 << 10}, {"8K", 8 << 10}, {"8kB", 8 << 10}, {"8KB", 8 << 10}, {"8KiB", 8 << 10}, {"8kib", 8 << 10},
		{"1M", 1 << 20}, {"1m", 1 << 20}, {"1MB", 1 << 20}, {"1MiB", 1 << 20},
		{"1G", 1 << 30}, {"1g", 1 << 30}, {"2GB", MaxBlksize}, {"2GiB", MaxBlksize},
		{"zfs", 128 << 10}, {"ZFS", 128 << 10},
	}
	for _, tt := range tests {
		if got, err := ParseBlksize(tt.word); err != nil || got != tt.want {
			t.Errorf("ParseBlksize(%q) = %d, %v; want %d", tt.word, got, err, tt.want)
		}
	}
}

func TestParseBlksizeRefuses(t *testing.T) {
	tests := []struct{ word, want string }{
		{"196608", "block size 196608 is not a power of two: the kernel would report 131072; use 128k or 256k"},
		{"192k", "block size 192k is not a power of two: the kernel would report 131072; use 128k or 256k"},
		{"3", "block size 3 is not a power of two: the kernel would report 2; use 2 or 4"},
		{"2147483647", "block size 2147483647 is not a power of two: the kernel would report 1073741824; use 1G or 2G"},
		{"0", "block size 0 cannot be reported: the kernel takes 0 for unset; use native or 1"},
		{"0G", "block size 0G cannot be reported: the kernel takes 0 for unset; use native or 1"},
		{"-8k", "block size -8k is negative; use 1"},
		{"2147483649", "block size 2147483649 is more than 2G, the largest that FUSE can report; use 2G"},
		{"4G", "block size 4G is more than 2G, the largest that FUSE can report; use 2G"},
		{"18446744073709551616", "block size 18446744073709551616 is more than 2G, the largest that FUSE can report; use 2G"},
		{"17179869184G", "block size 17179869184G is more than 2G, the largest that FUSE can report; use 2G"}, // 2^64
		{"1.5M", `block size "1.5M" is not a whole number; use a size like 128k, a preset like zfs, or native`},
		{"8x", `block size "8x" is neither a size nor a preset; use a size like 128k, a preset like zfs, or native`},
	}
	for _, tt := range tests {
		_, err := ParseBlksize(tt.word)
		if err == nil || err.Error() != tt.want {
			t.Errorf("ParseBlksize(%q)\n got %v\nwant %s", tt.word, err, tt.want)
		}
	}
	for _, word := range []string{"", "k", "-", "+8k", " 8k", "8k ", "8 k", "8kk", "8ki", "0x10", "1e3", "--8k", "zfs2", "8T", "٨k"} {
		var refusal *BlksizeError
		if _, err := ParseBlksize(word); !errors.As(err, &refusal) || refusal.Word != word || !strings.Contains(err.Error(), strconv.Quote(word)) {
			t.Errorf("ParseBlksize(%q): error %v, want a BlksizeError that names the word", word, err)
		}
	}
}

func TestBlksizeString(t *testing.T) {
	for b, want := range map[Blksize]string{
		Native: "native", 1: "1", 512: "512", 1 << 10: "1k", 8 << 10: "8k", 512 << 10: "512k",
		1 << 20: "1M", 512 << 20: "512M", 1 << 30: "1G", MaxBlksize: "2G", 3000: "3000",
	} {
		if got := b.String(); got != want {
			t.Errorf("Blksize(%d).String() = %q, want %q", uint32(b), got, want)
		}
	}
}

func TestBlksizeRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := Blksize(1) << rapid.IntRange(0, 31).Draw(t, "log2")
		if got, err := ParseBlksize(b.String()); err != nil || got != b {
			t.Fatalf("ParseBlksize(%q) = %d, %v; want %d", b.String(), got, err, b)
		}
		if got, err := ParseBlksize(strconv.Itoa(int(b))); err != nil || got != b {
			t.Fatalf("ParseBlksize(%d) = %d, %v", b, got, err)
		}
	})
}

// Every number is either taken as it is or refused with sizes that are taken,
// and for one between two powers of two those are its neighbours.
func TestBlksizeSuggestionsParse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64().Draw(t, "n") >> rapid.IntRange(0, 63).Draw(t, "shift")
		word := strconv.FormatInt(n, 10) + rapid.SampledFrom([]string{"", "k", "KiB", "M", "G"}).Draw(t, "unit")
		_, err := ParseBlksize(word)
		if err == nil {
			return
		}
		var refusal *BlksizeError
		if !errors.As(err, &refusal) || len(refusal.Use) == 0 {
			t.Fatalf("%s: %v suggests nothing", word, err)
		}
		for _, b := range refusal.Use {
			if got, err := ParseBlksize(b.String()); err != nil || got != b {
				t.Fatalf("%s: the suggested %s gives %d, %v", word, b, got, err)
			}
		}
	})
}

// The neighbours of every power of two, against plain arithmetic.
func TestBlksizeNeighbours(t *testing.T) {
	for log2 := 1; log2 <= 31; log2++ {
		for _, n := range []int64{1<<log2 - 1, 1<<log2 + 1} {
			if n&(n-1) == 0 || n > MaxBlksize {
				continue
			}
			var refusal *BlksizeError
			if _, err := ParseBlksize(strconv.FormatInt(n, 10)); !errors.As(err, &refusal) || len(refusal.Use) != 2 {
				t.Fatalf("%d: %v, want two suggestions", n, err)
			}
			low, high := int64(refusal.Use[0]), int64(refusal.Use[1])
			if !(low < n && n < high && high == 2*low) {
				t.Errorf("%d: suggests %d and %d", n, low, high)
			}
		}
	}
}
