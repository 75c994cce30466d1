package policy

import (
	"strings"
	"testing"
)

func TestPresetsParse(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range Presets() {
		if seen[p.Name] || p.Name != strings.ToLower(p.Name) || p.Source == "" {
			t.Errorf("%+v: twice, not in lower case, or without a source", p)
		}
		seen[p.Name] = true
		for _, word := range []string{p.Name, strings.ToUpper(p.Name), p.Blksize.String()} {
			if got, err := ParseBlksize(word); err != nil || got != p.Blksize {
				t.Errorf("ParseBlksize(%q) = %v, %v; want %v", word, got, err, p.Blksize)
			}
		}
	}
	if seen[nativeName] {
		t.Errorf("%q hides native", nativeName)
	}
}

func TestPresetSizes(t *testing.T) {
	want := map[string]Blksize{
		"ext4": 4 << 10, "xfs": 4 << 10, "btrfs": 4 << 10, "zfs": 128 << 10,
		"nfs": 512 << 10, "cifs": 1 << 20, "cephfs": 4 << 20, "lustre": 4 << 20,
	}
	for _, p := range Presets() {
		if p.Blksize != want[p.Name] {
			t.Errorf("%s is %v, want %v", p.Name, p.Blksize, want[p.Name])
		}
		delete(want, p.Name)
	}
	if len(want) > 0 {
		t.Errorf("no presets for %v", want)
	}
}

func TestPresetsAreTheCallers(t *testing.T) {
	Presets()[0].Blksize = 1
	if got := Presets()[0].Blksize; got == 1 {
		t.Error("changing the returned slice changed the presets")
	}
}
