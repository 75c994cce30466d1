package tests

import (
	"cmp"
	"embed"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Scripts that failed once, by the name of what went wrong. They run first, in every mode.
//
//go:embed testdata/model/*.txt
var failedScripts embed.FS

// modelBudget is how much a test does. TUNEFS_SOAK=1 is for long runs by hand, as long as -timeout allows.
type modelBudget struct {
	Seeds int
	Ops   int // for each seed
	Limit time.Duration
	Short time.Duration // to make a script short
}

// newModelBudget is for one of several parts of a test, each with this many seeds unless it is a soak.
func newModelBudget(t *testing.T, parts, seeds int) modelBudget {
	t.Helper()
	if os.Getenv("TUNEFS_SOAK") == "" {
		return modelBudget{Seeds: seeds, Ops: 500, Limit: 40 * time.Second, Short: time.Minute}
	}
	b := modelBudget{Seeds: 1 << 20, Ops: 1500, Limit: 4 * time.Hour, Short: 5 * time.Minute}
	if end, ok := t.Deadline(); ok {
		b.Limit = max(time.Until(end)-b.Short-time.Minute, time.Minute)
	}
	b.Limit /= time.Duration(parts)
	return b
}

// firstSeed is where the seeds start: at TUNEFS_SEED, to repeat or to extend a run.
func firstSeed(t testing.TB) uint64 {
	t.Helper()
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("TUNEFS_SEED"), "1"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return seed
}

// TestModel applies random operations of several users to a mount and to a plain folder and compares every
// result, and the trees.
func TestModel(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		budget := newModelBudget(t, len(modes()), 6)
		m := mount(t, withMode(mode), withArgs(sharedArgs()...), withLimit(budget.Limit+4*time.Minute))
		site := &modelSite{Plain: plainDir(t), Source: m.Source, Mount: m.Dir, Mode: mode, Cached: mode == "cached" || mode == "staged", Users: modelUsers()}
		site.test(t, budget)
	})
}

// TestModelSettings does the same with settings under which the kernel asks more or less often, and with files
// whose way of travelling depends on the folder that they are in at the time.
func TestModelSettings(t *testing.T) {
	below := func(dir, io string) string { return "--rule=run-*/root/" + dir + "/**=8k,io=" + io }
	settings := []struct {
		name, mode string
		args       []string
	}{
		{"passthrough, no caching", "passthrough", []string{"--attr-timeout=0s", "--entry-timeout=0s"}},
		{"passthrough, long caching", "passthrough", []string{"--attr-timeout=1h", "--entry-timeout=1h"}},
		{"passthrough, rules", "passthrough", []string{below("d", "direct"), below("f", "cached")}},
		{"cached, no caching", "cached", []string{"--attr-timeout=0s", "--entry-timeout=0s"}},
		{"cached, long caching", "cached", []string{"--attr-timeout=1h", "--entry-timeout=1h"}},
		{"cached, rules", "cached", []string{below("d", "direct")}},
		{"staged, no caching", "staged", []string{"--attr-timeout=0s", "--entry-timeout=0s"}},
		{"staged, small windows", "staged", []string{"--stage-size=64k", "--stage-memory=256k", "--attr-timeout=1h", "--flush-after=20ms"}},
		{"staged, idle", "staged", []string{"--flush-on=idle", "--flush-after=100ms"}},
		{"staged, direct reads", "staged", []string{"--direct-reads", "--stage-size=64k", "--stage-memory=256k"}},
		{"staged, no windows", "staged", []string{"--stage-size=0"}},
		{"staged, rules", "staged", []string{below("f", "cached")}},
		{"direct, small requests", "direct", []string{"--max-write=64k", "--attr-timeout=1h"}},
	}
	for _, s := range settings {
		t.Run(s.name, func(t *testing.T) {
			if s.mode == "passthrough" {
				requirePassthrough(t)
			}
			budget := newModelBudget(t, len(settings), 2)
			m := mount(t, withMode(s.mode), withArgs(append(s.args, sharedArgs()...)...), withLimit(budget.Limit+4*time.Minute))
			site := &modelSite{Plain: plainDir(t), Source: m.Source, Mount: m.Dir, Mode: s.mode, Cached: s.mode == "cached" || s.mode == "staged" || strings.Contains(s.name, "rules"), Users: modelUsers()}
			site.test(t, budget)
		})
	}
}

// TestModelUserMount does the same on a mount that an ordinary user made for himself.
func TestModelUserMount(t *testing.T) {
	requireRoot(t)
	requirePackages(t, "fuse3")
	budget := newModelBudget(t, 1, 6)
	u := ordinary()
	m := mount(t, asUser(u), withMode("cached"), withLimit(budget.Limit+4*time.Minute))
	site := &modelSite{Plain: plainDir(t), Source: m.Source, Mount: m.Dir, Mode: "cached", Cached: true, ByUser: true, Users: [modelWorkers]*user{&u, &u, &u}}
	site.test(t, budget)
}

