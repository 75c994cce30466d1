package fs

import (
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// maxLinks bounds the names remembered of one inode. One that works is enough
// to reach it; more than a few only serve files with many hard links.
const maxLinks = 8

// link is one place where an inode was seen.
type link struct {
	parent *inode
	name   string
}

// inode is a backing object that the kernel knows.
//
// LOCK ORDER: a registry shard's lock, then inode.mu, then dirCache.mu. No two
// inodes are locked at once, and no system call that can wait for the tree
// itself is made under any of them.
type inode struct {
	id  uint64 // node id, never used twice
	key identity

	lookups  uint64       // references that the kernel holds; guarded by the registry shard of key
	dropped  bool         // not in the registry any more; likewise
	children atomic.Int64 // links of other inodes that name this one as parent

	dir atomic.Pointer[dirFD] // cached descriptor of a directory, or nil

	// blksize and the layout of names that it was decided under, packed by
	// Tree.blksize; zero is unknown.
	decided atomic.Uint64

	// lostCapability says that the kernel has had a file capability removed,
	// as it does just before it asks for other privileges to be.
	lostCapability atomic.Bool

	stage  atomic.Pointer[stage] // keeps the inode known; nil if nothing is staged and nobody could
	belief belief                // of a regular file in staged mode

	mu      sync.Mutex
	links   []link  // guarded by mu; the newest last
	handles []*file // guarded by mu; open files, any of which reaches the inode
	pin     int     // guarded by mu; O_PATH descriptor of an object whose last name went through us, or -1
	gone    bool    // guarded by mu; forgotten: take no pin any more
	opened  opened  // guarded by mu
}

// addLink remembers that the inode is found as name in parent, as the newest
// of its places; with only, as the single one, since the object has no other.
// It reports whether the inode was known at another place before, and the
// parents of places that were dropped.
func (in *inode) addLink(parent *inode, name string, only func() bool) (moved bool, dropped []*inode) {
	in.mu.Lock()
	defer in.mu.Unlock()
	n := len(in.links)
	newest := n > 0 && in.links[n-1] == (link{parent, name})
	if newest && n == 1 {
		return false, nil // by far the most frequent case
	}
	// Asked under the lock, which a rename needs as well to note what it did.
	alone := only()
	if newest && !alone {
		return false, nil
	}
	parent.children.Add(1)
	kept := in.links[:0]
	for i, l := range in.links {
		if alone || l == (link{parent, name}) || n == maxLinks && i == 0 {
			dropped = append(dropped, l.parent)
		} else {
			kept = append(kept, l)
		}
	}
	in.links = append(kept, link{parent, name})
	return n > 0, dropped
}

// removeLink forgets that the inode is found as name in parent, and reports
// whether any other name of it is known.
func (in *inode) removeLink(parent *inode, name string) (left bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if i := slices.Index(in.links, link{parent, name}); i >= 0 {
		in.links = slices.Delete(in.links, i, i+1)
		parent.children.Add(-1) // which the request at hand keeps known
	}
	return len(in.links) > 0
}

// placed reports whether any place of the inode is known.
func (in *inode) placed() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.links) > 0
}

// names returns a copy of the known links, the newest first.
func (in *inode) names(buf []link) []link {
	in.mu.Lock()
	defer in.mu.Unlock()
	for i := len(in.links) - 1; i >= 0; i-- {
		buf = append(buf, in.links[i])
	}
	return buf
}

// registryShards spreads the registry's locks; a power of two.
const registryShards = 64

// registry finds inodes by node id and by identity.
type registry struct {
	ids    idTable[inode]
	shards [registryShards]struct {
		sync.Mutex
		byKey map[identity]*inode
	}
}

func newRegistry() *registry {
	r := &registry{}
	for i := range r.shards {
		r.shards[i].byKey = make(map[identity]*inode)
	}
	return r
}

// ref returns the inode of key with one more lookup counted, making it if it
// is new.
func (r *registry) ref(key identity) *inode {
	s := &r.shards[key.ino%registryShards]
	s.Lock()
	defer s.Unlock()
	in := s.byKey[key]
	if in == nil {
		in = &inode{key: key, pin: -1}
		in.id = r.ids.add(in)
		s.byKey[key] = in
	}
	in.lookups++
	return in
}

