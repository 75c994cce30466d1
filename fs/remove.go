package fs

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// victim is an object about to lose a name.
type victim struct {
	in *inode // nil when the kernel does not know it
	fd int    // O_PATH, or -1
}

// victimAt finds out what name in dirfd is, which the caller is to take away. An object that the kernel knows
// comes with a descriptor, by which it stays reachable once its name is gone.
func (t *Tree) victimAt(h *fuse.InHeader, dirfd int, name string) (victim, error) {
	var st unix.Statx_t
	fd, err := t.openAt(dirfd, name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	switch err {
	case nil:
		err = statFD(fd, &st)
	case unix.EMFILE, unix.ENFILE:
		fd, err = -1, statAt(dirfd, name, &st) // the removal itself needs none
	}
	if err == nil {
		err = t.maySticky(h, dirfd, st.Uid)
	}
	v := victim{fd: fd}
	if err == nil {
		if v.in = t.inodes.known(identityOf(&st)); v.in != nil {
			return v, nil
		}
	}
	if fd >= 0 {
		close_(fd)
	}
	return victim{fd: -1}, err
}

// bury takes the victim's name off it once it is gone from the directory.
func (t *Tree) bury(v victim, parent *inode, name string) {
	if v.in == nil {
		return
	}
	if v.in.removeLink(parent, name) || v.fd < 0 {
		v.spare()
		return
	}
	t.setPin(v.in, v.fd)
}

// spare gives the descriptor back: nothing was removed.
func (v victim) spare() {
	if v.in != nil && v.fd >= 0 {
		close_(v.fd)
	}
}

// maySticky checks once more, against the object that is there now, what the
// kernel has checked against the one it remembers: in a sticky directory, only
// the owner of the object or of the directory takes a name away. ESTALE has the
// kernel look again.
func (t *Tree) maySticky(h *fuse.InHeader, dirfd int, owner uint32) error {
	if !t.asRoot || h.Uid == 0 || h.Uid == owner {
		return nil
	}
	var dir unix.Statx_t
	if err := statFD(dirfd, &dir); err != nil {
		return err
	}
	if dir.Mode&unix.S_ISVTX == 0 || dir.Uid == h.Uid || credentialsOf(h).can(unix.CAP_FOWNER) {
		return nil
	}
	return unix.ESTALE
}

// remove takes name out of a directory; flags are those of unlinkat(2).
func (t *Tree) remove(h *fuse.InHeader, name string, flags int) error {
	parent := t.inode(h.NodeId)
	if parent == nil {
		return unix.ESTALE
	}
	d, err := t.directory(parent)
	if err != nil {
		return err
	}
	defer d.release()
	t.moving.RLock()
	defer t.moving.RUnlock()
	v, err := t.victimAt(h, d.fd, name)
	if err != nil {
		return err
	}
	if err := unix.Unlinkat(d.fd, name, flags); err != nil {
		v.spare()
		return err
	}
	t.bury(v, parent, name)
	return nil
}

// Unlink is part of fuse.RawFileSystem.
func (t *Tree) Unlink(_ <-chan struct{}, req *fuse.InHeader, name string) fuse.Status {
	return t.status(t.remove(req, name, 0))
}

// Rmdir is part of fuse.RawFileSystem.
func (t *Tree) Rmdir(_ <-chan struct{}, req *fuse.InHeader, name string) fuse.Status {
	return t.status(t.remove(req, name, unix.AT_REMOVEDIR))
}

// Rename is part of fuse.RawFileSystem; flags are those of renameat2(2).
func (t *Tree) Rename(_ <-chan struct{}, req *fuse.RenameIn, oldName, newName string) fuse.Status {
	from, to := t.inode(req.NodeId), t.inode(req.Newdir)
	if from == nil || to == nil {
		return fuse.Status(unix.ESTALE)
	}
	fromDir, err := t.directory(from)
	if err != nil {
		return t.status(err)
	}
	defer fromDir.release()
	toDir, err := t.directory(to)
	if err != nil {
		return t.status(err)
	}
	defer toDir.release()
	moved, err := t.rename(&req.InHeader, place{from, fromDir.fd, oldName}, place{to, toDir.fd, newName}, uint(req.Flags))
	if err == nil {
		t.pathsChanged(moved)
	}
	return t.status(err)
}

// place is a name in an open directory.
type place struct {
	parent *inode
	dirfd  int
	name   string
}

// renames is how many renames there have been, or busy.
type renames uint64

// busy stands for a moment at which a rename was under way.
const busy = ^renames(0)

func (t *Tree) renamesNow() renames {
	ended := t.renamesEnded.Load()
	if t.renamesBegun.Load() != ended {
		return busy
	}
	return renames(ended)
}

// quiet reports that no rename has begun since.
func (t *Tree) quiet(since renames) bool {
	return since != busy && renames(t.renamesBegun.Load()) == since
}

// rename returns the inodes whose paths have changed.
func (t *Tree) rename(h *fuse.InHeader, from, to place, flags uint) (moved []*inode, err error) {
	t.moving.RLock()
	defer t.moving.RUnlock()
	t.renamesBegun.Add(1)
	defer t.renamesEnded.Add(1)
	var st unix.Statx_t
	if err := statAt(from.dirfd, from.name, &st); err != nil {
		return nil, err
	}
	if err := t.maySticky(h, from.dirfd, st.Uid); err != nil {
		return nil, err
	}
	source := t.inodes.known(identityOf(&st))
	if flags == 0 {
		// Mostly there is nothing to be replaced, and so nothing to find out.
		err := unix.Renameat2(from.dirfd, from.name, to.dirfd, to.name, unix.RENAME_NOREPLACE)
		if err == nil {
			t.relink(source, from, to)
			return []*inode{source}, nil
		}
	}
	return t.renameOver(h, source, from, to, flags)
}

// renameOver is rename where something may be in the way, or be exchanged.
func (t *Tree) renameOver(h *fuse.InHeader, source *inode, from, to place, flags uint) ([]*inode, error) {
	v, err := t.victimAt(h, to.dirfd, to.name)
	if err != nil && err != unix.ENOENT {
		return nil, err
	}
	replaced := err == nil
	call := func() error {
		return unix.Renameat2(from.dirfd, from.name, to.dirfd, to.name, flags)
	}
	if flags&unix.RENAME_WHITEOUT != 0 {
		err = t.asCaller(h, call) // whose character device is left behind
	} else {
		err = call()
	}
	if err != nil || replaced && v.in == source && source != nil {
		// Two names of one file: rename(2) does nothing and says so to nobody.
		v.spare()
		return nil, err
	}
	if flags&unix.RENAME_EXCHANGE != 0 {
		v.spare()
		t.relink(v.in, to, from)
	} else if replaced {
		t.bury(v, to.parent, to.name)
	}
	t.relink(source, from, to)
	return []*inode{source, v.in}, nil
}

// relink notes that in moved.
func (t *Tree) relink(in *inode, from, to place) {
	if in == nil {
		return
	}
	t.place(in, to.parent, to.name, func() bool { return false })
	in.removeLink(from.parent, from.name)
}

// pathsChanged makes rules be asked again, and the kernel for the attributes
// of what moved, so that block sizes follow the paths.
func (t *Tree) pathsChanged(moved []*inode) {
	if t.Policy.Static() {
		return
	}
	t.layout.Add(1)
	below := moved
	for _, in := range moved {
		if in != nil && in.children.Load() > 0 {
			below = append(below, t.descendants(in)...)
		}
	}
	for _, in := range below {
		if in != nil {
			t.kernel.InodeNotify(in.id, -1, 0)
		}
	}
}

// descendants returns the known inodes below in.
func (t *Tree) descendants(in *inode) []*inode {
	var below []*inode
	t.inodes.ids.each(func(candidate *inode) {
		if candidate != in && t.isBelow(candidate, in) {
			below = append(below, candidate)
		}
	})
	return below
}

func (t *Tree) isBelow(in, ancestor *inode) bool {
	for depth := 0; in != t.root && depth < maxDepth; depth++ {
		in.mu.Lock()
		if len(in.links) == 0 {
			in.mu.Unlock()
			return false
		}
		parent := in.links[len(in.links)-1].parent
		in.mu.Unlock()
		if parent == ancestor {
			return true
		}
		in = parent
	}
	return false
}
