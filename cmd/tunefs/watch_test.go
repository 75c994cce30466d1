package main

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"tunefs/policy"
)

// fakeMount is a mount without a kernel. Its Unmounts fail with the errors in
// refusals, one after the other, and then succeed.
type fakeMount struct {
	refusals []error
	lingers  bool // it goes on after it is unmounted
	flushes  bool // likewise, with nobody using it
	calls    []string
	gone     chan struct{} // closed when nobody uses it
	done     chan struct{} // closed when it has ended
}

func (m *fakeMount) Wait()         { <-m.done }
func (m *fakeMount) IO() policy.IO { return policy.Cached }
func (m *fakeMount) Reason() string {
	return "it is a fake"
}

func (m *fakeMount) Unmount() error { return m.end("unmount") }
func (m *fakeMount) Lost() int64    { return 0 }
func (m *fakeMount) Staged() int64  { return 4711 }
func (m *fakeMount) GiveUp()        { m.calls = append(m.calls, "give up") }

func (m *fakeMount) Gone() <-chan struct{} { return m.gone }
func (m *fakeMount) Detach() error         { return m.end("detach") }

func (m *fakeMount) end(call string) error {
	m.calls = append(m.calls, call)
	if len(m.refusals) > 0 {
		err := m.refusals[0]
		m.refusals = m.refusals[1:]
		return err
	}
	if !m.lingers {
		close(m.gone)
	}
	if !m.lingers && !m.flushes {
		close(m.done)
	}
	return nil
}

// watched sends n signals to a watch of m, a minute apart, and returns what it
// logged. It fails the test if the watch does not end then.
func watched(t *testing.T, m *fakeMount, n int) string {
	t.Helper()
	var log bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		m.gone, m.done = make(chan struct{}), make(chan struct{})
		signals := make(chan os.Signal)
		ended := make(chan struct{})
		w := &watch{mounted: m, mountpoint: "/nonexistent", log: slog.New(slog.NewTextHandler(&log, nil))}
		go func() {
			w.untilUnmounted(signals)
			close(ended)
		}()
		for range n {
			signals <- unix.SIGTERM
			time.Sleep(time.Minute)
		}
		select {
		case <-ended:
		default:
			t.Error("the watch goes on")
			close(m.done)
		}
		if m.lingers || m.flushes {
			close(m.done)
		}
	})
	return log.String()
}

func TestSignals(t *testing.T) {
	busy := fmt.Errorf("unmount: %w", unix.EBUSY)
	for name, tc := range map[string]struct {
		mount   fakeMount
		signals int
		calls   []string
		logs    string
	}{
		"free":          {fakeMount{}, 1, []string{"unmount"}, ""},
		"busy":          {fakeMount{refusals: []error{busy}}, 2, []string{"unmount", "detach"}, "in use"},
		"failing":       {fakeMount{refusals: []error{errors.New("odd")}}, 2, []string{"unmount", "detach"}, "odd"},
		"undetachable":  {fakeMount{refusals: []error{busy, errors.New("odd")}}, 3, []string{"unmount", "detach", "detach"}, "cannot detach"},
		"lingering":     {fakeMount{lingers: true}, 2, []string{"unmount", "give up"}, "another mount namespace"},
		"busy for ever": {fakeMount{refusals: []error{busy}, lingers: true}, 3, []string{"unmount", "detach", "give up"}, "still in use"},
		"flushing":      {fakeMount{flushes: true}, 3, []string{"unmount", "give up"}, "the next signal drops it"},
	} {
		t.Run(name, func(t *testing.T) {
			log := watched(t, &tc.mount, tc.signals)
			if !slices.Equal(tc.mount.calls, tc.calls) || !strings.Contains(log, tc.logs) {
				t.Errorf("calls %q, want %q; log, which should contain %q:\n%s", tc.mount.calls, tc.calls, tc.logs, log)
			}
		})
	}
}
