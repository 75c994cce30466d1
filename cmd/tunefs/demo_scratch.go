package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// unlessInterrupted is err, but if a signal ended ctx it says only that: what failed then failed because of it.
func unlessInterrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return err
}

// newScratch makes a folder in parent for files and mounts that come and go. Its path is as the kernel lists mounts:
// absolute and without symbolic links.
func newScratch(parent string) (string, error) {
	parent, err := filepath.Abs(parent)
	if err != nil {
		return "", err
	}
	if parent, err = filepath.EvalSymlinks(parent); err != nil {
		return "", err
	}
	return os.MkdirTemp(parent, "tunefs-")
}

// removeScratch removes such a folder, but nothing through a mount that is still there.
func removeScratch(dir string) error {
	mounts, err := readMounts()
	if err != nil {
		return err
	}
	for _, m := range mounts {
		if strings.HasPrefix(m.point, dir+"/") {
			return fmt.Errorf("%s is still mounted, so %s stays", m.point, dir)
		}
	}
	return os.RemoveAll(dir)
}
