package tests

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

var (
	mapFlags   = []flagName{{"MAP_SHARED", unix.MAP_SHARED}, {"MAP_PRIVATE", unix.MAP_PRIVATE}}
	storeFlags = []flagName{{"UNSYNCED", storeUnsynced}}
)

// storeUnsynced leaves the bytes stored into a mapping to the kernel's writeback.
const storeUnsynced = 1

// mapKinds are the operations on mappings. Op.Mode is the protection.
func mapKinds() []modelKind {
	return []modelKind{
		{name: "mmap", weight: 10, flags: mapFlags, gen: genMmap, run: runMmap},
		{name: "load", weight: 12, gen: genLoad, run: runLoad},
		{name: "store", weight: 12, flags: storeFlags, gen: genStore, run: runStore},
		{name: "msync", weight: 3, gen: genMapping, run: runMsync},
		{name: "munmap", weight: 6, gen: genMapping, run: runMunmap},
	}
}

func genMmap(g *modelGen, op *modelOp) {
	op.FD, op.Map = g.file(), 1+g.rng.IntN(modelMaps)
	op.Off = pick[int64](g, 0, 0, 0, 4096, 8192, 1, 128<<10)
	op.Len = max(1, g.length())
	op.Mode = pick[uint32](g, unix.PROT_READ, unix.PROT_READ|unix.PROT_WRITE, unix.PROT_READ|unix.PROT_WRITE)
	op.Flags = pick(g, unix.MAP_SHARED, unix.MAP_SHARED, unix.MAP_PRIVATE)
}

func genMapping(g *modelGen, op *modelOp) {
	op.Map = 1
	for slot := range modelMaps {
		if g.maps[g.worker][slot+1] && g.chance(60) {
			op.Map = slot + 1
		}
	}
}

func genLoad(g *modelGen, op *modelOp) {
	genMapping(g, op)
	op.Off, op.Len, op.Fill = g.length(), g.length(), g.fill()
}

func genStore(g *modelGen, op *modelOp) {
	genLoad(g, op)
	if g.unsync && g.chance(50) {
		op.Flags = storeUnsynced
	}
}

func runMmap(w *modelWorkerState, op *modelOp) (string, error) {
	fd, err := w.fd(op.FD)
	if err != nil {
		return "", err
	}
	mem, err := unix.Mmap(fd, op.Off, int(op.Len), int(op.Mode), op.Flags)
	if err != nil {
		return "", err
	}
	file, err := unix.Open(fdPath(fd), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	err = w.unmap(op.Map)
	w.maps[op.Map] = mapping{mem: mem, off: op.Off, file: file}
	return "", err
}

// unmap empties a slot.
func (w *modelWorkerState) unmap(slot int) error {
	m, ok := w.maps[slot]
	if !ok {
		return nil
	}
	delete(w.maps, slot)
	return errors.Join(unix.Munmap(m.mem), unix.Close(m.file))
}

// mapped is the part of a mapping that an operation means: it is empty where the mapping is shorter.
func (w *modelWorkerState) mapped(op *modelOp) (b []byte, off int64, err error) {
	m, ok := w.maps[op.Map]
	if !ok {
		return nil, 0, errNoHandle
	}
	start := min(op.Off, int64(len(m.mem)))
	end := min(start+op.Len, int64(len(m.mem)))
	return m.mem[start:end], m.off + start, nil
}

// errFault is the result of touching a page of a mapping that is not there or must not be touched.
var errFault = errors.New("SIGBUS or SIGSEGV")

// faults runs f and turns a fault in a mapping into an error.
func faults(f func()) (err error) {
	defer func() {
		if recover() != nil {
			err = errFault
		}
	}()
	f()
	return nil
}

func runLoad(w *modelWorkerState, op *modelOp) (string, error) {
	b, off, err := w.mapped(op)
	if err != nil {
		return "", err
	}
	var n int
	if err := faults(func() { n = copy(w.buf, b) }); err != nil {
		return "", err
	}
	return fmt.Sprintf("n=%d data=%s", n, describe(w.buf[:n], off)), nil
}

// runStore does not touch the rest of the last page behind the end of the file: nobody says what becomes of
// such bytes when the file grows.
func runStore(w *modelWorkerState, op *modelOp) (string, error) {
	b, off, err := w.mapped(op)
	if err != nil {
		return "", err
	}
	var st unix.Stat_t
	if err := unix.Fstat(w.maps[op.Map].file, &st); err != nil {
		return "", err
	}
	if lastPage := (st.Size + 4095) / 4096 * 4096; off < lastPage {
		b = b[:max(0, min(int64(len(b)), st.Size-off))]
	}
	pattern(w.buf[:len(b)], op.Fill, off)
	if err := faults(func() { copy(b, w.buf) }); err != nil {
		return "", err
	}
	if op.Flags&storeUnsynced != 0 {
		return fmt.Sprintf("n=%d", len(b)), nil
	}
	return fmt.Sprintf("n=%d", len(b)), unix.Msync(w.maps[op.Map].mem, unix.MS_SYNC)
}

func runMsync(w *modelWorkerState, op *modelOp) (string, error) {
	m, ok := w.maps[op.Map]
	if !ok {
		return "", errNoHandle
	}
	return "", unix.Msync(m.mem, unix.MS_SYNC)
}

func runMunmap(w *modelWorkerState, op *modelOp) (string, error) {
	if _, ok := w.maps[op.Map]; !ok {
		return "", errNoHandle
	}
	return "", w.unmap(op.Map)
}
