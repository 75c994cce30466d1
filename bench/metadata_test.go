package bench

import (
	"os"
	"path/filepath"
	"testing"
)

func TestRunMetadata(t *testing.T) {
	requireCompiler(t)
	program, err := Compile(t.Context(), "metadata", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	rates, err := runMetadata(t.Context(), program, dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, operation := range nameOperations {
		if rates[operation] <= 0 {
			t.Errorf("%s: %v a second", operation, rates[operation])
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("it left %v, %v", left, err)
	}
}

func TestArchive(t *testing.T) {
	dir := t.TempDir()
	archive := filepath.Join(dir, "tree.tar")
	if err := createArchive(archive); err != nil {
		t.Fatal(err)
	}
	if _, err := untar(t.Context(), archive, dir); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "folder-*", "file-*"))
	if err != nil || len(files) != treeFolders*treeFiles {
		t.Errorf("unpacked %d files, %v", len(files), err)
	}
}

func TestSpreadFolders(t *testing.T) {
	for _, dir := range []string{t.TempDir(), "/proc"} {
		if err := spreadFolders(dir); err != nil {
			t.Errorf("%s: %v", dir, err)
		}
	}
}
