package main

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"tunefs/fs"
	"tunefs/gds"
	"tunefs/policy"
)

func parse(t *testing.T, args ...string) settings {
	t.Helper()
	e, _, _ := testEnv(nil)
	s, err := parseMount(e, append(args, "/src", "/mnt"))
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return s
}

// defaultStaging is what the flags of the staged mode say when none is given.
var defaultStaging = stagingFlags{window: 32 << 20, memory: 256 << 20, backend: gds.Auto, flushOn: onClose, after: 5 * time.Second, workers: 4}

func TestMountDefaults(t *testing.T) {
	want := settings{
		source: "/src", mountpoint: "/mnt", logLevel: slog.LevelInfo, staging: defaultStaging,
		options: fs.Options{
			Policy:      policy.Policy{Blksize: 128 << 10, IO: policy.Auto},
			AttrTimeout: time.Second, EntryTimeout: time.Second, MaxWrite: 1 << 20,
		},
	}
	if got := parse(t); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// Every setting by flags, and the same by -o.
func TestMountSettings(t *testing.T) {
	want := settings{
		source: "/src", mountpoint: "/mnt", logFile: "/log", logLevel: slog.LevelDebug, foreground: true, staging: defaultStaging,
		options: fs.Options{
			Policy: policy.Policy{Blksize: 1 << 20, IO: policy.Direct, Rules: []policy.Rule{
				{Glob: "*.db", Blksize: 4 << 10, IO: policy.Cached}, {Glob: "big/**", Blksize: 4 << 20},
			}},
			StatfsBsize: 8 << 10, AttrTimeout: 0, EntryTimeout: 500 * time.Millisecond,
			MaxWrite: 256 << 10, Readahead: 2 << 20, AllowOther: true, MountOptions: []string{"ro"},
		},
	}
	byFlags := []string{"--blksize=1M", "--io=direct", "--rule=*.db=4k,io=cached", "--rule=big/**=4M", "--statfs-bsize=8k",
		"--attr-timeout=0s", "--entry-timeout=500ms", "--max-write=256k", "--readahead=2M", "--allow-other", "--ro",
		"-f", "--log-file=/log", "--log-level=debug"}
	byOptions := []string{"-o", `blksize=1M,io=direct,rule=*.db=4k\,io=cached,rule=big/**=4M,statfs_bsize=8k`,
		"-o", "attr-timeout=0s,entry_timeout=500ms,max_write=256k,readahead=2M,allow_other,ro,foreground,log-file=/log,log_level=debug"}
	for _, args := range [][]string{byFlags, byOptions} {
		if got := parse(t, args...); !reflect.DeepEqual(got, want) {
			t.Errorf("%q:\ngot  %+v\nwant %+v", args, got, want)
		}
	}
}

func TestPathsBecomeAbsolute(t *testing.T) {
	e, _, _ := testEnv(nil)
	s, err := parseMount(e, []string{"src", "mnt/../mnt", "--log-file=log"})
	if err != nil {
		t.Fatal(err)
	}
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for got, want := range map[string]string{s.source: "src", s.mountpoint: "mnt", s.logFile: "log"} {
		if got != filepath.Join(wd, want) {
			t.Errorf("got %s, want %s in %s", got, want, wd)
		}
	}
}

func TestRefusedSettings(t *testing.T) {
	for _, tc := range []struct{ args, says string }{
		{"--blksize=3000", "2k or 4k"},
		{"--blksize=196608", "128k or 256k"},
		{"--blksize=0", "cannot be reported"},
		{"--blksize=4G", "2G"},
		{"--statfs-bsize=5", "4 or 8"},
		{"--io=fast", "passthrough, cached, direct or staged"},
		{"--rule=*.log", "a rule reads"},
		{"--rule=*.log=4k,io=auto", "io=direct or io=cached"},
		{"--io=staged --stage-size=3M", "not a power of two from 64k to 1G"},
		{"--io=staged --stage-size=32k", "not a power of two from 64k to 1G"},
		{"--io=staged --stage-memory=63M", "does not hold two windows of --stage-size=32M; give it 64M or more"},
		{"--io=staged --stage-memory=0", "not a size"},
		{"--io=staged --backend=tape", "none of auto, direct, buffered"},
		{"--io=staged --flush-on=never", "close or idle"},
		{"--io=staged --flush-after=-1s", "cannot be negative"},
		{"--io=staged --direct-reads --stage-size=0", "needs windows"},
		{"--io=staged --flush-workers=0", "1 or more"},
		{"--io=cached --stage-size=4M", "--stage-size has no meaning without --io=staged"},
		{"-o flush_on=idle", "--flush-on has no meaning without --io=staged"},
		{"--rule=*.log=4k,io=staged", "io=direct or io=cached"},
		{"--max-write=3M", "not a power of two"},
		{"--max-write=512", "at least"},
		{"--max-write=1T", "not a size"},
		{"--readahead=100", "not a multiple"},
		{"--readahead=-4k", "not a size"},
		{"--log-level=loud", "debug, info, warn or error"},
		{"--attr-timeout=1", "invalid"},
		{"--ro -o rw", "contradict"},
		{"--blksize=8k -o blksize=4k", "--blksize=8k and -o blksize=4k contradict"},
		{"-o blksize", "needs a value, as in blksize=128k"},
		{"-o rule", "needs a value, as in rule=*.log=4k"},
		{"-o allow_other=maybe", "option allow_other"},
		{"-o blksise=4k", `unknown option "blksise"; did you mean blksize?`},
		{"-o noatimes", `unknown option "noatimes"; did you mean noatime?`},
		{"-o ro=1=2", "option ro"},
		{"-o options=ro", "unknown option"},
		{"-o ready-fd=3", "unknown option"},
		{"-o fsname=x", "always SOURCE"},
		{"-o subtype=x", "always fuse.tunefs"},
		{"-o remount,ro", "mount it anew"},
		{`-o "ro`, "not closed"},
	} {
		e, _, _ := testEnv(nil)
		_, err := parseMount(e, append(strings.Fields(tc.args), "/src", "/mnt"))
		if !errors.As(err, new(usageError)) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: error %v; want a usage error with %q", tc.args, err, tc.says)
		}
	}
}

