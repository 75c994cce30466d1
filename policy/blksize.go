package policy

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// Blksize is an st_blksize in bytes: a power of two from 1 to [MaxBlksize],
// or [Native]. Other values cannot be reported: the kernel keeps only the
// base-2 logarithm of what a FUSE daemon answers. [ParseBlksize] returns no
// others.
type Blksize uint32

const (
	// Native stands for whatever the backing object reports. It is zero, which
	// no file can report through FUSE: the kernel takes zero for "unset".
	Native Blksize = 0

	// MaxBlksize is the largest size that can be reported, in bytes: the
	// protocol's field has 32 bits, and of those the highest power of two.
	MaxBlksize = 1 << 31
)

const (
	nativeName     = "native"
	blksizeExample = "use a size like 128k, a preset like zfs, or native"
)

// BlksizeError says why a word is not a block size.
type BlksizeError struct {
	Word   string    // as it was given
	Reason string    // what is wrong with it
	Use    []Blksize // the nearest sizes that work, ascending; empty if the word is no number
}

// Error names the word, the reason, and what to write instead.
func (e *BlksizeError) Error() string {
	if len(e.Use) == 0 {
		return fmt.Sprintf("block size %q %s; %s", e.Word, e.Reason, blksizeExample)
	}
	words := make([]string, len(e.Use))
	for i, b := range e.Use {
		words[i] = b.String()
	}
	return fmt.Sprintf("block size %s %s; use %s", e.Word, e.Reason, strings.Join(words, " or "))
}

// ParseBlksize reads a block size: a whole number of bytes, optionally with a
// unit, or the name of a preset (see [Presets]), or "native". Case does not
// matter.
//
// The units are powers of 1024 in every spelling: k, kB and KiB are all 1024
// bytes, and likewise M, MB, MiB and G, GB, GiB. A power of 1000 is never a
// power of two, so no spelling is needed for one.
//
// A size that the kernel would round, and one outside 1 to [MaxBlksize], is
// refused. The error is a [*BlksizeError].
func ParseBlksize(s string) (Blksize, error) {
	if strings.EqualFold(s, nativeName) {
		return Native, nil
	}
	if p, ok := findPreset(s); ok {
		return p.Blksize, nil
	}
	return parseSize(s)
}

// parseSize is ParseBlksize for numbers.
func parseSize(s string) (Blksize, error) {
	digits := strings.TrimPrefix(s, "-")
	end := 0
	for end < len(digits) && digits[end] >= '0' && digits[end] <= '9' {
		end++
	}
	shift, ok := unitShift(digits[end:])
	if end == 0 || !ok {
		return 0, &BlksizeError{Word: s, Reason: unreadable(digits[end:])}
	}
	if digits != s {
		return 0, &BlksizeError{Word: s, Reason: "is negative", Use: []Blksize{1}}
	}
	n, err := strconv.ParseUint(digits[:end], 10, 64)
	if errors.Is(err, strconv.ErrRange) || n > MaxBlksize>>shift {
		return 0, &BlksizeError{Word: s, Reason: "is more than 2G, the largest that FUSE can report", Use: []Blksize{MaxBlksize}}
	}
	return checkSize(s, n<<shift)
}

// checkSize turns a number of bytes, at most MaxBlksize, into a Blksize. The
// word is what the user wrote for it.
func checkSize(word string, n uint64) (Blksize, error) {
	if n == 0 {
		return 0, &BlksizeError{Word: word, Reason: "cannot be reported: the kernel takes 0 for unset", Use: []Blksize{Native, 1}}
	}
	below := uint64(1) << (bits.Len64(n) - 1)
	if below != n {
		return 0, &BlksizeError{
			Word:   word,
			Reason: fmt.Sprintf("is not a power of two: the kernel would report %d", below),
			Use:    []Blksize{Blksize(below), Blksize(below << 1)},
		}
	}
	return Blksize(n), nil
}

// unreadable says what is wrong with a word that is not a number and a unit,
// given what follows its digits.
func unreadable(rest string) string {
	if strings.HasPrefix(rest, ".") || strings.HasPrefix(rest, ",") {
		return "is not a whole number"
	}
	return "is neither a size nor a preset"
}

// unitShift returns the base-2 logarithm of a unit, and whether it is one.
func unitShift(unit string) (int, bool) {
	// ParseRule tries every '=' of a rule: don't lower all that follows each
	// time, when it is no unit anyway.
	if len(unit) > len("kib") {
		return 0, false
	}
	switch strings.ToLower(unit) {
	case "":
		return 0, true
	case "k", "kb", "kib":
		return 10, true
	case "m", "mb", "mib":
		return 20, true
	case "g", "gb", "gib":
		return 30, true
	}
	return 0, false
}

// String returns the shortest form that [ParseBlksize] takes: "native",
// "512", "8k", "1M", "2G".
func (b Blksize) String() string {
	switch {
	case b == Native:
		return nativeName
	case b%(1<<30) == 0:
		return strconv.Itoa(int(b>>30)) + "G"
	case b%(1<<20) == 0:
		return strconv.Itoa(int(b>>20)) + "M"
	case b%(1<<10) == 0:
		return strconv.Itoa(int(b>>10)) + "k"
	}
	return strconv.Itoa(int(b))
}
