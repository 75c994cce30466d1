package policy

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// Rule gives the files whose path matches Glob a block size of their own, and
// if IO says so, another way for their data.
//
// Glob is a doublestar pattern for the whole path below the mountpoint,
// without a leading slash; the mountpoint itself has the empty path. As in a
// shell, and unlike in gitignore, a pattern is anchored at the mountpoint and
// * does not cross a slash:
//
//	*.log      run.log, but not logs/run.log
//	**/*.log   run.log and logs/run.log: every depth
//	logs/*     logs/run.log, but neither logs nor logs/old/run.log
//	logs/**    logs itself and everything below it
//	*          everything in the mountpoint, and the mountpoint itself
//	**         everything
//
// ** works only as a whole path element; elsewhere it is the same as *.
// ? is one character but a slash, [a-z] and [!a-z] are one of a class,
// {a,b} is either, and \ takes the next character literally. Names that start
// with a dot are matched like others.
type Rule struct {
	Glob    string  // empty: the mountpoint itself
	Blksize Blksize // Native: as the backing object reports, whatever the mount's default is
	IO      IO      // Cached or Direct; Auto: the rule says nothing about it
}

const ruleForm = "a rule reads GLOB=BLKSIZE[,io=direct|cached], like '**/*.log=1M,io=direct'"

// ParseRule reads 'GLOB=BLKSIZE[,io=direct|cached]'. BLKSIZE is what
// [ParseBlksize] takes. Slashes at the start of GLOB are dropped, since
// patterns are anchored at the mountpoint anyway; "/" alone is the mountpoint.
//
// GLOB may contain '=' and ',': it ends at the last '=' after which a size and
// options follow. A glob that ends like a size and an option, as in
// 'a=8k,io=4k', is taken for a mistyped option and refused; write its '=' as
// '[=]' if it is meant.
//
// The error of a bad size unwraps to a [*BlksizeError].
func ParseRule(s string) (Rule, error) {
	r, err := parseRule(s)
	if err != nil {
		return Rule{}, fmt.Errorf("rule %q: %w", s, err)
	}
	return r, nil
}

func parseRule(s string) (Rule, error) {
	glob, size, opts, err := splitRule(s)
	if err != nil {
		return Rule{}, err
	}
	var r Rule
	if r.Glob, err = parseGlob(glob); err != nil {
		return Rule{}, err
	}
	if r.Blksize, err = ParseBlksize(size); err != nil {
		return Rule{}, err
	}
	if r.IO, err = parseOptions(opts); err != nil {
		return Rule{}, err
	}
	return r, nil
}

// mistypedOption matches a glob that ends in what looks like a size and the
// name of an option: then the '=' that was found is the option's.
var mistypedOption = regexp.MustCompile(`(?is)^(.*)=([\w.+-]*),([a-z_]+)$`)

// splitRule finds the parts. opts is empty or starts with a comma. The parts
// of a wrong rule come back so that checking them gives the most useful error.
func splitRule(s string) (glob, size, opts string, err error) {
	last := strings.LastIndexByte(s, '=')
	if last < 0 {
		return "", "", "", errors.New("there is no '='; " + ruleForm)
	}
	for i := last; i >= 0; i = strings.LastIndexByte(s[:i], '=') {
		glob, size, opts = cutRule(s, i)
		if _, err := ParseBlksize(size); err != nil {
			continue
		}
		if m := mistypedOption.FindStringSubmatch(glob); m != nil && optionLike(m[2], m[3]) {
			return m[1], m[2], s[len(m[1])+1+len(m[2]):], nil
		}
		return glob, size, opts, nil
	}
	// No size anywhere. If the last '=' belongs to an option, the bad size is
	// before it.
	if m := mistypedOption.FindStringSubmatch(s[:last]); m != nil {
		return m[1], m[2], "", nil
	}
	if strings.HasSuffix(strings.ToLower(s[:last]), ",io") {
		return "", "", "", errors.New("there is no block size before ',io='; " + ruleForm)
	}
	glob, size, opts = cutRule(s, last)
	return glob, size, opts, nil
}

// cutRule takes the '=' at i for the one after the glob.
func cutRule(s string, i int) (glob, size, opts string) {
	rest := s[i+1:]
	if comma := strings.IndexByte(rest, ','); comma >= 0 {
		return s[:i], rest[:comma], rest[comma:]
	}
	return s[:i], rest, ""
}

// optionLike reports whether size,option at the end of a glob are more likely a
// rule's own size and a mistyped option than a part of file names.
func optionLike(size, option string) bool {
	if strings.EqualFold(option, "io") {
		return true
	}
	_, err := ParseBlksize(size)
	return err == nil
}

func parseGlob(s string) (string, error) {
	if s == "" {
		return "", errors.New("the glob is empty; use '**' for everything, or '/' for the mountpoint itself")
	}
	glob := strings.TrimLeft(s, "/")
	if strings.HasSuffix(glob, "/") {
		return "", fmt.Errorf("glob %q matches nothing, as no path ends with a slash; use '%s**' for a directory and what is in it", s, glob)
	}
	if !doublestar.ValidatePattern(glob) {
		return "", fmt.Errorf("glob %q is not a valid pattern: a bracket or brace is not closed, or \\ is last; use one like '**/*.log'", s)
	}
	return glob, nil
}

// parseOptions reads ",io=MODE" or "".
func parseOptions(s string) (IO, error) {
	if s == "" {
		return Auto, nil
	}
	name, value, _ := strings.Cut(s[1:], "=")
	if !strings.EqualFold(name, "io") {
		return Auto, fmt.Errorf("unknown option %q; the only one is io, as in io=direct", name)
	}
	m, err := ParseIO(value)
	if err != nil {
		return Auto, fmt.Errorf("io %q is not a rule's I/O mode; use io=direct or io=cached", value)
	}
	if m != Direct && m != Cached {
		return Auto, fmt.Errorf("io=%s is for whole mounts: a mount has one base mode, from which a rule can only send files to direct or cached; use io=direct or io=cached", m)
	}
	return m, nil
}

// String returns the rule as [ParseRule] takes it.
func (r Rule) String() string {
	glob := r.Glob
	if glob == "" {
		glob = "/"
	}
	s := glob + "=" + r.Blksize.String()
	if r.IO != Auto {
		s += ",io=" + r.IO.String()
	}
	return s
}

// matches reports whether the rule is about path.
func (r *Rule) matches(path string) bool {
	return doublestar.MatchUnvalidated(r.Glob, path)
}
