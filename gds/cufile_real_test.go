//go:build cgo

package gds

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestCuFileMoves(t *testing.T)   { working(t, "moves").run(t) }
func TestCuFilePins(t *testing.T)    { working(t, "pins").run(t) }
func TestCuFileStaging(t *testing.T) { working(t, "staging").run(t) }

// TestCuFileOpens opens, writes and closes many files, and has the stand-in count what was got and given back.
func TestCuFileOpens(t *testing.T) {
	c := working(t, "opens")
	counts := filepath.Join(t.TempDir(), "counts")
	rounds := 1000
	if os.Getenv("TUNEFS_SOAK") != "" {
		rounds = 10000
	}
	c.env = append(c.env, "CUDA_STANDIN_COUNTS="+counts, fmt.Sprintf("%s=%d", envRounds, rounds))
	c.run(t)
	text, err := os.ReadFile(counts)
	if err != nil {
		t.Fatal(err)
	}
	numbers := make([]uint64, len(text)/8)
	if _, err := binary.Decode(text, binary.NativeEndian, numbers); err != nil {
		t.Fatal(err)
	}
	if numbers[0] == 0 {
		t.Error("the driver was not the stand-in")
	}
	for i, kind := range []string{"device memory", "host memory", "host registrations", "streams", "events", "contexts"} {
		got, given := numbers[2*i+2], numbers[2*i+3]
		t.Logf("%s: %d got, %d given back", kind, got, given)
		// As of 1.9, what is done with memory of the host asks nothing of the driver.
		if got != given {
			t.Errorf("leaked %s", kind)
		}
	}
}

// TestCuFileNameless and TestCuFileElsewhere have files that their names don't lead to.
func TestCuFileNameless(t *testing.T)  { working(t, "nameless").run(t) }
func TestCuFileElsewhere(t *testing.T) { working(t, "elsewhere").run(t) }

// TestCuFileFull fills a filesystem, which cuFile itself reports as EIO.
func TestCuFileFull(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, for a loop device")
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skip("no loop devices: ", err)
	}
	c := working(t, "full")
	image := filepath.Join(c.folder, "image")
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 24<<20)); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", image).CombinedOutput(); err != nil {
		t.Skipf("mkfs.ext4: %v %s", err, out)
	}
	mnt := filepath.Join(c.folder, "mnt")
	if err := os.Mkdir(mnt, 0o700); err != nil {
		t.Fatal(err)
	}
	// Its mount goes with the namespace, and the loop device with the mount.
	c.shell = fmt.Sprintf("mount -o loop %s %s\n", image, mnt) + recordOf("$(stat -c %Hd:%Ld "+mnt+")", "ext4")
	c.shell = strings.ReplaceAll(c.shell, "/run/udev/data/b$(", "/run/udev/data/b\"$(") + `"`
	c.run(t)
}

// TestCuFileLog wants the configuration that exists, the user's, to be used, and its log nowhere near.
func TestCuFileLog(t *testing.T) {
	c := working(t, "environ")
	for name, config := range map[string]string{
		"nowhere": `{"logging": {"level": "ERROR" // "dir": "/tmp"` + "\n}}",
		"there":   fmt.Sprintf(`{"logging": {"level": "ERROR", "dir": %q}}`, c.folder+"/there"),
	} {
		t.Run(name, func(t *testing.T) {
			c := c
			logs, file := filepath.Join(c.folder, name), filepath.Join(t.TempDir(), "cufile.json")
			if err := errors.Join(os.Mkdir(logs, 0o700), os.WriteFile(file, []byte(config), 0o600)); err != nil {
				t.Fatal(err)
			}
			c.env = []string{envConfig + "=" + file}
			c.run(t)
			entries, err := os.ReadDir(logs)
			if err != nil || (len(entries) > 0) != (name == "there") {
				t.Errorf("%v in the user's folder, %v", entries, err)
			}
		})
	}
}

// hideCUDA hides what this machine has of it.
const hideCUDA = `mount -t tmpfs tmpfs /usr/local
for f in $(/sbin/ldconfig -p | sed -n 's/.*libcu[df][ai].*\.so.*=> //p'); do mount --bind /dev/null "$f"; done`

// TestCuFileUnopened wants every machine that has no cuFile to be told why.
func TestCuFileUnopened(t *testing.T) {
	nothing := t.TempDir()
	compile(t, nothing+"/libcufile.so.0", "-shared", "-fPIC", "-x", "c", "/dev/null")
	for _, c := range []struct {
		name, library, cuda, want string
	}{
		{"no library", "", "", "libcufile.so.0: |install"},
		{"no such library", nothing + "/none.so", "", "none.so: cannot open"},
		{"no symbols", nothing + "/libcufile.so.0", "", "has no cuFileDriverOpen"},
		{"no libcuda", newCuFileLibrary(t), "", "5033 (CU_FILE_NVFS_SETUP_ERROR)|the CUDA driver is missing|libcuda.so.1"},
		{"no GPU", newCuFileLibrary(t), filepath.Dir(libraryIn(t, debianPackages(t, "trixie", "libcuda1"), "libcuda.so.1")),
			"5011 (CU_FILE_CUDA_DRIVER_ERROR), CUDA error 100|finds no GPU"},
		{"old library", libraryIn(t, debianPackages(t, "bookworm", "libcufile0"), "libcufile.so.0"), standIn(t),
			"libcufile.so.0 takes memory of the GPU alone|CUDA 12.2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cufileChild{
				part: "unopened", library: c.library, cuda: c.cuda, folder: t.TempDir(), shell: hideCUDA,
				env: []string{envWant + "=" + c.want},
			}.run(t)
		})
	}
}

// TestCuFileInCUDAFolder finds the library where CUDA is installed.
func TestCuFileInCUDAFolder(t *testing.T) {
	c := working(t, "moves")
	for _, folder := range []string{"cuda/lib64", "cuda-12.4/targets/x86_64-linux/lib"} {
		t.Run(strings.ReplaceAll(folder, "/", "-"), func(t *testing.T) {
			c := c
			c.shell += fmt.Sprintf("\n%[4]s\nmkdir -p /usr/local/%[1]s\ncp %[2]s %[3]s/libcuda.so.1 /usr/local/%[1]s",
				folder, c.library, c.cuda, hideCUDA)
			c.library, c.cuda = "", ""
			if out := c.run(t); !strings.Contains(out, "Path:/usr/local/"+folder) {
				t.Error("it was found elsewhere")
			}
		})
	}
}

// TestCuFileRefused wants files that cuFile does not take to be explained.
func TestCuFileRefused(t *testing.T) {
	c := working(t, "refused")
	for _, r := range []struct{ name, shell, folder, want string }{
		{"no udev record", "", c.folder, "5030 (CU_FILE_INTERNAL_ERROR)|/run/udev/data/b|ID_FS_USAGE=filesystem"},
		{"tmpfs", c.shell, "/dev/shm", "5030 (CU_FILE_INTERNAL_ERROR)|no block device|tmpfs"},
	} {
		t.Run(r.name, func(t *testing.T) {
			c := c
			c.shell = r.shell
			c.env = []string{envWant + "=" + r.want, envFolder + "=" + r.folder}
			c.run(t)
		})
	}
}
