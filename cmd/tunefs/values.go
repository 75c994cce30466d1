package main

import (
	"fmt"
	"log/slog"
	"math"
	"math/bits"
	"os"
	"strconv"
	"strings"

	"tunefs/policy"
)

// The types of flag values. Each refuses what it cannot hold, with a message
// that says what to write instead; so they serve flags and -o words alike.

// blksizeValue is a --blksize or --statfs-bsize.
type blksizeValue policy.Blksize

func (v *blksizeValue) String() string { return policy.Blksize(*v).String() }
func (v *blksizeValue) Type() string   { return "SIZE" }

func (v *blksizeValue) Set(s string) error {
	b, err := policy.ParseBlksize(s)
	if err == nil {
		*v = blksizeValue(b)
	}
	return err
}

// ioValue is an --io.
type ioValue policy.IO

func (v *ioValue) String() string { return policy.IO(*v).String() }
func (v *ioValue) Type() string   { return "MODE" }

func (v *ioValue) Set(s string) error {
	m, err := policy.ParseIO(s)
	if err == nil {
		*v = ioValue(m)
	}
	return err
}

// rulesValue gathers the --rule flags, in their order.
type rulesValue []policy.Rule

func (v *rulesValue) Type() string { return "RULE" }

func (v *rulesValue) String() string {
	words := make([]string, len(*v))
	for i, r := range *v {
		words[i] = r.String()
	}
	return strings.Join(words, " ")
}

func (v *rulesValue) Set(s string) error {
	r, err := policy.ParseRule(s)
	if err == nil {
		*v = append(*v, r)
	}
	return err
}

// levelValue is a --log-level.
type levelValue slog.Level

func (v *levelValue) String() string { return strings.ToLower(slog.Level(*v).String()) }
func (v *levelValue) Type() string   { return "LEVEL" }

func (v *levelValue) Set(s string) error {
	for _, l := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		if strings.EqualFold(s, l.String()) {
			*v = levelValue(l)
			return nil
		}
	}
	return fmt.Errorf("unknown level %q; use debug, info, warn or error", s)
}

// maxWriteValue is a --max-write in bytes: a power of two of at least a page.
// How much the kernel allows is not its business but preflight's.
type maxWriteValue int

func (v *maxWriteValue) String() string { return formatBytes(int(*v)) }
func (v *maxWriteValue) Type() string   { return "SIZE" }

func (v *maxWriteValue) Set(s string) error {
	n, err := parseBytes(s)
	if err != nil {
		return err
	}
	page := os.Getpagesize()
	if n < page || bits.OnesCount(uint(n)) != 1 {
		return fmt.Errorf("%s is not a power of two of at least %s; use one like 128k or 1M", s, formatBytes(page))
	}
	*v = maxWriteValue(n)
	return nil
}

// readaheadValue is a --readahead in bytes: whole pages, or 0 for the kernel's
// own choice.
type readaheadValue int

func (v *readaheadValue) String() string { return formatBytes(int(*v)) }
func (v *readaheadValue) Type() string   { return "SIZE" }

func (v *readaheadValue) Set(s string) error {
	n, err := parseBytes(s)
	if err != nil {
		return err
	}
	if page := os.Getpagesize(); n%page != 0 {
		return fmt.Errorf("%s is not a multiple of %s; use one like 128k or 1M, or 0 for the kernel's default", s, formatBytes(page))
	}
	*v = readaheadValue(n)
	return nil
}

// parseBytes reads what no request and no readahead is larger than: at most
// 2 GiB - 1.
func parseBytes(s string) (int, error) {
	n, ok := parseSize(s)
	if !ok || n > math.MaxInt32 {
		return 0, fmt.Errorf("%q is not a size below 2G; use one like 64k or 1M", s)
	}
	return int(n), nil
}

// parseSize reads a number of bytes with an optional unit, of 1024 in every
// spelling, as block sizes have them.
func parseSize(s string) (n int64, ok bool) {
	digits := strings.TrimRight(s, "kKmMgGiIbB")
	count, err := strconv.ParseUint(digits, 10, 31)
	var unit uint64
	switch strings.ToLower(s[len(digits):]) {
	case "":
		unit = 1
	case "k", "kb", "kib":
		unit = 1 << 10
	case "m", "mb", "mib":
		unit = 1 << 20
	case "g", "gb", "gib":
		unit = 1 << 30
	}
	return int64(count * unit), err == nil && unit != 0
}

// formatBytes is the shortest form of n that parseSize reads back.
func formatBytes[T int | int64](n T) string {
	for _, u := range []struct {
		size int64
		name string
	}{{1 << 30, "G"}, {1 << 20, "M"}, {1 << 10, "k"}} {
		if n != 0 && int64(n)%u.size == 0 {
			return strconv.FormatInt(int64(n)/u.size, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(n), 10)
}
