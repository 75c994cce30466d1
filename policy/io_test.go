package policy

import (
	"strings"
	"testing"
)

func TestParseIO(t *testing.T) {
	for _, want := range []IO{Auto, Passthrough, Cached, Direct, Staged} {
		for _, word := range []string{want.String(), strings.ToUpper(want.String())} {
			if got, err := ParseIO(word); err != nil || got != want {
				t.Errorf("ParseIO(%q) = %v, %v", word, got, err)
			}
		}
	}
}

func TestParseIORefuses(t *testing.T) {
	for _, word := range []string{"", "dircet", "direct ", "stage", "0"} {
		_, err := ParseIO(word)
		if err == nil || !strings.Contains(err.Error(), `"`+word+`"; use auto, passthrough, cached, direct or staged`) {
			t.Errorf("ParseIO(%q): error %v", word, err)
		}
	}
}

func TestIOStringOfNoMode(t *testing.T) {
	if got := IO(9).String(); got != "IO(9)" {
		t.Errorf("IO(9).String() = %q", got)
	}
}
