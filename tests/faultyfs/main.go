// Command faultyfs shows a folder at another place, as tests of what a filesystem that fails or is slow does to
// programs want it. How it fails is in a file that is read anew for each request:
//
//	write EIO      writes fail
//	fsync EIO      syncs fail
//	delay 200ms    each write takes so long
//
// usage: faultyfs FAULTS FOLDER MOUNTPOINT
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: faultyfs FAULTS FOLDER MOUNTPOINT")
	}
	if err := serve(faults(os.Args[1]), os.Args[2], os.Args[3]); err != nil {
		log.Fatal(err)
	}
}

func serve(f faults, folder, mountpoint string) error {
	var st syscall.Stat_t
	if err := syscall.Stat(folder, &st); err != nil {
		return err
	}
	data := &fs.LoopbackRoot{Path: folder, Dev: uint64(st.Dev)}
	root := &node{LoopbackNode: fs.LoopbackNode{RootData: data}, faults: f}
	data.RootNode = root
	server, err := fs.Mount(mountpoint, root, &fs.Options{
		MountOptions: fuse.MountOptions{AllowOther: true, DirectMount: true, MaxWrite: 1 << 20, Options: []string{"default_permissions"}},
	})
	if err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	server.Wait()
	return nil
}

// faults is the path of the file that says what goes wrong.
type faults string

// of is the error that op is to fail with. It also takes the time that op is to take.
func (f faults) of(op string) syscall.Errno {
	text, err := os.ReadFile(string(f))
	if err != nil {
		log.Print(err)
		return syscall.EDOM // which no test expects
	}
	for line := range strings.Lines(string(text)) {
		what, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case what == "delay" && op == "write":
			d, err := time.ParseDuration(value)
			if err != nil {
				log.Print(err)
			}
			time.Sleep(d)
		case what == op && value == "EIO":
			return syscall.EIO
		}
	}
	return 0
}

// node is a file or folder.
type node struct {
	fs.LoopbackNode
	faults faults
}

// WrapChild is part of fs.NodeWrapChilder.
func (n *node) WrapChild(_ context.Context, ops fs.InodeEmbedder) fs.InodeEmbedder {
	return &node{LoopbackNode: fs.LoopbackNode{RootData: ops.(*fs.LoopbackNode).RootData}, faults: n.faults}
}

// Open is part of fs.NodeOpener.
func (n *node) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	h, out, errno := n.LoopbackNode.Open(ctx, flags)
	return n.wrap(h), out, errno
}

// Create is part of fs.NodeCreater.
func (n *node) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	in, h, fuseFlags, errno := n.LoopbackNode.Create(ctx, name, flags, mode, out)
	return in, n.wrap(h), fuseFlags, errno
}

func (n *node) wrap(h fs.FileHandle) fs.FileHandle {
	l, ok := h.(*fs.LoopbackFile)
	if !ok {
		return h
	}
	return &file{under: l, faults: n.faults}
}

// file is an open file. It does not embed the one under it, which the kernel would use without asking us.
type file struct {
	under  *fs.LoopbackFile
	faults faults
}

// Read is part of fs.FileReader.
func (f *file) Read(ctx context.Context, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	return f.under.Read(ctx, dest, off)
}

// Write is part of fs.FileWriter.
func (f *file) Write(ctx context.Context, data []byte, off int64) (uint32, syscall.Errno) {
	if errno := f.faults.of("write"); errno != 0 {
		return 0, errno
	}
	return f.under.Write(ctx, data, off)
}

// Fsync is part of fs.FileFsyncer.
func (f *file) Fsync(ctx context.Context, flags uint32) syscall.Errno {
	if errno := f.faults.of("fsync"); errno != 0 {
		return errno
	}
	return f.under.Fsync(ctx, flags)
}

// Flush is part of fs.FileFlusher.
func (f *file) Flush(ctx context.Context) syscall.Errno { return f.under.Flush(ctx) }

// Release is part of fs.FileReleaser.
func (f *file) Release(ctx context.Context) syscall.Errno { return f.under.Release(ctx) }

// Lseek is part of fs.FileLseeker.
func (f *file) Lseek(ctx context.Context, off uint64, whence uint32) (uint64, syscall.Errno) {
	return f.under.Lseek(ctx, off, whence)
}

// Setattr is part of fs.FileSetattrer.
func (f *file) Setattr(ctx context.Context, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	return f.under.Setattr(ctx, in, out)
}

// Getattr is part of fs.FileGetattrer.
func (f *file) Getattr(ctx context.Context, out *fuse.AttrOut) syscall.Errno {
	return f.under.Getattr(ctx, out)
}

// Allocate is part of fs.FileAllocater.
func (f *file) Allocate(ctx context.Context, off, size uint64, mode uint32) syscall.Errno {
	return f.under.Allocate(ctx, off, size, mode)
}

var (
	_ fs.NodeWrapChilder = (*node)(nil)
	_ fs.NodeOpener      = (*node)(nil)
	_ fs.NodeCreater     = (*node)(nil)
	_ fs.FileReader      = (*file)(nil)
	_ fs.FileWriter      = (*file)(nil)
	_ fs.FileFsyncer     = (*file)(nil)
)
