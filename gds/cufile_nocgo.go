//go:build !cgo

package gds

import "errors"

// loadCuFile has nothing to load a library with.
func loadCuFile(string) (cufileCalls, string, error) {
	return nil, "", errors.New("loading cuFile: this program was built without cgo, which that needs")
}
