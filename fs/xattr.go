package fs

import (
	"bytes"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// aclAccess is the extended attribute that holds a POSIX access ACL.
const aclAccess = "system.posix_acl_access"

// withPath calls f with a path that leads to the object of a node and to
// nothing else: the xattr calls take no O_PATH descriptor.
func (t *Tree) withPath(node uint64, f func(path string) error) error {
	in := t.inode(node)
	if in == nil {
		return unix.ESTALE
	}
	g, err := t.grab(in)
	if err != nil {
		return err
	}
	defer g.release()
	return f(procPath(g.fd))
}

// GetXAttr is part of fuse.RawFileSystem.
func (t *Tree) GetXAttr(_ <-chan struct{}, req *fuse.InHeader, attr string, dest []byte) (uint32, fuse.Status) {
	var n int
	err := t.withPath(req.NodeId, func(path string) (err error) {
		n, err = unix.Getxattr(path, attr, dest)
		return err
	})
	return uint32(max(n, 0)), t.status(err)
}

// ListXAttr is part of fuse.RawFileSystem.
func (t *Tree) ListXAttr(_ <-chan struct{}, req *fuse.InHeader, dest []byte) (uint32, fuse.Status) {
	var names []byte
	err := t.withPath(req.NodeId, func(path string) (err error) {
		names, err = listXattr(path)
		return err
	})
	if err != nil {
		return 0, t.status(err)
	}
	if t.asRoot && bytes.Contains(names, []byte(trusted)) && !credentialsOf(req).can(unix.CAP_SYS_ADMIN) {
		names = withoutTrusted(names)
	}
	if len(names) > len(dest) {
		return uint32(len(names)), fuse.ERANGE
	}
	return uint32(copy(dest, names)), fuse.OK
}

// trusted begins the names of attributes that only the privileged see. The
// backing kernel shows them to us whoever asks.
const trusted = "trusted."

func withoutTrusted(names []byte) []byte {
	var kept []byte
	for name := range bytes.SplitAfterSeq(names, []byte{0}) {
		if !bytes.HasPrefix(name, []byte(trusted)) {
			kept = append(kept, name...)
		}
	}
	return kept
}

// listXattr returns the names of all attributes, each ended by a zero byte.
func listXattr(path string) ([]byte, error) {
	for size := 256; ; size *= 4 {
		buf := make([]byte, size)
		n, err := unix.Listxattr(path, buf)
		if err != unix.ERANGE {
			return buf[:max(n, 0)], err
		}
	}
}

// SetXAttr is part of fuse.RawFileSystem.
func (t *Tree) SetXAttr(_ <-chan struct{}, req *fuse.SetXAttrIn, attr string, data []byte) fuse.Status {
	if in := t.inode(req.NodeId); attr == capability && in != nil {
		t.fetchDirty(in)
		if err := t.settle(in); err != nil {
			return t.status(err)
		}
		if s := in.stage.Load(); s != nil {
			s.plain.Store(false)
		}
	}
	return t.status(t.withPath(req.NodeId, func(path string) error {
		if err := unix.Setxattr(path, attr, data, int(req.Flags)); err != nil {
			return err
		}
		if attr != aclAccess || !t.asRoot {
			return nil
		}
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			return err
		}
		return dropSetgid(&req.InHeader, st.Mode, st.Gid, func(mode uint32) error { return unix.Chmod(path, mode) })
	}))
}

// RemoveXAttr is part of fuse.RawFileSystem.
func (t *Tree) RemoveXAttr(_ <-chan struct{}, req *fuse.InHeader, attr string) fuse.Status {
	return t.status(t.withPath(req.NodeId, func(path string) error {
		err := unix.Removexattr(path, attr)
		if in := t.inode(req.NodeId); err == nil && attr == capability && in != nil {
			in.lostCapability.Store(true)
		}
		return err
	}))
}
