package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tunefs/fs"
)

// diagnose runs doctor with mounts that behave as mount says.
func diagnose(t *testing.T, mount mountFunc, args ...string) map[string]finding {
	t.Helper()
	var out bytes.Buffer
	if err := runDoctor(env{out: &out, mount: mount}, append([]string{"--json"}, args...)); err != nil {
		t.Fatal(err)
	}
	var list []finding
	if err := json.Unmarshal(out.Bytes(), &list); err != nil {
		t.Fatalf("%v in %s", err, out.String())
	}
	found := make(map[string]finding)
	for _, f := range list {
		if f.Result == "" {
			t.Errorf("%s has found nothing", f.Check)
		}
		if _, twice := found[f.Check]; twice {
			t.Errorf("%s is there twice", f.Check)
		}
		found[f.Check] = f
	}
	return found
}

func TestDoctorLeavesNothingBehind(t *testing.T) {
	source, temp := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", temp)
	mount := func(_, mountpoint string, _ fs.Options) (mounted, error) {
		return &fakeMount{gone: make(chan struct{}), done: make(chan struct{})}, nil
	}
	found := diagnose(t, mount, source)
	for _, check := range []string{"kernel", "passthrough", "request size", "io_uring", "SOURCE", "O_DIRECT", "user xattrs", "reflink"} {
		if found[check].Check == "" {
			t.Errorf("%s is missing", check)
		}
	}
	for _, dir := range []string{source, temp} {
		left, err := os.ReadDir(dir)
		if err != nil || len(left) > 0 {
			t.Errorf("left behind in %s: %v, %v", dir, left, err)
		}
	}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skip("no /dev/fuse, so no mount was tried")
	}
	if got := found["--io=auto"].Result; got != "chooses cached, since it is a fake" {
		t.Errorf("auto %s", got)
	}
}

func TestDoctorWithoutSource(t *testing.T) {
	found := diagnose(t, func(string, string, fs.Options) (mounted, error) {
		t.Error("something was mounted")
		return nil, errors.New("no")
	})
	if _, ok := found["SOURCE"]; ok {
		t.Error("a SOURCE was found")
	}
}

func TestDoctorSaysWhyItCannotMount(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	found := diagnose(t, func(string, string, fs.Options) (mounted, error) { return nil, errors.New("odd") }, t.TempDir())
	if f := found["--io=auto"]; f.OK || !strings.Contains(f.Result, "cannot mount: ") {
		t.Errorf("got %+v", f)
	}
}

func TestDoctorTable(t *testing.T) {
	e, out, _ := testEnv(nil)
	if err := printFindings(e, []finding{{"one", true, "is", ""}, {"two", false, "is not", "do it"}}, false); err != nil {
		t.Fatal(err)
	}
	var rows [][]string
	for line := range strings.Lines(out.String()) {
		if cells := strings.Split(line, "|"); len(cells) > 1 {
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			rows = append(rows, cells[1:5])
		}
	}
	want := [][]string{{"CHECK", "", "RESULT", "WHAT TO DO"}, {"one", "ok", "is", ""}, {"two", "no", "is not", "do it"}}
	if !slices.EqualFunc(rows, want, slices.Equal[[]string]) {
		t.Errorf("got %q", rows)
	}
}

func TestFindPassthrough(t *testing.T) {
	with, without := map[string]bool{"CONFIG_FUSE_PASSTHROUGH": true}, map[string]bool{}
	for _, tc := range []struct {
		privileged bool
		config     map[string]bool
		ok         bool
		says       string
	}{
		{true, with, true, "you may use it"},
		{true, nil, true, "if this kernel has it"},
		{true, without, false, "built without it"},
		{false, with, false, "only root"},
	} {
		f := host{privileged: tc.privileged}.findPassthrough(tc.config)
		if f.OK != tc.ok || !strings.Contains(f.Result, tc.says) {
			t.Errorf("%+v: found %+v", tc, f)
		}
	}
}

func TestParseConfig(t *testing.T) {
	got := parseConfig(strings.NewReader("# a comment\nCONFIG_FUSE_FS=m\nCONFIG_FUSE_PASSTHROUGH=y\n# CONFIG_FUSE_IO_URING is not set\nCONFIG_EXT4_FS=y\n"))
	if len(got) != 2 || !got["CONFIG_FUSE_FS"] || !got["CONFIG_FUSE_PASSTHROUGH"] {
		t.Errorf("got %v", got)
	}
}

func TestFindURing(t *testing.T) {
	parameter := filepath.Join(t.TempDir(), "enable_uring")
	if f := findURing(parameter); f.OK || !strings.Contains(f.Result, "no FUSE over io_uring") {
		t.Errorf("without it: %+v", f)
	}
	for value, ok := range map[string]bool{"N\n": false, "Y\n": true} {
		if err := os.WriteFile(parameter, []byte(value), 0o644); err != nil {
			t.Fatal(err)
		}
		if f := findURing(parameter); f.OK != ok || (!ok && !strings.Contains(f.Advice, parameter)) {
			t.Errorf("%q: %+v", value, f)
		}
	}
}

func TestFindPipeSize(t *testing.T) {
	if f := findPipeSize(4096); !f.OK {
		t.Errorf("a page does not fit: %+v", f)
	}
	if f := findPipeSize(1 << 40); f.OK || !strings.Contains(f.Advice, "fs.pipe-max-size=") {
		t.Errorf("a terabyte fits: %+v", f)
	}
}
