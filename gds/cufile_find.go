package gds

import "path/filepath"

// librariesNamed lists where a library of CUDA may be: what the loader finds by
// its name alone, then the usual folders of CUDA. /usr/local/cuda, the chosen
// one of several versions, comes before them.
func librariesNamed(name string) []string {
	places := []string{name}
	for _, folder := range []string{"lib64", "targets/*/lib"} {
		// Its only error is a bad pattern, which these are not.
		found, _ := filepath.Glob(filepath.Join("/usr/local/cuda*", folder, name))
		places = append(places, found...)
	}
	return places
}