// known returns the inode of key, or nil. The caller holds no reference.
func (r *registry) known(key identity) *inode {
	s := &r.shards[key.ino%registryShards]
	s.Lock()
	defer s.Unlock()
	return s.byKey[key]
}

// unref takes n lookups off and drops the inode when nothing needs it any more.
func (r *registry) unref(in *inode, n uint64) (dropped bool) {
	s := &r.shards[in.key.ino%registryShards]
	s.Lock()
	defer s.Unlock()
	in.lookups -= min(n, in.lookups)
	if in.lookups > 0 || in.children.Load() > 0 || in.stage.Load() != nil || in.dropped {
		return false
	}
	in.dropped = true
	if s.byKey[in.key] == in {
		delete(s.byKey, in.key)
	}
	r.ids.remove(in.id)
	return true
}

// replace returns an inode, with one lookup counted, that stands for the same
// object as in from now on: a new one, unless somebody else has replaced in.
// What the kernel still has of in goes on with that.
func (r *registry) replace(in *inode) *inode {
	s := &r.shards[in.key.ino%registryShards]
	s.Lock()
	defer s.Unlock()
	fresh := s.byKey[in.key]
	if fresh == in || fresh == nil {
		fresh = &inode{key: in.key, pin: -1}
		fresh.id = r.ids.add(fresh)
		s.byKey[in.key] = fresh
	}
	fresh.lookups++
	return fresh
}

// wanted reports whether the kernel holds references to in.
func (r *registry) wanted(in *inode) bool {
	s := &r.shards[in.key.ino%registryShards]
	s.Lock()
	defer s.Unlock()
	return in.lookups > 0
}

// found notes that in is name in parent. st are its attributes, which were read
// after since was: with no rename since, they tell that there is no other place.
func (t *Tree) found(in, parent *inode, name string, st *unix.Statx_t, since renames) {
	if in == t.root {
		return
	}
	only := func() bool { return (in.key.isDir() || st.Nlink == 1) && t.quiet(since) }
	if !t.place(in, parent, name, only) || t.Policy.Static() {
		return
	}
	in.decided.Store(0)
	if in.key.isDir() {
		t.layout.Add(1) // everything below has moved too
	}
}

// place is addLink, with what it dropped given back.
func (t *Tree) place(in, parent *inode, name string, only func() bool) (moved bool) {
	moved, dropped := in.addLink(parent, name, only)
	for _, p := range dropped {
		t.orphan(p)
	}
	return moved
}

// orphan takes one child off parent, and forgets it if nothing else needs it.
func (t *Tree) orphan(parent *inode) {
	if parent.children.Add(-1) == 0 {
		t.forget(parent, 0)
	}
}

// forget takes n of the kernel's lookups off in; once it and everything below
// it is forgotten, its descriptors are given back.
func (t *Tree) forget(in *inode, n uint64) {
	for in != t.root && t.inodes.unref(in, n) {
		in = t.drop(in)
		n = 0
		if in == nil {
			return
		}
	}
}

// drop gives back what a forgotten inode holds. If that leaves a parent
// without children, that parent is returned to be considered next; others
// with the same fate are dropped here.
func (t *Tree) drop(in *inode) (next *inode) {
	in.mu.Lock()
	links := in.links
	pin := in.pin
	in.links, in.pin, in.gone = nil, -1, true
	in.mu.Unlock()

	if pin >= 0 {
		t.pins.Add(-1)
		close_(pin)
	}
	if d := in.dir.Swap(nil); d != nil {
		t.dirs.remove(d)
	}
	for _, l := range links {
		if l.parent.children.Add(-1) > 0 {
			continue
		}
		if next == nil {
			next = l.parent
		} else {
			t.forget(l.parent, 0)
		}
	}
	return next
}

// setPin gives the inode a descriptor to be reached by after its last name is
// gone. It takes fd over, and closes it if it is not needed.
func (t *Tree) setPin(in *inode, fd int) {
	if t.pins.Add(1) <= t.maxPins {
		in.mu.Lock()
		if in.pin < 0 && !in.gone {
			in.pin = fd
			in.mu.Unlock()
			return
		}
		in.mu.Unlock()
	}
	t.pins.Add(-1)
	close_(fd)
}
