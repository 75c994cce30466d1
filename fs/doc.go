// Package fs shows a directory through FUSE.
//
// A [Tree] answers the kernel's requests by calls on descriptors of the
// backing directory: every step below SOURCE is one openat(2)-like call that
// names a single component and follows no symlink, so no name that somebody
// else swaps while we run can lead outside. Nothing here joins paths.
//
// An inode that the kernel knows is found again by what it is (device, inode
// number, birth time, type) and by where it was last seen (parent and name);
// descriptors are only a bounded cache on top of that. A name that leads to
// another object than before is ESTALE, at which the kernel looks it up afresh;
// it never leads to that other object's data.
//
// The package asks policy for the block size and the I/O mode and does not
// decide either. It knows go-fuse's raw interface and nothing of what carries
// the requests.
package fs
