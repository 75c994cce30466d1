package bench

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

//go:embed c/*.c
var sources embed.FS

// ErrNoCompiler says that this machine has no C compiler that is known here.
var ErrNoCompiler = errors.New("no C compiler found: install gcc or tcc, with libc6-dev")

// FindCompiler returns the path of a C compiler: $CC, or the first of the usual ones.
func FindCompiler() (string, error) {
	for _, name := range []string{os.Getenv("CC"), "cc", "gcc", "clang", "tcc"} {
		if name == "" {
			continue
		}
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", ErrNoCompiler
}

// Compile builds the C program called name, one of those in c/, into dir and returns its path.
func Compile(ctx context.Context, name, dir string) (string, error) {
	compiler, err := FindCompiler()
	if err != nil {
		return "", err
	}
	source, err := sources.ReadFile("c/" + name + ".c")
	if err != nil {
		return "", err
	}
	sourcePath, program := filepath.Join(dir, name+".c"), filepath.Join(dir, name)
	if err := os.WriteFile(sourcePath, source, 0o644); err != nil {
		return "", err
	}
	if _, err := Exec(ctx, Command{Argv: []string{compiler, "-O2", "-o", program, sourcePath}}); err != nil {
		return "", fmt.Errorf("compiling %s.c: %w", name, err)
	}
	return program, nil
}
