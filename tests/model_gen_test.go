package tests

import (
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"strings"
)

const (
	modelSlots   = 6       // handles per worker
	modelMaps    = 3       // mappings per worker
	modelMaxIO   = 2 << 20 // bytes of one read or write
	modelWorkers = 3
)

// modelGen makes up operations. It looks at the reference tree and remembers which slots are in use, so that
// most operations meet something; equal seeds on equal filesystems give equal operations.
type modelGen struct {
	rng    *rand.Rand
	root   string   // of the reference tree
	exists []string // paths of all objects
	files  []string // paths of those that are not folders
	stale  int      // operations until they are read again
	worker int
	fds    [modelWorkers]map[int]bool // slots in use; true for folders
	maps   [modelWorkers]map[int]bool
	unsync bool // generate stores into mappings that are not followed by msync
	freeze int  // inode flag that runs of this seed use: immutable, append-only or none
	kinds  []modelKind
	total  int // sum of all weights
}

// newModelGen makes up operations below root. With writeback the kernel takes writes before the backing file can
// refuse them, so none is made to refuse.
func newModelGen(seed uint64, root string, writeback bool) *modelGen {
	g := &modelGen{rng: rand.New(rand.NewPCG(seed, 0)), root: root, kinds: modelKindList()}
	for i := range g.fds {
		g.fds[i], g.maps[i] = map[int]bool{}, map[int]bool{}
	}
	g.unsync = g.chance(50)
	g.freeze = pick(g, 0, 0, fsImmutable, fsAppend)
	if writeback {
		g.freeze = 0
	}
	for _, k := range g.kinds {
		g.total += k.weight
	}
	return g
}

// prologue makes the folders in which most operations happen.
func (g *modelGen) prologue() []modelOp {
	return []modelOp{
		{Kind: "umask", Mode: 0},
		{Kind: "mkdir", Path: "d", Mode: 0o777},
		{Kind: "mkdir", Path: "d/e", Mode: 0o777},
		{Kind: "chown", Path: "d/e", UID: -1, GID: sharedGroup},
		{Kind: "chmod", Path: "d/e", Mode: 0o2777},
		{Kind: "mkdir", Path: "f", Mode: 0o777},
		{Kind: "chmod", Path: "f", Mode: 0o1777},
		{Kind: "umask", Mode: 0o022},
	}
}

// next makes up an operation.
func (g *modelGen) next() modelOp {
	if g.stale--; g.stale <= 0 {
		g.look()
	}
	for {
		g.worker = pick(g, 0, 0, 1, 1, 2)
		if op := g.try(); !g.pointless(op) {
			return op
		}
	}
}

// try makes up an operation of a kind taken by weight.
func (g *modelGen) try() modelOp {
	n := g.rng.IntN(g.total)
	for _, k := range g.kinds {
		if n -= k.weight; n < 0 {
			op := modelOp{W: g.worker, Kind: k.name}
			k.gen(g, &op)
			return op
		}
	}
	panic("weights do not add up")
}

// pointless says that the operation uses a handle or a mapping that is not there, or must not be done.
func (g *modelGen) pointless(op modelOp) bool {
	if g.freeze != 0 && (op.Kind == "setfl" || op.Kind == "mmap") {
		return true // what the kernel asks the inode: see knownDifferences
	}
	if op.Map != 0 && op.Kind != "mmap" {
		return !g.maps[op.W][op.Map]
	}
	fds := []int{op.FD, op.FD2}
	switch op.Kind {
	case "open", "opendir", "tmpfile", "reopen", "dup":
		fds = fds[1:] // the first one is made
	}
	for _, slot := range fds {
		if _, ok := g.fds[op.W][slot]; slot != 0 && !ok {
			return true
		}
	}
	return false
}

// look reads which objects there are.
func (g *modelGen) look() {
	g.stale = 20
	g.exists, g.files = g.exists[:0], g.files[:0]
	_ = filepath.WalkDir(g.root, func(path string, d fs.DirEntry, err error) error {
		if path == g.root || err != nil {
			return nil // what cannot be read is left out
		}
		rel, _ := filepath.Rel(g.root, path) // path lies below root
		g.exists = append(g.exists, rel)
		if !d.IsDir() {
			g.files = append(g.files, rel)
		}
		return nil
	})
}

// learn takes note of what an operation of the reference did.
func (g *modelGen) learn(op modelOp, r modelResult) {
	ok := strings.HasPrefix(r.Text, "ok")
	switch op.Kind {
	case "open", "opendir", "tmpfile", "reopen", "dup":
		if ok {
			g.stale = min(g.stale, 3)
			g.fds[op.W][op.FD] = strings.Contains(r.Text, "type=d")
		}
	case "close":
		delete(g.fds[op.W], op.FD)
	case "mmap":
		if ok {
			g.maps[op.W][op.Map] = true
		}
	case "munmap":
		delete(g.maps[op.W], op.Map)
	}
}

