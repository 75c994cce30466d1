package tests

import (
	"fmt"
	"os"
	"os/exec"
	osuser "os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestPostgres makes a database cluster on the mount, works in it, kills the server without warning under
// load, and wants it to recover with balanced accounts, sound indexes and the right checksums.
func TestPostgres(t *testing.T) {
	requirePackages(t, "postgresql")
	u := postgresUser(t)
	eachMode(t, func(t *testing.T, mode string) {
		m := mountFor(t, u, mode)
		pg := postgres{t: t, user: u, data: m.Path("data"), socket: scratchOf(t, u)}
		pg.run("initdb", "--no-sync", "--data-checksums", "--auth=trust", "--username=tests", "--encoding=UTF8", "--no-locale", "--pgdata", pg.data)
		pg.start()
		pg.run("createdb", "work")
		pg.run("pgbench", "--initialize", "--quiet", "--scale=2", "--foreign-keys", "work")
		pg.run("psql", "--quiet", "--command=CREATE EXTENSION amcheck", "work")
		pg.run("pgbench", "--client=4", "--transactions="+sized("50", "5000"), "work")
		before := pg.transactions()
		pg.crash()
		pg.start()
		if after := pg.transactions(); after <= before {
			t.Errorf("after the crash there are %d transactions, %d before the load", after, before)
		}
		pg.verify()
		pg.stop()
		pg.run("pg_checksums", "--check", "--pgdata", pg.data)
	})
}

// postgresUser is the user that the Debian package makes, since the server refuses to be run by root.
func postgresUser(t *testing.T) *user {
	t.Helper()
	if os.Geteuid() != 0 {
		return nil
	}
	entry, err := osuser.Lookup("postgres")
	if err != nil {
		t.Fatal(err)
	}
	uid, uidErr := strconv.ParseUint(entry.Uid, 10, 32)
	gid, gidErr := strconv.ParseUint(entry.Gid, 10, 32)
	if uidErr != nil || gidErr != nil {
		t.Fatalf("%+v", entry)
	}
	return &user{UID: uint32(uid), GID: uint32(gid)}
}

// postgres is a server that answers at a Unix socket only.
type postgres struct {
	t      *testing.T
	user   *user
	data   string // the cluster's folder, on the mount
	socket string // the socket's folder, off the mount
	server *exec.Cmd
}

// command is a program of PostgreSQL's; those that talk to the server find it.
func (p *postgres) command(name string, args ...string) *exec.Cmd {
	p.t.Helper()
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if err != nil || len(found) == 0 {
		p.t.Fatalf("no %s (%v)", name, err)
	}
	cmd := program(p.user, slices.Max(found), args...)
	cmd.Dir = p.socket
	cmd.Env = append(os.Environ(), "PGHOST="+p.socket, "PGUSER=tests", "PGDATABASE=postgres", "HOME="+p.socket, "LC_ALL=C")
	return cmd
}

func (p *postgres) run(name string, args ...string) string {
	p.t.Helper()
	return run(p.t, p.command(name, args...))
}

func (p *postgres) start() {
	p.t.Helper()
	p.server = p.command("postgres", "-D", p.data, "-k", p.socket, "-c", "listen_addresses=", "-c", "shared_buffers=16MB", "-c", "wal_init_zero=off", "-c", "max_wal_size=64MB")
	log, err := os.OpenFile(filepath.Join(scratch(p.t), "log"), os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		p.t.Fatal(err)
	}
	defer log.Close()
	p.server.Stdout, p.server.Stderr = log, log
	if err := p.server.Start(); err != nil {
		p.t.Fatal(err)
	}
	server := p.server
	p.t.Cleanup(func() { p.kill(server) })
	for end := time.Now().Add(programLimit() / 2); ; time.Sleep(50 * time.Millisecond) {
		if _, err := tryRun(p.command("pg_isready", "--quiet")); err == nil {
			return
		}
		if time.Now().After(end) {
			out, _ := os.ReadFile(log.Name())
			p.t.Fatalf("the server does not answer:\n%s", tail(string(out), 8<<10))
		}
	}
}

// stop ends the server as an administrator would.
func (p *postgres) stop() {
	p.t.Helper()
	if err := p.server.Process.Signal(syscall.SIGINT); err != nil {
		p.t.Fatal(err)
	}
	if err := p.server.Wait(); err != nil {
		p.t.Errorf("the server ended with %v", err)
	}
}

// crash kills the server and its children while clients write.
func (p *postgres) crash() {
	p.t.Helper()
	load := p.command("pgbench", "--no-vacuum", "--client=4", "--time=60", "work") // which would begin with an empty history
	if err := load.Start(); err != nil {
		p.t.Fatal(err)
	}
	for busy := p.transactions() + 100; p.transactions() < busy; {
		time.Sleep(50 * time.Millisecond)
	}
	p.kill(p.server)
	if err := load.Wait(); err == nil {
		p.t.Error("pgbench did not notice the crash")
	}
	// A killed server leaves its lock file, with the number of a process that is gone.
	if _, err := tryRun(p.command("pg_isready", "--quiet")); err == nil {
		p.t.Error("the killed server still answers")
	}
}

// kill ends a server and all its children at once, without a chance to write anything.
func (p *postgres) kill(server *exec.Cmd) {
	if server.ProcessState != nil {
		return
	}
	pid := server.Process.Pid
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid))
	if err != nil {
		p.t.Error(err)
	}
	_ = server.Process.Kill()
	for child := range strings.FieldsSeq(string(children)) {
		if n, err := strconv.Atoi(child); err == nil {
			_ = syscall.Kill(n, syscall.SIGKILL)
		}
	}
	_ = server.Wait()
}

func (p *postgres) transactions() int {
	p.t.Helper()
	out := p.query("SELECT count(*) FROM pgbench_history")
	n, err := strconv.Atoi(out)
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

func (p *postgres) query(sql string) string {
	p.t.Helper()
	return strings.TrimSpace(p.run("psql", "--no-align", "--tuples-only", "--command="+sql, "work"))
}

// verify wants pgbench's three kinds of balances to agree with its history, and every heap and index to
// be sound and complete.
func (p *postgres) verify() {
	p.t.Helper()
	const sums = `SELECT sum(delta), (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(tbalance) FROM pgbench_tellers),
		(SELECT sum(bbalance) FROM pgbench_branches), (SELECT count(*) FROM pgbench_accounts) FROM pgbench_history`
	got := strings.Split(p.query(sums), "|")
	if want := []string{got[0], got[0], got[0], got[0], "200000"}; !slices.Equal(got, want) {
		p.t.Errorf("history, accounts, tellers, branches, number of accounts: %v, want %v", got, want)
	}
	p.run("pg_amcheck", "--heapallindexed", "--parent-check", "--database=work")
}
