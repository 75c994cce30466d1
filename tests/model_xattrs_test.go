package tests

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

var xattrFlags = []flagName{
	{"XATTR_CREATE", unix.XATTR_CREATE}, {"XATTR_REPLACE", unix.XATTR_REPLACE},
}

const (
	aclAccess  = "system.posix_acl_access"
	aclDefault = "system.posix_acl_default"
	capability = "security.capability"
)

// capabilityValue is a version 2 capability: permitted cap_chown, effective.
const capabilityValue = "\x01\x00\x00\x02\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"

// xattrKinds are the operations on extended attributes. With a handle (FD) they use it, else Path without
// following a symlink.
func xattrKinds() []modelKind {
	return []modelKind{
		{name: "setxattr", weight: 14, flags: xattrFlags, gen: genSetxattr, run: runSetxattr},
		{name: "setacl", weight: 12, flags: xattrFlags, gen: genSetACL, run: runSetxattr},
		{name: "getxattr", weight: 12, gen: genGetxattr, run: runGetxattr},
		{name: "listxattr", weight: 6, gen: genXattrObject, run: runListxattr},
		{name: "removexattr", weight: 8, gen: genGetxattr, run: runRemovexattr},
	}
}

func genXattrObject(g *modelGen, op *modelOp) {
	if g.chance(40) {
		op.FD = g.slot()
		return
	}
	op.Path = pick(g, g.path(), g.filePath(), "d", "")
}

func (g *modelGen) xattrName() string {
	return pick(g, "user.a", "user.a", "user.a", "user.a", "user.b", "user.b", aclAccess, "user.n{200}", "trusted.t", "security.foo", capability,
		"user.", "bogus", "system.foo", "user.n{255}", aclAccess, aclDefault)
}

func genSetxattr(g *modelGen, op *modelOp) {
	genXattrObject(g, op)
	op.Name = g.xattrName()
	op.Value = pick(g, "", "x", "hello", "v{100}", "v{1000}", "v{3000}", "v{65536}", "v{65537}")
	op.Flags = g.someFlags(20, unix.XATTR_CREATE, unix.XATTR_REPLACE)
	switch op.Name {
	case capability:
		op.Value = pick(g, "cap", "x")
	case aclAccess, aclDefault:
		op.Value = g.acl()
	}
}

func genSetACL(g *modelGen, op *modelOp) {
	genXattrObject(g, op)
	if op.FD == 0 && g.chance(50) {
		op.Path = g.filePath()
	}
	op.Name, op.Value = pick(g, aclAccess, aclDefault), g.acl()
}

// acl is an ACL as text, sometimes one that is not valid.
func (g *modelGen) acl() string {
	u, grp, mask := g.rng.IntN(8), g.rng.IntN(8), g.rng.IntN(8)
	return pick(g,
		fmt.Sprintf("u::7,g::%d,o::%d", grp, u),
		fmt.Sprintf("u::7,u:%d:%d,g::%d,m::%d,o::0", pick(g, firstUser, secondUser), u, grp, mask),
		fmt.Sprintf("u::6,g::%d,g:%d:%d,m::%d,o::4", grp, pick(g, sharedGroup, secondUser), u, mask),
		fmt.Sprintf("u::%d,u:%d:7,u:%d:0,g::5,g:%d:%d,m::%d,o::%d", u, firstUser, secondUser, sharedGroup, grp, mask, grp),
		fmt.Sprintf("u::7,u:%d:7,g::0,o::0", firstUser), // no mask: invalid
		"u::7,g::5",
		"",
	)
}

func genGetxattr(g *modelGen, op *modelOp) {
	genXattrObject(g, op)
	op.Name = g.xattrName()
	op.Len = pick[int64](g, 0, 1, 100, 65536, 65536, 65536)
}

// xattrPath is a path for the xattr system calls, which have no *at form: without links for op.Path, through
// /proc for a handle, where nothing else would reach an O_PATH one.
func (w *modelWorkerState) xattrPath(op *modelOp) (string, error) {
	if op.FD == 0 {
		_, path := w.at(0, op.Path)
		return path, nil
	}
	_, err := w.fd(op.FD)
	return "", err
}

func runSetxattr(w *modelWorkerState, op *modelOp) (string, error) {
	path, err := w.xattrPath(op)
	if err != nil {
		return "", err
	}
	value := xattrValue(op)
	if op.FD != 0 {
		return "", unix.Fsetxattr(w.fds[op.FD], expand(op.Name), value, op.Flags)
	}
	return "", unix.Lsetxattr(path, expand(op.Name), value, op.Flags)
}

// xattrValue turns the text of an operation into the bytes that the kernel wants.
func xattrValue(op *modelOp) []byte {
	switch {
	case op.Name == aclAccess, op.Name == aclDefault:
		return encodeACL(op.Value)
	case op.Name == capability && op.Value == "cap":
		return []byte(capabilityValue)
	}
	return []byte(expand(op.Value))
}

func runGetxattr(w *modelWorkerState, op *modelOp) (string, error) {
	path, err := w.xattrPath(op)
	if err != nil {
		return "", err
	}
	value := make([]byte, op.Len)
	var n int
	if op.FD != 0 {
		n, err = unix.Fgetxattr(w.fds[op.FD], expand(op.Name), value)
	} else {
		n, err = unix.Lgetxattr(path, expand(op.Name), value)
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("n=%d value=%s", n, xattrText(op.Name, value[:min(n, len(value))])), nil
}

// xattrText prints a value: ACLs as text, what is long by its checksum.
func xattrText(name string, value []byte) string {
	if name == aclAccess || name == aclDefault {
		return decodeACL(value)
	}
	return describe(value, 0)
}

func runListxattr(w *modelWorkerState, op *modelOp) (string, error) {
	path, err := w.xattrPath(op)
	if err != nil {
		return "", err
	}
	buf := make([]byte, 64<<10)
	var n int
	if op.FD != 0 {
		n, err = unix.Flistxattr(w.fds[op.FD], buf)
	} else {
		n, err = unix.Llistxattr(path, buf)
	}
	if err != nil {
		return "", err
	}
	names := strings.Split(strings.TrimSuffix(string(buf[:n]), "\x00"), "\x00")
	slices.Sort(names)
	return fmt.Sprintf("n=%d names=%s", n, strings.Join(names, ",")), nil
}

func runRemovexattr(w *modelWorkerState, op *modelOp) (string, error) {
	path, err := w.xattrPath(op)
	if err != nil {
		return "", err
	}
	if op.FD != 0 {
		return "", unix.Fremovexattr(w.fds[op.FD], expand(op.Name))
	}
	return "", unix.Lremovexattr(path, expand(op.Name))
}
