package gds

import (
	"cmp"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Environment variables of libcufile. It reads them when its driver is opened.
const (
	envConfig = "CUFILE_ENV_PATH_JSON" // its configuration
	envLog    = "CUFILE_LOGFILE_PATH"  // its log; stronger than the configuration
)

const systemConfig = "/etc/cufile.json" // what it reads without envConfig

// namesLogFolder finds logging.dir in a configuration, which is JSON with
// comments. Without that, and without envLog, the log goes to the working directory.
var namesLogFolder = regexp.MustCompile(`(?m)^([^/\n]|/[^/\n])*"dir"\s*:`)

// cufileHome is a private folder for the log of libcufile, and for its
// configuration where the machine has none.
type cufileHome struct{ dir string }

func newCuFileHome() (cufileHome, error) {
	dir, err := os.MkdirTemp("", "tunefs-cufile-")
	return cufileHome{dir}, err
}

func (h cufileHome) remove() error { return os.RemoveAll(h.dir) }

// setenv sets what libcufile is to see, and leaves alone what the user or the
// owner of the machine has decided. restore takes it back.
func (h cufileHome) setenv() (restore func(), err error) {
	name, value := envLog, filepath.Join(h.dir, "cufile.log")
	config := cmp.Or(os.Getenv(envConfig), systemConfig)
	text, err := os.ReadFile(config)
	if config == systemConfig && errors.Is(err, os.ErrNotExist) {
		name, value = envConfig, filepath.Join(h.dir, "cufile.json")
		if err := h.writeConfig(value); err != nil {
			return nil, err
		}
	} else if os.Getenv(envLog) != "" || namesLogFolder.Match(text) {
		return func() {}, nil
	}
	// No NUL is in it, so neither call can fail.
	_ = os.Setenv(name, value)
	return func() { _ = os.Unsetenv(name) }, nil
}

func (h cufileHome) writeConfig(path string) error {
	text, err := json.Marshal(map[string]any{
		"logging": map[string]any{"dir": h.dir, "level": "ERROR"},
		"properties": map[string]any{
			"allow_compat_mode":     true,
			"max_direct_io_size_kb": 16 << 10, // staging's largest pieces
		},
	})
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

// firstError is the first error in the log, without its date, or "". The ones
// after it are mostly its consequences.
func (h cufileHome) firstError() string {
	logs, _ := filepath.Glob(filepath.Join(h.dir, "*.log")) // the pattern is a good one
	for _, log := range logs {
		text, err := os.ReadFile(log)
		if err != nil {
			continue // it would only have said more
		}
		for line := range strings.Lines(string(text)) {
			if _, what, found := strings.Cut(line, " ERROR "); found {
				return strings.TrimSpace(what)
			}
		}
	}
	return ""
}
