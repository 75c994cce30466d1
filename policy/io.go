package policy

import (
	"fmt"
	"strconv"
	"strings"
)

// IO is the way a file's data travels between programs and the backing file.
type IO uint8

const (
	// Auto leaves the choice open. For a mount: passthrough where the kernel
	// and the privileges allow it, else cached. In a rule and in a decision:
	// the mount's mode.
	Auto IO = iota
	// Passthrough: the kernel reads and writes the backing file by itself.
	Passthrough
	// Cached: through the page cache, with the daemon behind it.
	Cached
	// Direct: one read(2) or write(2) is one request to the daemon.
	Direct
	// Staged: the kernel gathers writes in its page cache, and the daemon
	// gathers them further before the backing file gets them. For a whole
	// mount only.
	Staged
)

// ioNames is indexed by IO.
var ioNames = [...]string{Auto: "auto", Passthrough: "passthrough", Cached: "cached", Direct: "direct", Staged: "staged"}

// ParseIO reads "auto", "passthrough", "cached", "direct" or "staged", in any
// case.
func ParseIO(s string) (IO, error) {
	for m, name := range ioNames {
		if strings.EqualFold(s, name) {
			return IO(m), nil
		}
	}
	return Auto, fmt.Errorf("unknown I/O mode %q; use auto, passthrough, cached, direct or staged", s)
}

// String returns the word that [ParseIO] takes, or "IO(n)" for a value that
// is none of the modes.
func (m IO) String() string {
	if int(m) < len(ioNames) {
		return ioNames[m]
	}
	return "IO(" + strconv.Itoa(int(m)) + ")"
}
