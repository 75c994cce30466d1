package main

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLogGoesToItsFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(name, []byte("older\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, readyFD := range []int{0, 3} {
		var stderr bytes.Buffer
		log, err := openLog(&settings{logFile: name, readyFD: readyFD, logLevel: slog.LevelWarn}, &stderr)
		if err != nil {
			t.Fatal(err)
		}
		log.Info("unwanted")
		log.Warn("wanted")
		if stderr.Len() > 0 {
			t.Errorf("on stderr: %s", stderr.String())
		}
	}
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	got := string(b)
	if !strings.HasPrefix(got, "older\n") || strings.Count(got, "msg=wanted") != 2 || strings.Contains(got, "unwanted") {
		t.Errorf("the file has %q", got)
	}
}

func TestLogWithoutFile(t *testing.T) {
	var stderr bytes.Buffer
	foreground, err := openLog(&settings{}, &stderr)
	if err != nil {
		t.Fatal(err)
	}
	foreground.Info("here")
	if !strings.Contains(stderr.String(), "time=") || !strings.Contains(stderr.String(), "msg=here") {
		t.Errorf("on stderr: %q", stderr.String())
	}

	stderr.Reset()
	background, err := openLog(&settings{readyFD: 3, logLevel: slog.LevelError}, &stderr)
	if err != nil {
		t.Fatal(err)
	}
	background.Info("not here")
	if stderr.Len() > 0 {
		t.Errorf("a background mount writes to stderr: %q", stderr.String())
	}
}

func TestSyslogNotesTheTimeItself(t *testing.T) {
	var out bytes.Buffer
	slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: withoutTime})).Info("said", "time", "mine", slog.Group("g", "time", 1))
	if got := out.String(); got != "level=INFO msg=said g.time=1\n" {
		t.Errorf("got %q", got)
	}
}
