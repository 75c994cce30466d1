package tests

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// sqliteJournals are SQLite's journal modes that survive a crash. WAL shares memory between processes
// through a mapped file; the others lock byte ranges.
func sqliteJournals() []string { return []string{"wal", "delete", "truncate", "persist"} }

// TestSQLite has several processes write to one database, kills one in the middle of a transaction, and
// wants every committed row, none of the others, and a sound file.
func TestSQLite(t *testing.T) {
	requirePackages(t, "sqlite3")
	u := unprivileged()
	eachMode(t, func(t *testing.T, mode string) {
		m := mountFor(t, u, mode)
		for _, journal := range sqliteJournals() {
			t.Run(journal, func(t *testing.T) {
				db := sqlite{t: t, user: u, path: m.Path(journal + ".db"), journal: journal}
				db.run("CREATE TABLE row(writer, n, pad, UNIQUE(writer, n));")
				db.writeTogether()
				db.crash()
				rows := fmt.Sprint(sqliteWriters * sqliteCommits())
				if got := db.run("SELECT count(*), count(DISTINCT writer) FROM row; PRAGMA integrity_check; PRAGMA journal_mode;"); got != rows+"|3\nok\n"+journal+"\n" {
					t.Errorf("in the end: %q, want %s rows of 3 writers, ok, %s", got, rows, journal)
				}
			})
		}
	})
}

const sqliteWriters = 3

func sqliteCommits() int { return sized(60, 2000) }

// sqlite runs the sqlite3 program on a database as user.
type sqlite struct {
	t       *testing.T
	user    *user
	path    string
	journal string // mode
}

// command reads SQL from its standard input. It reads the database through a mapping and waits for locks.
func (s sqlite) command() *exec.Cmd {
	settings := "PRAGMA mmap_size=100000000; PRAGMA journal_mode=" + s.journal + ";"
	return program(s.user, "sqlite3", "-bail", "-init", "/dev/null", "-cmd", ".timeout 60000", "-cmd", ".output /dev/null", "-cmd", settings, "-cmd", ".output stdout", s.path)
}

func (s sqlite) run(sql string) string {
	s.t.Helper()
	cmd := s.command()
	cmd.Stdin = strings.NewReader(sql)
	return run(s.t, cmd)
}

// writeTogether has the writers commit at once, each row in a transaction that also reads.
func (s sqlite) writeTogether() {
	s.t.Helper()
	var wait sync.WaitGroup
	for writer := range sqliteWriters {
		wait.Go(func() {
			var sql strings.Builder
			for n := range sqliteCommits() {
				fmt.Fprintf(&sql, "BEGIN IMMEDIATE; INSERT INTO row SELECT %d, count(*), hex(randomblob(1500)) FROM row WHERE writer=%[1]d; COMMIT; SELECT 1/(count(*)=%d) FROM row WHERE writer=%[1]d;\n", writer, n+1)
			}
			cmd := s.command()
			cmd.Stdin = strings.NewReader(sql.String())
			if out, err := tryRun(cmd); err != nil || out != strings.Repeat("1\n", sqliteCommits()) {
				s.t.Errorf("writer %d: %v\n%s", writer, err, tail(out, 4<<10))
			}
		})
	}
	wait.Wait()
}

// crash kills a process whose transaction has spilled to the database but is not committed.
func (s sqlite) crash() {
	s.t.Helper()
	cmd := s.command()
	in, err := cmd.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	out := &waitedFor{text: "spilled", seen: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	fmt.Fprintln(in, "PRAGMA cache_size=10; BEGIN; UPDATE row SET pad=hex(randomblob(3000)); INSERT INTO row SELECT 'lost', n+1000*writer, pad FROM row; SELECT 'spilled';")
	select {
	case <-out.seen:
	case <-time.After(programLimit()):
		s.t.Errorf("nothing to crash:\n%s", out.bytes.String())
	}
	_ = cmd.Process.Kill()
	var failed *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &failed) || failed.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		s.t.Errorf("the process to be killed ended with %v", err)
	}
}

// waitedFor is output that closes seen once it holds text.
type waitedFor struct {
	text  string
	seen  chan struct{}
	bytes bytes.Buffer
	found bool
}

func (w *waitedFor) Write(p []byte) (int, error) {
	w.bytes.Write(p)
	if !w.found && strings.Contains(w.bytes.String(), w.text) {
		w.found = true
		close(w.seen)
	}
	return len(p), nil
}
