package policy

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseRule(t *testing.T) {
	tests := []struct {
		in   string
		want Rule
	}{
		{"*.log=8k", Rule{"*.log", 8 << 10, Auto}},
		{"**/*.log=1M,io=direct", Rule{"**/*.log", 1 << 20, Direct}},
		{"**=zfs,IO=Cached", Rule{"**", 128 << 10, Cached}},
		{"db/**=native", Rule{"db/**", Native, Auto}},
		{"/etc/*=4k", Rule{"etc/*", 4 << 10, Auto}},
		{"//etc=4k", Rule{"etc", 4 << 10, Auto}},
		{"/=4k", Rule{"", 4 << 10, Auto}},
		// '=' and ',' in globs
		{"year=2024/month=01/*=1M", Rule{"year=2024/month=01/*", 1 << 20, Auto}},
		{"year=2024/*=1M,io=direct", Rule{"year=2024/*", 1 << 20, Direct}},
		{"size=8k=4k", Rule{"size=8k", 4 << 10, Auto}},
		{"size=8k=4k,io=direct", Rule{"size=8k", 4 << 10, Direct}},
		{"host=a,region=b=8k", Rule{"host=a,region=b", 8 << 10, Auto}},
		{"k=v,w=8k", Rule{"k=v,w", 8 << 10, Auto}},
		{"{a=8k,b=4k}.log=1M", Rule{"{a=8k,b=4k}.log", 1 << 20, Auto}},
		{"{a,b}.log=1M,io=cached", Rule{"{a,b}.log", 1 << 20, Cached}},
		{"x,io=8k", Rule{"x,io", 8 << 10, Auto}},
		{"a[=]8k,io=4k", Rule{"a[=]8k,io", 4 << 10, Auto}},
		{"==8k", Rule{"=", 8 << 10, Auto}},
		{"a\nb=8k", Rule{"a\nb", 8 << 10, Auto}},
	}
	for _, tt := range tests {
		got, err := ParseRule(tt.in)
		if err != nil || got != tt.want {
			t.Errorf("ParseRule(%q) = %+v, %v; want %+v", tt.in, got, err, tt.want)
		}
	}
}

func TestParseRuleRefuses(t *testing.T) {
	tests := []struct{ in, want string }{
		{"", "there is no '='"},
		{"*.log", "there is no '='"},
		{"=8k", "the glob is empty"},
		{"*.log=", `block size "" is neither`},
		{"*.log=9k", "block size 9k is not a power of two: the kernel would report 8192; use 8k or 16k"},
		{"*.log=9k,io=direct", "block size 9k is not"},
		{"*.log=big,io=direct", `block size "big" is neither`},
		{"year=2024/*", `block size "2024/*" is neither`},
		{"*.log,io=direct", "there is no block size before ',io='"},
		{"*.log=8k,io=passthrough", "io=passthrough is for whole mounts: a mount has one base mode"},
		{"*.log=8k,io=auto", "io=auto is for whole mounts: a mount has one base mode"},
		{"*.log=8k,io=", `io "" is not a rule's I/O mode; use io=direct or io=cached`},
		{"*.log=8k,io", `io "" is not a rule's I/O mode`},
		{"*.log=8k,io=dircet", `io "dircet" is not`},
		{"*.log=8k,io=4k", `io "4k" is not`},
		{"*.log=8k,io=direct,io=cached", `io "direct,io=cached" is not`},
		{"*.log=8k,oi=direct", `unknown option "oi"; the only one is io, as in io=direct`},
		{"*.log=8k,direct", `unknown option "direct"`},
		{"*.log=8k,bs=4k", `unknown option "bs"`},
		{"*.log=8k,", `unknown option ""`},
		{"logs/=8k", "no path ends with a slash; use 'logs/**'"},
		{"[a-=8k", `glob "[a-" is not a valid pattern`},
		{"{a,b=8k", `glob "{a,b" is not a valid pattern`},
		{`a\=8k`, `glob "a\\" is not a valid pattern`},
	}
	for _, tt := range tests {
		r, err := ParseRule(tt.in)
		if err == nil {
			t.Errorf("ParseRule(%q) = %+v, want an error", tt.in, r)
			continue
		}
		if got := err.Error(); !strings.HasPrefix(got, "rule ") || !strings.Contains(got, tt.want) {
			t.Errorf("ParseRule(%q):\n got %s\nwant it to contain %s", tt.in, got, tt.want)
		}
	}
}

