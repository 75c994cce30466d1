package main

import (
	"os"
	"slices"
	"testing"
)

// TestMain is the program itself in the child that a background mount starts:
// that is this executable again, which must not run all tests once more.
func TestMain(m *testing.M) {
	if slices.Contains(os.Args, "--foreground") {
		os.Exit(run(os.Args, env{out: os.Stdout, errw: os.Stderr, mount: mountFS}))
	}
	os.Exit(m.Run())
}
