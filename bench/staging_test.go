package bench

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestWindowCost(t *testing.T) {
	least := func(measure func() (windowCost, error)) windowCost {
		var best windowCost
		for i := range 5 { // the runtime has faults of its own now and then
			cost, err := measure()
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 || cost.faults < best.faults {
				best = cost
			}
		}
		return best
	}
	staged, zeroed := least(stagingWindowCost), least(zeroFilledCost)
	if staged.faults < 1 || staged.faults > 3 {
		t.Errorf("%v faults for 4k in a window", staged.faults)
	}
	if pages := float64(windowBytes / os.Getpagesize()); zeroed.faults < pages || zeroed.faults > pages+10 {
		t.Errorf("%v faults for a buffer of %v pages", zeroed.faults, pages)
	}
	if staged.milliseconds <= 0 || zeroed.milliseconds <= 0 {
		t.Errorf("it took %v and %v ms", staged.milliseconds, zeroed.milliseconds)
	}
}

func TestWritingRate(t *testing.T) {
	w := writing{bytes: 8 << 20, size: 4 << 10, unit: MiBPerSecond}
	if rate, err := w.rate("0.500000\n"); err != nil || rate != 16 {
		t.Errorf("8 MiB in half a second are %v, %v", rate, err)
	}
	w.unit = PerSecond
	if rate, err := w.rate("0.500000\n"); err != nil || rate != 4096 {
		t.Errorf("2048 writes in half a second are %v, %v", rate, err)
	}
	for _, bad := range []string{"", "0.000000\n", "-1\n", "soon\n"} {
		if rate, err := w.rate(bad); err == nil {
			t.Errorf("%q was taken for %v", bad, rate)
		}
	}
}

func TestWriter(t *testing.T) {
	requireCompiler(t)
	writer, err := Compile(t.Context(), "writer", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	subject, err := Attach(t.Context(), Native, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	direct, err := takesDirect(subject.source)
	if err != nil {
		t.Fatal(err)
	}
	var first []byte
	for _, how := range []string{"fsync", "direct", "sync", "append", "reopen"} {
		if how == "direct" && !direct {
			t.Log("no O_DIRECT here")
			continue
		}
		w := writing{how: how, bytes: 64 << 10, size: 16 << 10, unit: PerSecond}
		if rate, err := w.run(t.Context(), writer, subject); err != nil || rate <= 0 {
			t.Errorf("%s: %v a second, %v", how, rate, err)
		}
		content, err := os.ReadFile(filepath.Join(subject.Dir, stagedFile))
		if err != nil || int64(len(content)) != w.bytes {
			t.Errorf("%s wrote %d bytes, %v", how, len(content), err)
		}
		if first == nil {
			first = content
		}
		if !bytes.Equal(content, first) {
			t.Errorf("%s wrote something else", how)
		}
	}
	if _, err := (writing{how: "badly", bytes: 1, size: 1}).run(t.Context(), writer, subject); err == nil {
		t.Error("a way of writing that there is not was taken")
	}
}

func TestDropCached(t *testing.T) {
	dir := t.TempDir()
	if kind, err := filesystemType(dir); err != nil || kind == "tmpfs" {
		t.Skipf("this needs a disk, not %q, %v", kind, err)
	}
	path := filepath.Join(dir, "file")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := file.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := dropCached(path); err != nil {
		t.Error(err)
	}
	if err := dropCached(filepath.Join(dir, "none")); err == nil {
		t.Error("it dropped a file that is not there")
	}
}

func TestFioJob(t *testing.T) {
	subject, err := Attach(t.Context(), Native, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(subject.source, stagedFile), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, job := range []fioJob{
		{rw: "randwrite", bs: "4k", mib: 1, unit: PerSecond, fsync: true},
		{rw: "read", bs: "128k", mib: 1, unit: MiBPerSecond},
	} {
		if rate, err := job.run(t.Context(), subject); err != nil || rate <= 0 {
			t.Errorf("%+v: %v, %v", job, rate, err)
		}
	}
}
