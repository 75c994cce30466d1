package tests

import (
	"slices"
	"strings"
	"time"
)

// shrinker makes a failing script short. It keeps the class of the mismatch, so that it does not wander off
// to another fault.
type shrinker struct {
	site  *modelSite
	class string
	best  []modelOp
	found *mismatch // of best
	end   time.Time
	tries int
}

// shrink looks for a shorter script with a mismatch of the same class until there is none or the time is up.
// It gives nil when not even the whole script fails again: then the state of the mount from before matters.
func (s *modelSite) shrink(script []modelOp, m *mismatch, limit time.Duration) ([]modelOp, *mismatch) {
	h := &shrinker{site: s, class: m.class(), end: time.Now().Add(limit)}
	if !h.try(script) {
		return nil, nil
	}
	h.removeParts()
	for !h.over() && (h.shorterPaths() || h.withoutRename() || h.simplify()) {
		h.removeParts()
	}
	return h.best, h.found
}

func (h *shrinker) over() bool { return time.Now().After(h.end) }

// try keeps the candidate if it fails in the same way.
func (h *shrinker) try(candidate []modelOp) bool {
	h.tries++
	m, err := h.site.replay(candidate)
	if err != nil || m == nil || m.class() != h.class {
		return false
	}
	h.best, h.found = slices.Clone(candidate[:min(m.At+1, len(candidate))]), m
	return true
}

// removeParts leaves out ever smaller parts of the script: delta debugging.
func (h *shrinker) removeParts() {
	for size := max(1, len(h.best)/2); ; size /= 2 {
		for at := 0; at < len(h.best) && !h.over(); {
			candidate := slices.Concat(h.best[:at], h.best[min(at+size, len(h.best)):])
			if !h.try(candidate) {
				at += size
			}
		}
		if size <= 1 || h.over() {
			return
		}
	}
}

// simplify replaces arguments by plainer ones and says whether one could be.
func (h *shrinker) simplify() bool {
	changed := false
	for i := 0; i < len(h.best); i++ {
		for _, plainer := range plainerOps(h.best[i]) {
			if h.over() || i >= len(h.best) {
				return changed
			}
			candidate := slices.Clone(h.best)
			candidate[i] = plainer
			changed = h.try(candidate) || changed
		}
	}
	return changed
}

// shorterPaths replaces a path by its last part, wherever it occurs, and says whether that could be done.
func (h *shrinker) shorterPaths() bool {
	for _, op := range h.best {
		for _, long := range []string{op.Path, op.Path2} {
			_, short, ok := strings.Cut(long, "/")
			if !ok || short == "" || h.over() {
				continue
			}
			candidate := slices.Clone(h.best)
			for i := range candidate {
				candidate[i].Path = replacePath(candidate[i].Path, long, short)
				candidate[i].Path2 = replacePath(candidate[i].Path2, long, short)
			}
			if h.try(candidate) {
				return true
			}
		}
	}
	return false
}

// withoutRename leaves out a rename and uses the old name after it, and says whether that could be done.
func (h *shrinker) withoutRename() bool {
	for i, op := range h.best {
		if op.Kind != "rename" || h.over() {
			continue
		}
		candidate := slices.Delete(slices.Clone(h.best), i, i+1)
		for j := i; j < len(candidate); j++ {
			candidate[j].Path = replacePath(candidate[j].Path, op.Path, op.Path2)
			candidate[j].Path2 = replacePath(candidate[j].Path2, op.Path, op.Path2)
		}
		if h.try(candidate) {
			return true
		}
	}
	return false
}

// replacePath replaces old in path, where it is the whole path or a folder of it.
func replacePath(path, old, replacement string) string {
	if rest, ok := strings.CutPrefix(path, old); ok && (rest == "" || rest[0] == '/') {
		return replacement + rest
	}
	return path
}

// plainerOps are simpler variants of an operation, each in one respect.
func plainerOps(op modelOp) []modelOp {
	var ops []modelOp
	variant := func(change func(*modelOp)) {
		v := op
		change(&v)
		if v != op {
			ops = append(ops, v)
		}
	}
	variant(func(o *modelOp) { o.W = 0 })
	variant(func(o *modelOp) { o.At = 0 })
	for _, f := range modelKinds()[op.Kind].flags {
		variant(func(o *modelOp) { o.Flags &^= f.bits })
	}
	variant(func(o *modelOp) { o.Off = 0 })
	variant(func(o *modelOp) { o.Off2 = 0 })
	for _, n := range []int64{0, 1, 4096} {
		if n < op.Len {
			variant(func(o *modelOp) { o.Len = n })
		}
	}
	if op.Kind == "open" || op.Kind == "mkdir" {
		variant(func(o *modelOp) { o.Mode = 0o777 })
	}
	return ops
}
