package gds

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// debianPackages has packages of Debian's non-free component of one release, which may be another one than that of
// this machine, in a folder of their own. They are fetched from where the machine fetches its packages, once per
// user, and neither installed nor kept with the project: their licence is NVIDIA's.
func debianPackages(t *testing.T, release string, names ...string) (root string) {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = t.TempDir()
	}
	root = filepath.Join(cache, "tunefs-test", release+"-"+strings.Join(names, "-"))
	if _, err := os.Stat(root); err == nil {
		return root
	}
	dir := filepath.Dir(root)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	work, err := os.MkdirTemp(dir, "fetching-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(work)
	fetchPackages(t, work, release, names)
	// Another process may have been faster; its folder is as good.
	if err := os.Rename(filepath.Join(work, "root"), root); err != nil && !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
	return root
}

// fetchPackages unpacks packages into work/root.
func fetchPackages(t *testing.T, work, release string, names []string) {
	t.Helper()
	apt := aptElsewhere(t, work, release)
	out, err := apt("update")
	if err == nil {
		out, err = apt(append([]string{"download"}, names...)...)
	}
	if err != nil {
		t.Skipf("this machine cannot fetch packages of Debian %s: %v\n%s", release, err, out)
	}
	debs, err := filepath.Glob(filepath.Join(work, "*.deb"))
	if err != nil || len(debs) != len(names) {
		t.Fatalf("fetched %q for %q, %v", debs, names, err)
	}
	for _, deb := range debs {
		if out, err := exec.Command("dpkg", "-x", deb, filepath.Join(work, "root")).CombinedOutput(); err != nil {
			t.Fatalf("dpkg: %v\n%s", err, out)
		}
	}
}

// aptElsewhere runs apt-get with everything it writes in work, and with the machine's own sources turned to another
// release.
func aptElsewhere(t *testing.T, work, release string) func(args ...string) ([]byte, error) {
	t.Helper()
	program, err := exec.LookPath("apt-get")
	if err != nil {
		t.Skip("the packages of NVIDIA's libraries are for Debian, and this is none: ", err)
	}
	for _, folder := range []string{"sources", "lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(work, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	sources := otherRelease(t, release)
	if err := os.WriteFile(filepath.Join(work, "sources/other.sources"), sources, 0o644); err != nil {
		t.Fatal(err)
	}
	return func(args ...string) ([]byte, error) {
		cmd := exec.Command(program, append([]string{
			"-q", "-o", "APT::Sandbox::User=", "-o", "Acquire::Retries=3",
			"-o", "Dir::Etc::sourcelist=/dev/null", "-o", "Dir::Etc::sourceparts=" + work + "/sources",
			"-o", "Dir::State=" + work, "-o", "Dir::State::lists=" + work + "/lists", "-o", "Dir::State::status=/dev/null",
			"-o", "Dir::Cache=" + work + "/cache",
		}, args...)...)
		cmd.Dir = work
		return cmd.CombinedOutput()
	}
}

// otherRelease rewrites this machine's sources; the security archive has no such component.
func otherRelease(t *testing.T, release string) []byte {
	t.Helper()
	files, err := filepath.Glob("/etc/apt/sources.list.d/*.sources")
	if err != nil {
		t.Fatal(err)
	}
	suites, components := regexp.MustCompile(`(?m)^Suites:.*$`), regexp.MustCompile(`(?m)^Components:.*$`)
	archive := regexp.MustCompile(`(?m)^URIs:.*/debian/?$`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for stanza := range bytes.SplitSeq(text, []byte("\n\n")) {
			if archive.Match(stanza) {
				stanza = suites.ReplaceAll(stanza, []byte("Suites: "+release))
				return components.ReplaceAll(stanza, []byte("Components: non-free"))
			}
		}
	}
	t.Skip("no source of Debian packages in /etc/apt/sources.list.d")
	return nil
}

// libraryIn is the path of a library in a folder of unpacked packages.
func libraryIn(t *testing.T, root, name string) string {
	t.Helper()
	for _, folder := range []string{"usr/lib/*", "usr/lib/*/nvidia/current"} {
		if found, _ := filepath.Glob(filepath.Join(root, folder, name)); len(found) > 0 {
			return found[0]
		}
	}
	t.Fatalf("no %s in %s", name, root)
	return ""
}

func newCuFileLibrary(t *testing.T) string {
	return libraryIn(t, debianPackages(t, "trixie", "libcufile0"), "libcufile.so.0")
}

// compile makes a program or library of C, with flags for cc.
func compile(t *testing.T, out string, args ...string) {
	t.Helper()
	cc := "cc"
	if own := os.Getenv("CC"); own != "" {
		cc = own
	}
	if output, err := exec.Command(cc, append([]string{"-o", out}, args...)...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cc, err, output)
	}
}

// standIn is a folder with our stand-in for the CUDA driver.
func standIn(t *testing.T) (dir string) {
	t.Helper()
	const source = "../tests/cudastandin/cudastandin.c"
	if _, err := os.Stat(source); err != nil { // so that go test knows what its result depends on
		t.Fatal(err)
	}
	dir = t.TempDir()
	compile(t, filepath.Join(dir, "libcuda.so.1"), "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC",
		"-Wl,-soname,libcuda.so.1", source, "-lpthread")
	return dir
}