// chance is true in percent of all cases.
func (g *modelGen) chance(percent int) bool { return g.rng.IntN(100) < percent }

// pick takes one of several values.
func pick[T any](g *modelGen, values ...T) T { return values[g.rng.IntN(len(values))] }

// someFlags takes each flag with the given chance.
func (g *modelGen) someFlags(percent int, flags ...int) int {
	all := 0
	for _, f := range flags {
		if g.chance(percent) {
			all |= f
		}
	}
	return all
}

// name is one of few names, so that they collide.
func (g *modelGen) name() string {
	return pick(g, "a", "a", "a", "b", "b", "b", "c", "c", "d", "e", "g h", "n{255}")
}

// path is a path that exists in most cases.
func (g *modelGen) path() string {
	switch n := g.rng.IntN(100); {
	case n < 60 && len(g.exists) > 0:
		return shortened(pick(g, g.exists...))
	case n < 96:
		return g.newPath()
	}
	return g.oddPath()
}

// filePath is the path of a file or what links to one in most cases.
func (g *modelGen) filePath() string {
	if len(g.files) > 0 && g.chance(60) {
		return shortened(pick(g, g.files...))
	}
	return g.path()
}

// shortened is the reverse of expand for the one long name there is.
func shortened(path string) string {
	return strings.ReplaceAll(path, expand("n{255}"), "n{255}")
}

// newPath may exist or not.
func (g *modelGen) newPath() string {
	return pick(g, "", "", "d/", "d/", "d/e/", "d/e/", "f/", "a/") + g.name()
}

// oddPath is one that the kernel treats in a way of its own.
func (g *modelGen) oddPath() string {
	p := g.newPath()
	return pick(g, p+"/", p+"/.", p+"/../"+g.name(), "d//"+g.name(), "n{256}", p+"/"+g.name(), "./"+p)
}

// place sets op's Path and now and then makes it relative to a folder handle.
func (g *modelGen) place(op *modelOp, path string) {
	op.Path = path
	if slot := g.folder(); slot != 0 && g.chance(15) {
		op.At, op.Path = slot, g.name()
	}
}

// slot is a handle of the current worker; an empty one if there is none.
func (g *modelGen) slot() int {
	if used := g.used(func(bool) bool { return true }); len(used) > 0 {
		return pick(g, used...)
	}
	return 1
}

// file is a handle that is not a folder, with few exceptions.
func (g *modelGen) file() int {
	files := g.used(func(dir bool) bool { return !dir })
	if len(files) > 0 && !g.chance(3) {
		return pick(g, files...)
	}
	return g.slot()
}

// folder is a handle of a folder, or 0 if there is none.
func (g *modelGen) folder() int {
	if dirs := g.used(func(dir bool) bool { return dir }); len(dirs) > 0 {
		return pick(g, dirs...)
	}
	return 0
}

func (g *modelGen) used(want func(dir bool) bool) []int {
	var slots []int
	for slot := 1; slot <= modelSlots; slot++ {
		if dir, ok := g.fds[g.worker][slot]; ok && want(dir) {
			slots = append(slots, slot)
		}
	}
	return slots
}

// freeSlot is where the next handle goes: an empty slot as long as there is one.
func (g *modelGen) freeSlot() int {
	for slot := 1; slot <= modelSlots; slot++ {
		if _, ok := g.fds[g.worker][slot]; !ok {
			return slot
		}
	}
	return 1 + g.rng.IntN(modelSlots)
}

// offset lies near a boundary where something may go wrong.
func (g *modelGen) offset() int64 {
	if g.chance(1) {
		return pick[int64](g, 1<<31-1, 1<<32, 1<<32+1, 1<<40)
	}
	return g.length()
}

// length is a size near a boundary; most are small.
func (g *modelGen) length() int64 {
	switch n := g.rng.IntN(100); {
	case n < 35:
		return pick[int64](g, 0, 1, 2, 100, 511, 512, 1000)
	case n < 80:
		return pick[int64](g, 4095, 4096, 4097, 8191, 8192, 8193, 12288, 16384)
	case n < 95:
		return pick[int64](g, 65536, 128<<10-1, 128<<10, 128<<10+1, 200000)
	}
	return pick[int64](g, 1<<20-1, 1<<20, 1<<20+1)
}

// other is a file's handle, not the given one if there is another.
func (g *modelGen) other(slot int) int {
	for range 4 {
		if s := g.file(); s != slot {
			return s
		}
	}
	return slot
}

func (g *modelGen) fill() int { return 1 + g.rng.IntN(250) }
