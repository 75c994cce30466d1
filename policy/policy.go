// Package policy decides which block size a file reports and how its data
// travels. It reads the words that people write for that (sizes, presets, I/O
// modes, rules) and answers for a path. It does no I/O and has no state;
// everything in it may be used by several goroutines at once, as long as
// nobody changes a Policy that is in use.
package policy

// Policy is a mount's default and the exceptions from it. The zero value
// shows every file as the backing filesystem does.
type Policy struct {
	Blksize Blksize // for paths that no rule matches
	IO      IO      // likewise, and for rules that say nothing about it
	Rules   []Rule  // the first that matches decides alone; as ParseRule returns them
}

// Decision is what holds for one path.
type Decision struct {
	Blksize Blksize // Native: report what the backing object reports
	IO      IO      // Auto only if the policy's own mode is Auto
}

// Decide returns what holds for path, which is relative to the mountpoint,
// clean, and without slashes at its ends; "" is the mountpoint itself. Without
// rules it does not look at the path. It allocates only for globs with braces.
func (p *Policy) Decide(path string) Decision {
	for i := range p.Rules {
		r := &p.Rules[i]
		if !r.matches(path) {
			continue
		}
		if r.IO == Auto {
			return Decision{r.Blksize, p.IO}
		}
		return Decision{r.Blksize, r.IO}
	}
	return Decision{p.Blksize, p.IO}
}

// Static reports whether the decision is the same for every path, so that a
// caller need not find a path out.
func (p *Policy) Static() bool { return len(p.Rules) == 0 }