// Every '=' of a rule is tried. That took seconds for this one while each
// trial lowered all that follows.
func TestParseRuleOfManyEqualsSigns(t *testing.T) {
	start := time.Now()
	if _, err := ParseRule(strings.Repeat("=", 64<<10)); err == nil {
		t.Error("accepted")
	}
	if took := time.Since(start); took > time.Second {
		t.Errorf("took %v", took)
	}
}

func TestParseRuleUnwraps(t *testing.T) {
	_, err := ParseRule("*=9k")
	var refusal *BlksizeError
	if !errors.As(err, &refusal) || refusal.Word != "9k" {
		t.Errorf("error %v does not unwrap to the BlksizeError of 9k", err)
	}
}

// The table in Rule's comment, and its neighbours.
func TestRuleMatches(t *testing.T) {
	tests := []struct {
		glob     string
		yes, not []string
	}{
		{"", []string{""}, []string{"a", "a/b"}},
		{"*", []string{"", "a", ".hidden"}, []string{"a/b"}},
		{"**", []string{"", "a", "a/b/c", "a/.hidden"}, nil},
		{"*.log", []string{"run.log", ".log"}, []string{"", "logs/run.log", "run.log/x", "run.LOG"}},
		{"**/*.log", []string{"run.log", "logs/run.log", "logs/old/run.log"}, []string{"run.txt"}},
		{"logs/*", []string{"logs/run.log"}, []string{"logs", "logs/old/run.log"}},
		{"logs/**", []string{"logs", "logs/run.log", "logs/old/run.log"}, []string{"logs2/run.log", "x/logs/run.log"}},
		{"a/**b", []string{"a/xb"}, []string{"a/x/b"}},
		{"{a,b}/x", []string{"a/x", "b/x"}, []string{"c/x"}},
		{"[!a-c]?", []string{"dx"}, []string{"ax", "d", "d/"}},
		{`\*`, []string{"*"}, []string{"a"}},
	}
	for _, tt := range tests {
		r := Rule{Glob: tt.glob}
		for _, path := range tt.yes {
			if !r.matches(path) {
				t.Errorf("%q does not match %q", tt.glob, path)
			}
		}
		for _, path := range tt.not {
			if r.matches(path) {
				t.Errorf("%q matches %q", tt.glob, path)
			}
		}
	}
}

func TestRuleRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Rule{
			Glob:    rapid.StringMatching(`[a-z*?=.]([a-z0-9*?=./]{0,8}[a-z])?`).Draw(t, "glob"),
			Blksize: rapid.SampledFrom([]Blksize{Native, 1, 512, 4 << 10, MaxBlksize}).Draw(t, "blksize"),
			IO:      rapid.SampledFrom([]IO{Auto, Cached, Direct}).Draw(t, "io"),
		}
		if got, err := ParseRule(want.String()); err != nil || got != want {
			t.Fatalf("ParseRule(%q) = %+v, %v; want %+v", want, got, err, want)
		}
	})
}

// Whatever is accepted holds what Rule promises and survives being written
// and read again; whatever is not is refused with a reason.
func FuzzParseRule(f *testing.F) {
	for _, s := range []string{
		"*.log=8k", "**/*.log=1M,io=direct", "k=v/*=native,io=cached", "{a,b}=zfs", "/=4k", "a=8k,io=4k",
		"[=]=1", `\==2G`, "a=196608", "=", ",io=direct", "logs/=8k", "a=8k,io=passthrough", "\xff=1k",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseRule(s)
		if err != nil {
			if r != (Rule{}) || err.Error() == "" {
				t.Fatalf("ParseRule(%q) = %+v with error %q", s, r, err)
			}
			return
		}
		if r.Blksize&(r.Blksize-1) != 0 || r.IO == Passthrough || r.IO > Direct || strings.HasPrefix(r.Glob, "/") {
			t.Fatalf("ParseRule(%q) = %+v", s, r)
		}
		if again, err := ParseRule(r.String()); err != nil || again != r {
			t.Fatalf("ParseRule(%q) = %+v; as %q it gives %+v, %v", s, r, r, again, err)
		}
		// Matching takes exponential time in the number of brace groups.
		if len(s) < 64 {
			p := Policy{Rules: []Rule{r}}
			p.Decide(s)
		}
	})
}
