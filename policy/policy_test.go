package policy

import (
	"testing"
)

// mustRules parses rules, in order.
func mustRules(t testing.TB, words ...string) []Rule {
	t.Helper()
	rules := make([]Rule, len(words))
	for i, w := range words {
		r, err := ParseRule(w)
		if err != nil {
			t.Fatal(err)
		}
		rules[i] = r
	}
	return rules
}

func TestDecide(t *testing.T) {
	p := Policy{Blksize: 128 << 10, IO: Passthrough, Rules: mustRules(t,
		"/=1M",
		"db/wal/*=8k,io=direct",
		"db/**=native",
		"**/*.log=4k,io=cached",
		"db/never=1k", // behind db/**
	)}
	tests := []struct {
		path string
		want Decision
	}{
		{"", Decision{1 << 20, Passthrough}},
		{"readme", Decision{128 << 10, Passthrough}},
		{"db", Decision{Native, Passthrough}},
		{"db/wal/1", Decision{8 << 10, Direct}},
		{"db/run.log", Decision{Native, Passthrough}}, // the first match decides alone
		{"db/never", Decision{Native, Passthrough}},
		{"run.log", Decision{4 << 10, Cached}},
		{"a/b/run.log", Decision{4 << 10, Cached}},
	}
	for _, tt := range tests {
		if got := p.Decide(tt.path); got != tt.want {
			t.Errorf("Decide(%q) = %v, want %v", tt.path, got, tt.want)
		}
	}
}

func TestDecideWithoutRules(t *testing.T) {
	var zero Policy
	if got := zero.Decide("a/b"); got != (Decision{Native, Auto}) {
		t.Errorf("the zero policy decides %v", got)
	}
	p := Policy{Blksize: 4 << 20, IO: Direct}
	for _, path := range []string{"", "a", "a/b"} {
		if got := p.Decide(path); got != (Decision{4 << 20, Direct}) {
			t.Errorf("Decide(%q) = %v", path, got)
		}
	}
}

func TestStatic(t *testing.T) {
	if p := (Policy{Blksize: 1}); !p.Static() {
		t.Error("a policy without rules is not static")
	}
	if p := (Policy{Rules: mustRules(t, "*=1")}); p.Static() {
		t.Error("a policy with a rule is static")
	}
}

func TestDecideDoesNotAllocate(t *testing.T) {
	policies := map[string]Policy{
		"no rules": {Blksize: 8 << 10, IO: Direct},
		"rules":    {Rules: mustRules(t, "*.log=8k", "logs/**=1M", "**/[a-c]*.txt=4k,io=direct")},
	}
	for name, p := range policies {
		if n := testing.AllocsPerRun(100, func() { p.Decide("src/deep/down/apple.txt") }); n != 0 {
			t.Errorf("%s: %v allocations per decision", name, n)
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	for name, p := range map[string]Policy{
		"none":  {Blksize: 8 << 10},
		"three": {Rules: mustRules(b, "*.log=8k", "logs/**=1M", "**/[a-c]*.txt=4k")},
		"brace": {Rules: mustRules(b, "{src,lib}/**/*.{log,txt}=8k")},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p.Decide("src/deep/down/apple.txt")
			}
		})
	}
}
