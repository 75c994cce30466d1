package tests

import "sync"

// modelKind is one kind of operation: how it is made up, how it is done, what its flags are called.
type modelKind struct {
	name   string
	weight int // how often it is generated, relative to the others
	flags  []flagName
	gen    func(g *modelGen, op *modelOp)
	run    func(w *modelWorkerState, op *modelOp) (string, error)
}

// modelKinds are all kinds of operations by name. Do not change the map.
var modelKinds = sync.OnceValue(func() map[string]modelKind {
	kinds := map[string]modelKind{}
	for _, k := range modelKindList() {
		if _, twice := kinds[k.name]; twice {
			panic("two kinds of operations named " + k.name)
		}
		kinds[k.name] = k
	}
	return kinds
})

// modelKindList is in a fixed order: a seed must give the same operations in every run.
func modelKindList() []modelKind {
	var all []modelKind
	for _, family := range [][]modelKind{
		openKinds(), nameKinds(), dataKinds(), spaceKinds(), attrKinds(), xattrKinds(), lockKinds(), mapKinds(), dirKinds(), treeKinds(),
	} {
		all = append(all, family...)
	}
	return all
}
