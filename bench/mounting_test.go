package bench

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestParseFilesystem(t *testing.T) {
	fsys, err := ParseFilesystem("loop=prog -q --a=b {mountpoint} {source}")
	if err != nil || fsys.Name != "loop" || len(fsys.Command) != 5 || fsys.Command[2] != "--a=b" {
		t.Errorf("ParseFilesystem = %+v, %v", fsys, err)
	}
	for _, bad := range []string{"", "name", "=prog {source} {mountpoint}", "name=prog {source}", "name=prog {mountpoint}"} {
		if _, err := ParseFilesystem(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestAttachNative(t *testing.T) {
	dir := t.TempDir()
	a, err := Attach(t.Context(), Native, dir)
	if err != nil {
		t.Fatal(err)
	}
	if a.Dir != filepath.Join(dir, "source") || a.Pid() != 0 {
		t.Errorf("attached %+v", a)
	}
	if err := a.remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("remove left the folder: %v", err)
	}
}

func TestAttachFailure(t *testing.T) {
	words := []string{"sh", "-c", "echo no such luck >&2; exit 1", "{source}", "{mountpoint}"}
	_, err := Attach(t.Context(), Filesystem{Name: "broken", Command: words}, t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "no such luck") || !strings.Contains(err.Error(), "broken") {
		t.Errorf("error %v, want one that names the filesystem and says what its command said", err)
	}
	begin := time.Now()
	if _, err := Attach(t.Context(), Filesystem{Name: "lost", Command: []string{"/no/such/program"}}, t.TempDir()); err == nil {
		t.Error("a program that isn't there mounted")
	}
	if took := time.Since(begin); took > time.Second {
		t.Errorf("it took %v to see that", took)
	}
}

func TestMountInfo(t *testing.T) {
	for _, test := range []struct {
		line string
		want mountInfo
	}{
		{
			`36 35 0:52 / /mnt/a\040b rw,relatime shared:1 master:2 - fuse.tunefs /src rw,user_id=0`,
			mountInfo{"0:52", "/mnt/a b", "fuse.tunefs"},
		},
		{`1 0 254:0 / / rw - ext4 /dev/vda rw`, mountInfo{"254:0", "/", "ext4"}},
		{``, mountInfo{}},
	} {
		if got := parseMountInfo(test.line); got != test.want {
			t.Errorf("parseMountInfo(%q) = %+v, want %+v", test.line, got, test.want)
		}
	}
	if mounted, err := isMountpoint("/proc"); err != nil || !mounted {
		t.Errorf("isMountpoint(/proc) = %v, %v", mounted, err)
	}
	if mounted, err := isMountpoint("/proc/self"); err != nil || mounted {
		t.Errorf("isMountpoint(/proc/self) = %v, %v", mounted, err)
	}
}

func TestMachine(t *testing.T) {
	m := ThisMachine("/proc")
	if m.Filesystem != "proc" || m.Cores < 1 || m.Memory == 0 || m.Kernel == "unknown" {
		t.Errorf("this machine is %s", m)
	}
}

func TestParseStatus(t *testing.T) {
	u := parseStatus([]byte("Name:\ttunefs\nVmRSS:\t    8192 kB\nThreads:\t11\n"))
	if u.memoryMiB != 8 || u.threads != 11 {
		t.Errorf("parseStatus = %+v", u)
	}
}
