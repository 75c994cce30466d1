package tests

import (
	"bytes"
	"encoding/gob"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// The users that the workers run as when the tests run as root, beside root itself. The first two share a
// group with each other and with the setgid folder of the prologue.
const (
	firstUser   = 12345
	secondUser  = 12346
	sharedGroup = 23456
)

// modelUsers are the identities of the workers: nil is the one the tests run as.
func modelUsers() [modelWorkers]*user {
	if os.Geteuid() != 0 {
		return [modelWorkers]*user{}
	}
	return [modelWorkers]*user{
		nil,
		{UID: firstUser, GID: firstUser, Groups: []uint32{sharedGroup}},
		{UID: secondUser, GID: secondUser, Groups: []uint32{sharedGroup, firstUser}},
	}
}

// modelWorld is one side of a comparison: a folder and the workers that act on it. Not for use by several
// goroutines at once.
type modelWorld struct {
	root    string
	workers []*workerProcess
}

// newWorld starts workers on root, which exists.
func newWorld(root, fault string, users []*user) (*modelWorld, error) {
	w := &modelWorld{root: root}
	for _, u := range users {
		p, err := startWorker(root, fault, u)
		if err != nil {
			w.close()
			return nil, err
		}
		w.workers = append(w.workers, p)
	}
	return w, nil
}

// do has the operation done by its worker.
func (w *modelWorld) do(op modelOp) modelResult { return w.workers[op.W%len(w.workers)].do(op) }

// close ends the workers and with them their handles, mappings and locks.
func (w *modelWorld) close() {
	for _, p := range w.workers {
		p.close()
	}
}

// workerProcess is the driver's end of a worker.
type workerProcess struct {
	cmd    *exec.Cmd
	stderr bytes.Buffer
	in     *os.File
	out    *os.File
	enc    *gob.Encoder
	dec    *gob.Decoder
}

func startWorker(root, fault string, u *user) (*workerProcess, error) {
	opsOut, opsIn, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer opsOut.Close()
	resultsOut, resultsIn, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, opsIn.Close())
	}
	defer resultsIn.Close()
	p := &workerProcess{cmd: helperCommand("model-worker", root, fault), in: opsIn, out: resultsOut}
	// The signals by which Go preempts goroutines would interrupt system calls at random.
	p.cmd.Env = append(p.cmd.Env, "GODEBUG=asyncpreemptoff=1", "GOMAXPROCS=1")
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = opsOut, resultsIn, &p.stderr
	if u != nil {
		p.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: u.credential()}
	}
	p.enc, p.dec = gob.NewEncoder(opsIn), gob.NewDecoder(resultsOut)
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(err, opsIn.Close(), resultsOut.Close())
	}
	return p, nil
}

// do sends an operation and waits for its result.
func (p *workerProcess) do(op modelOp) modelResult {
	const limit = 20 * time.Second
	if err := p.enc.Encode(op); err != nil {
		return modelResult{Text: fmt.Sprintf("%s: %v %s", workerLost, err, &p.stderr)}
	}
	if err := p.out.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return modelResult{Text: fmt.Sprintf("%s: %v", workerLost, err)}
	}
	var r modelResult
	if err := p.dec.Decode(&r); err != nil {
		return modelResult{Text: fmt.Sprintf("%s: %v %s", workerLost, err, tail(p.stderr.String(), 2000))}
	}
	return r
}

// workerLost starts the result of an operation that never came back.
const workerLost = "worker lost"

// close ends the worker.
func (p *workerProcess) close() {
	_ = p.in.Close() // it ends by that
	ended := make(chan struct{})
	go func() {
		_ = p.cmd.Wait() // how a worker ends means nothing
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(5 * time.Second):
		_ = p.cmd.Process.Kill() // one that hangs in the kernel dies when its mount is aborted
	}
	_ = p.out.Close()
}

// modelSite is where runs happen: fresh folders below a plain folder and below the backing folder of a
// mount. Without a mount (Mount is the same as Source) it compares two plain folders.
type modelSite struct {
	Plain  string
	Source string
	Mount  string
	Users  [modelWorkers]*user
	Mode   string // of the mount: see modes
	Cached bool   // some files at least go through the page cache
	ByUser bool   // the daemon has no privileges
	Fault  string // deliberate fault of the workers on the mount

	runs int
}

// modelSession is one run: the reference, the mount and the backing folder.
type modelSession struct {
	ref, got, source *modelWorld
	dirs             []string
	known            knownDifferences
}

// session starts a run in fresh folders.
func (s *modelSite) session() (*modelSession, error) {
	s.runs++
	// One folder in between: a symlink may lead up by one, and must not leave the run.
	name := filepath.Join("run-"+strconv.Itoa(s.runs), "root")
	for _, dir := range []string{s.Plain, s.Source} {
		if err := makeOpenDir(filepath.Join(dir, name)); err != nil {
			return nil, err
		}
	}
	n := &modelSession{known: knownDifferences{passthrough: s.Mode == "passthrough", staged: s.Mode == "staged", pageCache: s.Cached, userMount: s.ByUser}, dirs: []string{filepath.Dir(filepath.Join(s.Plain, name)), filepath.Dir(filepath.Join(s.Source, name))}}
	var err1, err2, err3 error
	n.ref, err1 = newWorld(filepath.Join(s.Plain, name), "", s.Users[:])
	n.got, err2 = newWorld(filepath.Join(s.Mount, name), s.Fault, s.Users[:])
	n.source, err3 = newWorld(filepath.Join(s.Source, name), "", s.Users[:1])
	return n, errors.Join(err1, err2, err3)
}

// makeOpenDir makes a folder and its parents in which everybody may do everything.
func makeOpenDir(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return errors.Join(os.Chmod(filepath.Dir(dir), 0o777), os.Chmod(dir, 0o777))
}

// close ends the workers and removes the run's folders.
func (n *modelSession) close() error {
	var err error
	for _, w := range []*modelWorld{n.ref, n.got, n.source} {
		if w != nil {
			w.close()
		}
	}
	for _, dir := range n.dirs {
		err = errors.Join(err, clearInodeFlags(dir), os.RemoveAll(dir))
	}
	return err
}
