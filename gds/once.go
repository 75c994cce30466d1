package gds

import (
	"log/slog"
	"sync"
)

// onceLog logs each reason once. Safe for concurrent use.
type onceLog struct {
	log  *slog.Logger
	told sync.Map
}

// warn logs a message, unless it was logged with the same error before.
func (l *onceLog) warn(message string, err error) {
	if _, told := l.told.LoadOrStore(message+err.Error(), true); !told {
		l.log.Warn(message, "err", err)
	}
}