// The flags of the staged mode, and the same by -o.
func TestStagedSettings(t *testing.T) {
	want := stagingFlags{window: 4 << 20, memory: 4 << 30, backend: gds.Buffered, flushOn: onIdle, after: 0, workers: 8, direct: true}
	for _, args := range [][]string{
		{"--io=staged", "--stage-size=4M", "--stage-memory=4G", "--backend=buffered", "--flush-on=idle", "--flush-after=0s", "--flush-workers=8", "--direct-reads"},
		{"-o", "io=staged,stage_size=4MiB,stage_memory=4096M,backend=buffered,flush_on=Idle,flush_after=0s,flush_workers=8,direct_reads"},
	} {
		if got := parse(t, args...); got.staging != want || got.options.Policy.IO != policy.Staged {
			t.Errorf("%q: got %+v", args, got.staging)
		}
	}
}

// The same said twice is no contradiction, and a rule is never one.
func TestFlagAndOptionAgree(t *testing.T) {
	s := parse(t, "--blksize=128KiB", "--rule=a=4k", "-o", "blksize=131072,rule=b=8k", "--ro", "-o", "ro")
	if s.options.Policy.Blksize != 128<<10 || len(s.options.Policy.Rules) != 2 || s.options.Policy.Rules[0].Glob != "a" {
		t.Errorf("got %+v", s.options.Policy)
	}
}

func TestHelpIsNoError(t *testing.T) {
	e, out, _ := testEnv(nil)
	if _, err := parseMount(e, []string{"--help"}); !errors.Is(err, pflag.ErrHelp) {
		t.Errorf("error %v", err)
	}
	for _, p := range policy.Presets() {
		if !strings.Contains(out.String(), p.Name) {
			t.Errorf("help does not name the preset %s", p.Name)
		}
	}
	if strings.Contains(out.String(), "ready-fd") {
		t.Error("help shows what is for the program itself")
	}
}
