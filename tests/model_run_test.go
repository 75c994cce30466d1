package tests

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// mismatch is a difference between a mount and the reference.
type mismatch struct {
	At   int // index of the operation in the script; its length for the comparison at the end
	Op   modelOp
	Want modelResult // of the reference
	Got  modelResult
}

// generate makes up and runs n operations. The script is what was run, up to the mismatch if there is one.
func (s *modelSite) generate(seed uint64, n int) (script []modelOp, m *mismatch, err error) {
	run, err := s.session()
	if err != nil {
		return nil, nil, err
	}
	g := newModelGen(seed, run.ref.root, s.Mode == "staged")
	next := g.prologue()
	for len(script) < n && m == nil {
		if len(next) == 0 {
			next = []modelOp{g.next()}
		}
		op := next[0]
		next = next[1:]
		script = append(script, op)
		var want modelResult
		want, m = run.step(len(script)-1, op)
		g.learn(op, want)
	}
	return script, run.end(len(script), m), run.close()
}

// replay runs a script up to the first mismatch.
func (s *modelSite) replay(script []modelOp) (*mismatch, error) {
	run, err := s.session()
	if err != nil {
		return nil, err
	}
	var m *mismatch
	for i := 0; i < len(script) && m == nil; i++ {
		_, m = run.step(i, script[i])
	}
	return run.end(len(script), m), run.close()
}

// step does one operation on both sides.
func (n *modelSession) step(at int, op modelOp) (want modelResult, m *mismatch) {
	want = n.ref.do(op)
	got := n.got.do(op)
	n.known.note(op, want, got)
	if n.known.agree(op, want, got) {
		return want, nil
	}
	return want, &mismatch{At: at, Op: op, Want: want, Got: got}
}

// end compares the trees after the last operation: through the mount, and, when all handles are closed, in
// the backing folder.
func (n *modelSession) end(at int, m *mismatch) *mismatch {
	tree := modelOp{Kind: "tree"}
	if m == nil {
		_, m = n.step(at, tree)
	}
	if m != nil {
		return m
	}
	for _, w := range append(n.ref.workers[1:], n.got.workers[1:]...) {
		w.close()
	}
	n.ref.workers, n.got.workers = n.ref.workers[:1], n.got.workers[:1]
	if want, got := n.ref.do(tree), n.source.do(tree); !n.known.agree(tree, want, got) {
		return &mismatch{At: at, Op: modelOp{Kind: "tree", Path: "SOURCE"}, Want: want, Got: got}
	}
	return nil
}

// class is what must stay the same while a script is made shorter: the kind of operation and the kind of
// difference.
func (m *mismatch) class() string {
	want, got := firstDifference(m.Want.Text, m.Got.Text)
	wantKey, _, ok := strings.Cut(want, "=")
	gotKey, _, ok2 := strings.Cut(got, "=")
	if ok || ok2 {
		return fmt.Sprintf("%s %s/%s", m.Op.Kind, wantKey, gotKey)
	}
	return fmt.Sprintf("%s %s/%s", m.Op.Kind, want, got)
}

// firstDifference are the first words in which two texts differ.
func firstDifference(a, b string) (string, string) {
	x, y := strings.Fields(a), strings.Fields(b)
	for len(x) > 0 && len(y) > 0 && x[0] == y[0] {
		x, y = x[1:], y[1:]
	}
	return first(x), first(y)
}

func first(words []string) string {
	if len(words) == 0 {
		return "nothing"
	}
	return words[0]
}

// String says what differs: of a tree only the lines that do.
func (m *mismatch) String() string {
	want, got := m.Want.Text, m.Got.Text
	if m.Op.Kind == "tree" {
		want, got = differingLines(want, got)
	}
	if m.Want.Fresh != m.Got.Fresh {
		want, got = fmt.Sprintf("%s fresh atime: %t", want, m.Want.Fresh), fmt.Sprintf("%s fresh atime: %t", got, m.Got.Fresh)
	}
	return fmt.Sprintf("operation %d: %s\n  plain: %s\n  mount: %s", m.At+1, m.Op, abbreviated(want), abbreviated(got))
}

// differingLines are the lines that only one of two texts has.
func differingLines(a, b string) (string, string) {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	return strings.Join(without(x, y), "\n         "), strings.Join(without(y, x), "\n         ")
}

func without(lines, others []string) []string {
	known := map[string]bool{}
	for _, l := range others {
		known[l] = true
	}
	var left []string
	for _, l := range lines {
		if !known[l] {
			left = append(left, l)
		}
	}
	return left
}

// abbreviated shortens runs of the same character, as in names of 255 bytes.
func abbreviated(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		n := 1
		for strings.HasPrefix(s[n*size:], s[:size]) {
			n++
		}
		if n > 20 {
			fmt.Fprintf(&b, "%c{%d}", r, n)
		} else {
			b.WriteString(s[:n*size])
		}
		s = s[n*size:]
	}
	return b.String()
}
