package bench

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"
)

// Machine is what figures depend on.
type Machine struct {
	CPU        string `json:"cpu"`
	Cores      int    `json:"cores"`
	Memory     uint64 `json:"memory"` // bytes
	Kernel     string `json:"kernel"`
	Filesystem string `json:"filesystem"` // the one below what is measured
}

// ThisMachine describes this machine, with the filesystem that dir is on. What cannot be found out is "unknown".
func ThisMachine(dir string) Machine {
	m := Machine{CPU: cpuModel(), Cores: runtime.NumCPU(), Kernel: "unknown", Filesystem: "unknown"}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		m.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		m.Memory = uint64(info.Totalram) * uint64(info.Unit)
	}
	if fsType, err := filesystemType(dir); err == nil {
		m.Filesystem = fsType
	}
	return m
}

// String is one line.
func (m Machine) String() string {
	return fmt.Sprintf("%s, %d cores, %s memory, Linux %s, %s",
		m.CPU, m.Cores, humanize.IBytes(m.Memory), m.Kernel, m.Filesystem)
}

func cpuModel() string {
	file, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if key, value, _ := strings.Cut(lines.Text(), ":"); strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// filesystemType is the type of the filesystem that path is on, as /proc/mounts has it.
func filesystemType(path string) (string, error) {
	number, err := device(path)
	if err != nil {
		return "", err
	}
	id := fmt.Sprintf("%d:%d", unix.Major(number), unix.Minor(number))
	mount, err := findMount(func(m mountInfo) bool { return m.device == id })
	if err != nil {
		return "", err
	}
	if mount == nil {
		return "", fmt.Errorf("%s: its filesystem is not in /proc/self/mountinfo", path)
	}
	return mount.fsType, nil
}

// mountInfo is what is used here of a line of /proc/self/mountinfo.
type mountInfo struct{ device, mountpoint, fsType string }

// findMount returns the last mount of which is holds, nil if there is none.
func findMount(is func(mountInfo) bool) (*mountInfo, error) {
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var found *mountInfo
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if m := parseMountInfo(lines.Text()); is(m) {
			found = &m
		}
	}
	return found, lines.Err()
}

// parseMountInfo reads a line: id, parent, device, root, mountpoint, options, any number of fields, a dash, type.
func parseMountInfo(line string) mountInfo {
	var m mountInfo
	if fields := strings.Fields(line); len(fields) > 4 {
		m.device, m.mountpoint = fields[2], unescapeMount.Replace(fields[4])
	}
	if _, after, found := strings.Cut(line, " - "); found {
		m.fsType, _, _ = strings.Cut(after, " ")
	}
	return m
}

// unescapeMount undoes how the kernel writes what would break a line or its fields.
var unescapeMount = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
