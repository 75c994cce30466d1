package main

import (
	"fmt"
	"io"
	"log/slog"
	"log/syslog"
	"os"
)

// openLog opens the log that s asks for: its file, or stderr in the
// foreground, or syslog in the background if there is one, or else nothing.
func openLog(s *settings, stderr io.Writer) (*slog.Logger, error) {
	handle := &slog.HandlerOptions{Level: s.logLevel}
	switch {
	case s.logFile != "":
		f, err := os.OpenFile(s.logFile, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o640)
		if err != nil {
			return nil, fmt.Errorf("the log: %w; choose another --log-file", err)
		}
		return slog.New(slog.NewTextHandler(f, handle)), nil // open until the process ends
	case s.readyFD == 0:
		return slog.New(slog.NewTextHandler(stderr, handle)), nil
	}
	w, err := syslog.New(syslog.LOG_DAEMON|syslog.LOG_INFO, "tunefs")
	if err != nil {
		return slog.New(slog.DiscardHandler), nil
	}
	handle.ReplaceAttr = withoutTime
	return slog.New(slog.NewTextHandler(w, handle)), nil
}

// withoutTime drops a record's time, which syslog notes itself.
func withoutTime(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}
