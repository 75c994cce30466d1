package tests

import (
	"encoding/gob"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

// modelWorkerState is a process that does operations of a model test below its root, with its own handles,
// mappings, locks, umask and identity.
type modelWorkerState struct {
	root  string
	fault string      // deliberate fault, see brokenResult
	fds   map[int]int // slot -> descriptor
	maps  map[int]mapping
	buf   []byte // page-aligned memory for O_DIRECT
}

// mapping is a part of a file in memory.
type mapping struct {
	mem  []byte
	off  int64 // in the file
	file int   // O_PATH descriptor: the file, but no handle that would keep it open
}

// modelResult is what an operation gave, in a form that is equal on equal filesystems.
type modelResult struct {
	Text  string // "ok key=value ..." or the name of an errno
	Fresh bool   // Text describes an object with a fresh atime; only a one-sided difference counts
}

// errNoHandle is the result of an operation on a slot that is empty, which only shrinking brings about.
var errNoHandle = errors.New("empty slot")

// modelWorker is the main function of a worker process: root and fault are its arguments, operations come
// on stdin and results go to stdout.
func modelWorker() int {
	w := &modelWorkerState{
		root:  os.Args[1],
		fault: os.Args[2],
		fds:   map[int]int{},
		maps:  map[int]mapping{},
	}
	unix.Umask(0o022)
	debug.SetPanicOnFault(true) // a fault in a mapping is a result, not the end
	var err error
	if w.buf, err = unix.Mmap(-1, 0, modelMaxIO+4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		return 1
	}
	in, out := gob.NewDecoder(os.Stdin), gob.NewEncoder(os.Stdout)
	for {
		var op modelOp
		if err := in.Decode(&op); err != nil {
			return 0 // the driver is done
		}
		if err := out.Encode(w.do(&op)); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			return 1
		}
	}
}

// do runs one operation.
func (w *modelWorkerState) do(op *modelOp) (r modelResult) {
	defer func() {
		if p := recover(); p != nil {
			r = modelResult{Text: fmt.Sprintf("panic: %v", p)}
		}
	}()
	text, err := modelKinds()[op.Kind].run(w, op)
	if err != nil {
		return modelResult{Text: errorText(err)}
	}
	text, fresh := strings.CutSuffix(text, freshAtime)
	return modelResult{Text: w.brokenResult(op, strings.TrimSpace("ok "+text)), Fresh: fresh}
}

// brokenResult lets the harness test itself: the fault "setgid" hides the setgid bit.
func (w *modelWorkerState) brokenResult(op *modelOp, text string) string {
	if w.fault == "setgid" && op.Kind == "stat" {
		return strings.Replace(text, "mode=02", "mode=0", 1)
	}
	return text
}

func errorText(err error) string {
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return err.Error()
	}
	if name := unix.ErrnoName(errno); name != "" {
		return name
	}
	return fmt.Sprintf("errno %d", int(errno))
}

// at gives the arguments of the *at system calls for path: relative to the handle in slot, or absolute.
func (w *modelWorkerState) at(slot int, path string) (int, string) {
	path = expand(path)
	if fd, ok := w.fds[slot]; ok {
		return fd, path
	}
	return unix.AT_FDCWD, w.abs(path)
}

// abs is path below the root of the run; a trailing slash or dot is kept.
func (w *modelWorkerState) abs(path string) string {
	if path == "" {
		return w.root
	}
	return w.root + "/" + path
}

// fd is the descriptor in a slot.
func (w *modelWorkerState) fd(slot int) (int, error) {
	fd, ok := w.fds[slot]
	if !ok {
		return -1, errNoHandle
	}
	return fd, nil
}

// put stores a fresh descriptor, and closes what was in its slot.
func (w *modelWorkerState) put(slot, fd int) {
	if old, ok := w.fds[slot]; ok {
		unix.Close(old)
	}
	w.fds[slot] = fd
}

// fdPath is a path that leads to the handle itself.
func fdPath(fd int) string { return filepath.Join("/proc/self/fd", fmt.Sprint(fd)) }
