package gds

import "fmt"

// Choice says which backend is wanted.
type Choice uint8

const (
	Auto     Choice = iota // the best that the file allows
	Direct                 // O_DIRECT, or Open fails
	Buffered               // the page cache
)

var choices = [...]string{Auto: "auto", Direct: "direct", Buffered: "buffered"}

// String is the word that ParseChoice takes.
func (c Choice) String() string {
	if int(c) < len(choices) {
		return choices[c]
	}
	return fmt.Sprintf("Choice(%d)", uint8(c))
}

// ParseChoice reads auto, direct or buffered.
func ParseChoice(s string) (Choice, error) {
	for c, word := range choices {
		if s == word {
			return Choice(c), nil
		}
	}
	return 0, fmt.Errorf("backend %q is none of auto, direct, buffered", s)
}