// TestModelItself compares two plain folders: a mismatch is a fault of the comparison.
func TestModelItself(t *testing.T) {
	budget := newModelBudget(t, 1, 6)
	budget.Seeds = min(budget.Seeds, 100)
	dir := plainDir(t)
	site := &modelSite{Plain: plainDir(t), Source: dir, Mount: dir, Users: modelUsers()}
	site.test(t, budget)
}

// TestModelFindsFault hides a bit from the comparison, which must be found and brought down to a few
// operations.
func TestModelFindsFault(t *testing.T) {
	dir := plainDir(t)
	site := &modelSite{Plain: plainDir(t), Source: dir, Mount: dir, Users: modelUsers(), Fault: "setgid"}
	script, m, err := site.generate(1, 2000)
	if err != nil || m == nil {
		t.Fatalf("a hidden setgid bit was not found: %v", err)
	}
	script, m = site.shrink(script, m, 30*time.Second)
	if m == nil || len(script) > 4 {
		t.Errorf("not shrunk:\n%s%v", formatScript(script), m)
	}
}

// TestModelScript makes sure that what is printed can be read back.
func TestModelScript(t *testing.T) {
	dir := plainDir(t)
	site := &modelSite{Plain: plainDir(t), Source: dir, Mount: dir, Users: modelUsers()}
	script, _, err := site.generate(3, 400)
	if err != nil {
		t.Fatal(err)
	}
	again, err := parseScript(formatScript(script))
	if err != nil {
		t.Fatal(err)
	}
	for i := range script {
		if script[i] != again[i] {
			t.Fatalf("wrote %v, read %v", script[i], again[i])
		}
	}
}

// sharedArgs lets other users in; only root needs no permission of the machine for it.
func sharedArgs() []string {
	if os.Geteuid() != 0 {
		return nil
	}
	return []string{"--allow-other"}
}

// plainDir is a folder on the disk that the mounts' backing folders lie on.
func plainDir(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(scratch(t), "plain")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

// test replays what failed once and then runs seeds; with TUNEFS_SCRIPT only the script in that file.
func (s *modelSite) test(t *testing.T, b modelBudget) {
	t.Helper()
	if path := os.Getenv("TUNEFS_SCRIPT"); path != "" {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		s.repeat(t, path, string(text))
		return
	}
	s.repeatFailures(t)
	s.testSeeds(t, b)
}

// repeatFailures runs what failed once.
func (s *modelSite) repeatFailures(t *testing.T) {
	t.Helper()
	files, err := failedScripts.ReadDir("testdata/model")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := failedScripts.ReadFile("testdata/model/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		s.repeat(t, f.Name(), string(text))
	}
}

// repeat runs a script.
func (s *modelSite) repeat(t *testing.T, name, text string) {
	t.Helper()
	script, err := parseScript(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	switch m, err := s.replay(script); {
	case err != nil:
		t.Fatalf("%s: %v", name, err)
	case m != nil:
		t.Errorf("%s, %v", name, m)
	}
}

// testSeeds runs seeds until the budget is spent. Of mismatches of one class it reports the first.
func (s *modelSite) testSeeds(t *testing.T, b modelBudget) {
	t.Helper()
	end := time.Now().Add(b.Limit)
	first := firstSeed(t)
	known := map[string]bool{}
	for seed := first; seed < first+uint64(b.Seeds); seed++ {
		if time.Now().After(end) {
			t.Logf("time is up after %d of %d seeds", seed-first, b.Seeds)
			return
		}
		script, m, err := s.generate(seed, b.Ops)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if m != nil && !known[m.class()] {
			known[m.class()] = true
			s.report(t, seed, b.Short, script, m)
		}
	}
}

// report prints a mismatch with the shortest script that was found for it.
func (s *modelSite) report(t *testing.T, seed uint64, limit time.Duration, script []modelOp, m *mismatch) {
	t.Helper()
	t.Errorf("seed %d, %v", seed, m)
	if strings.HasPrefix(m.Got.Text, workerLost) {
		t.Fatalf("no answer; the script:\n%s", formatScript(script))
	}
	short, again := s.shrink(script, m, limit)
	if again == nil {
		t.Logf("the script does not fail again in a folder of its own:\n%s", formatScript(script))
		return
	}
	t.Logf("a script of %d operations that fails alike:\n%s%v", len(short), formatScript(short), again)
}
