package main

import (
	"fmt"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

var versionCommand = command{name: "version", summary: "say which tunefs, Go and kernel these are", run: runVersion}

const versionHelp = `Usage: tunefs version

Prints the versions that a report of a fault should name.
`

func runVersion(e env, args []string) error {
	f := newFlags(e, versionHelp)
	if err := parseFlags(f, args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return usagef("takes no operands")
	}
	info, _ := debug.ReadBuildInfo() // nil when built without modules
	version, goVersion := describeBuild(info)
	_, err := fmt.Fprintf(e.out, "tunefs %s\ngo %s\nkernel %s\n", version, goVersion, kernelRelease())
	return err
}

// describeBuild names the version of the program and of its compiler.
func describeBuild(info *debug.BuildInfo) (version, goVersion string) {
	version, goVersion = "devel", "unknown"
	if info == nil {
		return version, goVersion
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		version = v
	}
	return version, strings.TrimPrefix(info.GoVersion, "go")
}

// kernelRelease is what uname -r prints.
func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown" // not on any Linux
	}
	return unix.ByteSliceToString(u.Release[:])
}
