package main

import (
	"log/slog"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestClaimWaits: a SOURCE whose last staged mount still writes out its data is taken when that has ended.
func TestClaimWaits(t *testing.T) {
	dir := t.TempDir()
	other, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := unix.Flock(int(other.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	claimed := make(chan error)
	go func() { claimed <- claim(dir, slog.New(slog.DiscardHandler)) }()
	select {
	case err := <-claimed:
		t.Fatalf("claimed while another held it: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	if err := unix.Flock(int(other.Fd()), unix.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	if err := <-claimed; err != nil {
		t.Error(err)
	}
	if err := unix.Flock(int(other.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != unix.EWOULDBLOCK {
		t.Errorf("somebody else can claim it too: %v", err)
	}
}
