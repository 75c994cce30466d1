package main

import (
	"errors"
	"log/slog"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// watch waits for a mount's end, and brings it about when a signal asks for it.
//
// A first signal unmounts. While the mount is in use that fails; it is served
// on then, and the next signal detaches it: it is served until its last user
// has gone. The signal after that ends the wait whatever is still in use. Once
// nobody can use it any more it only has staged data to write out: a signal then
// asks for patience, and the next one drops that data.
type watch struct {
	mounted    mounted
	mountpoint string
	log        *slog.Logger
	state      watchState
}

type watchState uint8

const (
	serving  watchState = iota // nothing was asked for yet
	stuck                      // an unmount has failed
	away                       // unmounted or detached here, but perhaps still in use
	flushing                   // gone everywhere; staged data is being written out
	last                       // likewise, and the next signal ends it
)

// lingering is when an unmounted mount that has not ended deserves a word.
const lingering = 2 * time.Second

// untilUnmounted returns when the mount has ended.
func (w *watch) untilUnmounted(signals <-chan os.Signal) {
	done := make(chan struct{})
	go func() {
		w.mounted.Wait()
		close(done)
	}()
	gone := w.mounted.Gone()
	var late <-chan time.Time
	for {
		select {
		case <-done:
			return
		case <-gone:
			w.state, gone, late = flushing, nil, nil
		case <-late:
			w.log.Warn("unmounted, but still in use: by programs that had files open, or mounted in another mount namespace; the next signal ends it",
				"mountpoint", w.mountpoint)
		case sig := <-signals:
			if w.state == away || w.state == last {
				w.mounted.GiveUp()
				return
			}
			w.stop(sig)
			if w.state == away {
				late = time.After(lingering)
			}
		}
	}
}

// stop takes the next step towards the end.
func (w *watch) stop(sig os.Signal) {
	log := w.log.With("signal", sig, "mountpoint", w.mountpoint)
	if w.state == flushing {
		log.Warn("writing out what is staged; the next signal drops it", "bytes", w.mounted.Staged())
		w.state = last
		return
	}
	if w.state == stuck {
		if err := w.mounted.Detach(); err != nil {
			log.Error("cannot detach", "error", err)
			return
		}
		log.Info("detached")
		w.state = away
		return
	}
	err := w.mounted.Unmount()
	switch {
	case err == nil:
		w.state = away
		return
	case errors.Is(err, unix.EBUSY):
		log.Warn("in use, so it stays mounted; the next signal detaches it", "by", whoHolds(w.mountpoint, strconv.Itoa(os.Getpid())))
	default:
		log.Error("cannot unmount; the next signal detaches it", "error", err)
	}
	w.state = stuck
}
