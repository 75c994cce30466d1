package main

import (
	"testing"

	"pgregory.net/rapid"
)

func TestParseBytes(t *testing.T) {
	for s, want := range map[string]int{"0": 0, "4096": 4096, "4k": 4096, "4KB": 4096, "4KiB": 4096, "1M": 1 << 20, "1MiB": 1 << 20, "1G": 1 << 30} {
		if got, err := parseBytes(s); err != nil || got != want {
			t.Errorf("parseBytes(%q) = %d, %v; want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "k", "-1", "+1", "1.5M", "2G", "1kk", "1T", "4 k", "0x10", "99999999999999999999"} {
		if got, err := parseBytes(s); err == nil {
			t.Errorf("parseBytes(%q) = %d, want an error", s, got)
		}
	}
}

func TestFormatBytesIsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 1<<31-1).Draw(t, "n")
		if got, err := parseBytes(formatBytes(n)); err != nil || got != n {
			t.Fatalf("%d became %q and then %d, %v", n, formatBytes(n), got, err)
		}
	})
}
