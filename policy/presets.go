package policy

import "strings"

// Preset is a block size under the name of the filesystem that reports it.
type Preset struct {
	Name    string  // lower case
	Blksize Blksize // what a regular file there reports with default settings
	Source  string  // where the number comes from, and what changes it; for people
}

// Presets returns all presets, in the order in which to show them. The slice
// is the caller's.
func Presets() []Preset {
	return []Preset{
		{"ext4", 4 << 10, "i_blkbits is the filesystem's block size; mke2fs makes it 4k"},
		{"xfs", 4 << 10, "xfs_stat_blksize(): the larger of the page (4k on x86) and the block; more with -o largeio"},
		{"btrfs", 4 << 10, "i_blkbits is the sector size; mkfs.btrfs makes it 4k"},
		{"zfs", 128 << 10, "recordsize's default, SPA_OLD_MAXBLOCKSIZE; a file shorter than one record reports its own, smaller block"},
		{"nfs", 512 << 10, "s_blocksize is wsize; nfsd offers at most 1/4096 of its memory: 512k from 2 to 4 GiB, 1M above"},
		{"cifs", 1 << 20, "cifs_getattr(): the bsize mount option, CIFS_DEFAULT_IOSIZE"},
		{"cephfs", 4 << 20, "i_blkbits is the layout's stripe_unit, 1<<22 in file_layout_t::get_default()"},
		{"lustre", 4 << 20, "LL_MAX_BLKSIZE_BITS is 22; llite's stat_blocksize overrides it"},
	}
}

// findPreset looks a preset up by its name, in any case.
func findPreset(name string) (Preset, bool) {
	for _, p := range Presets() {
		if strings.EqualFold(p.Name, name) {
			return p, true
		}
	}
	return Preset{}, false
}
