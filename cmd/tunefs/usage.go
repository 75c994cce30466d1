package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// usageError is an error of the person who typed, not of the machine.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// usagef makes a usageError as fmt.Errorf would.
func usagef(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}

// newFlags makes a command's flag set. Asked for --help it prints help and the
// flags to e.out.
func newFlags(e env, help string) *pflag.FlagSet {
	f := pflag.NewFlagSet("tunefs", pflag.ContinueOnError)
	f.SortFlags = false
	f.SetOutput(io.Discard)
	f.Usage = func() {
		fmt.Fprint(e.out, help)
		if usages := f.FlagUsages(); usages != "" {
			fmt.Fprint(e.out, "\nFlags:\n", usages)
		}
	}
	return f
}

// parseFlags parses args into f. Its errors are usage errors, but for
// pflag.ErrHelp once help has been printed.
func parseFlags(f *pflag.FlagSet, args []string) error {
	err := f.Parse(args)
	var unknown *pflag.NotExistError
	switch {
	case err == nil || errors.Is(err, pflag.ErrHelp):
		return err
	case errors.As(err, &unknown) && len(unknown.GetSpecifiedName()) > 1:
		name := unknown.GetSpecifiedName()
		return usagef("unknown flag --%s; did you mean --%s?", name, nearest(name, flagNames(f)))
	}
	return usageError{err}
}

// flagNames lists the long names of the flags that help shows.
func flagNames(f *pflag.FlagSet) []string {
	var names []string
	f.VisitAll(func(flag *pflag.Flag) {
		if !flag.Hidden {
			names = append(names, flag.Name)
		}
	})
	return names
}

// nearest returns the one of names that is the fewest edits away from word.
// names must not be empty.
func nearest(word string, names []string) string {
	word = strings.ToLower(word)
	return slices.MinFunc(names, func(a, b string) int {
		return edits(word, a) - edits(word, b)
	})
}

// edits is the Levenshtein distance of a and b, in bytes.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
