package tests

import (
	"os/exec"
	"testing"
)

// fioJobs are ways to write a file that fio reads back and verifies.
func fioJobs() map[string][]string {
	return map[string][]string{
		"sequential":    {"--rw=write", "--bs=8k", "--ioengine=psync", "--end_fsync=1"},
		"random":        {"--rw=randwrite", "--bs=4k", "--ioengine=psync"},
		"mixed":         {"--rw=randrw", "--bsrange=512-64k", "--bs_unaligned=1", "--ioengine=pvsync2"},
		"mapped":        {"--rw=randwrite", "--bs=4k", "--ioengine=mmap"},
		"mapped-odd":    {"--rw=write", "--bs=3000", "--ioengine=mmap"},
		"aio-direct":    {"--rw=randwrite", "--bs=4k", "--ioengine=libaio", "--direct=1", "--iodepth=16"},
		"aio-direct-1m": {"--rw=write", "--bs=1m", "--ioengine=libaio", "--direct=1", "--iodepth=4"},
		"aio-buffered":  {"--rw=randwrite", "--bs=16k", "--ioengine=libaio", "--iodepth=8"},
		"append":        {"--rw=write", "--bs=5000", "--ioengine=sync", "--file_append=1"},
		"allocated":     {"--rw=randwrite", "--bs=4k", "--ioengine=psync", "--fallocate=posix", "--fsync=64"},
		"splice":        {"--rw=write", "--bs=64k", "--ioengine=splice"},
		"three-files":   {"--rw=randwrite", "--bs=8k", "--ioengine=psync", "--nrfiles=3", "--numjobs=2"},
	}
}

// TestFio writes files in many ways and verifies a checksum of every block. In the end SOURCE must hold
// what the mount shows.
func TestFio(t *testing.T) {
	requirePackages(t, "fio")
	eachMode(t, func(t *testing.T, mode string) {
		m := programMount(t, mode)
		for name, args := range fioJobs() {
			t.Run(name, func(t *testing.T) {
				common := []string{"--name=" + name, "--thread", "--size=" + sized("4m", "256m"), "--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0", "--directory=" + m.Dir}
				run(t, exec.Command("fio", append(common, args...)...))
			})
		}
		compareTrees(t, "SOURCE", viewTree(t, m.Source), viewTree(t, m.Dir))
	})
}
