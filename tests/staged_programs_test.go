package tests

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestStagedSQLite kills the daemon while rows are committed: each row that was reported as committed is there after
// the next mount, and the database is sound.
func TestStagedSQLite(t *testing.T) {
	requirePackages(t, "sqlite3")
	for _, journal := range pickLong([]string{"wal", "delete"}, sqliteJournals()) {
		for name, args := range map[string][]string{"close": nil, "idle": {"--flush-on=idle", "--stage-size=64k", "--stage-memory=256k"}} {
			t.Run(journal+" "+name, func(t *testing.T) {
				u := ordinary()
				if name == "close" {
					requireRoot(t)
				}
				s := newStagedSite(t, map[string]*user{"close": nil, "idle": &u}[name])
				s.start(args...)
				db := sqlite{t: t, user: s.user, path: s.path("db"), journal: journal}
				db.run("CREATE TABLE row(n INTEGER PRIMARY KEY, pad);")
				rng := rand.New(rand.NewPCG(firstSeed(t), 5))
				for range pickLong(3, 50) {
					killUnderSQLite(t, s, db, time.Duration(rng.IntN(600))*time.Millisecond, args)
				}
				s.unmountClean()
			})
		}
	}
}

// killUnderSQLite kills the daemon after a while of committing, mounts again and checks.
func killUnderSQLite(t *testing.T, s *stagedSite, db sqlite, after time.Duration, args []string) {
	t.Helper()
	before := number(t, db.run("SELECT count(*) FROM row;"))
	cmd := db.command()
	cmd.Stdin = strings.NewReader("PRAGMA synchronous=FULL; PRAGMA cache_size=20;\n" +
		strings.Repeat("INSERT INTO row SELECT max(n)+1, hex(randomblob(1+abs(random())%9000)) FROM row; SELECT 'done';\n", 20000))
	var out bytes.Buffer
	cmd.Stdout = &out
	must(t, cmd.Start())
	time.Sleep(100*time.Millisecond + after)
	s.kill()
	if err := cmd.Wait(); err == nil {
		t.Error("sqlite did not notice that the daemon was killed")
	}
	s.start(args...)
	done := strings.Count(out.String(), "done\n")
	rows, sound, _ := strings.Cut(db.run("SELECT count(*) FROM row; PRAGMA integrity_check;"), "\n")
	if n := number(t, rows); n < before+done || n > before+done+1 || sound != "ok\n" {
		t.Errorf("%d rows, %s; want %d, the last 1 perhaps not", n, sound, before+done+1)
	}
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(text))
	must(t, err)
	return n
}

// TestStagedPostgres kills the server and then the daemon below it, both under load: what was committed survives
// both, and the cluster is sound.
func TestStagedPostgres(t *testing.T) {
	requireRoot(t)
	requirePackages(t, "postgresql")
	for name, args := range pickLong(map[string][]string{"close": nil}, map[string][]string{"close": nil, "idle": {"--flush-on=idle", "--stage-size=1M"}}) {
		t.Run(name, func(t *testing.T) {
			u := postgresUser(t)
			s := newStagedSite(t, u)
			s.start(args...)
			pg := &postgres{t: t, user: u, data: s.path("data"), socket: scratchOf(t, u)}
			pg.run("initdb", "--data-checksums", "--auth=trust", "--username=tests", "--encoding=UTF8", "--no-locale", "--pgdata", pg.data)
			pg.start()
			pg.run("createdb", "work")
			pg.run("pgbench", "--initialize", "--quiet", "--scale=2", "--foreign-keys", "work")
			pg.run("psql", "--quiet", "--command=CREATE EXTENSION amcheck", "work")
			pg.crash()
			pg.start()
			pg.verify()
			for range pickLong(2, 20) {
				killUnderPostgres(t, s, pg, args)
			}
			pg.stop()
			pg.run("pg_checksums", "--check", "--pgdata", pg.data)
			s.unmountClean()
		})
	}
}

// killUnderPostgres kills the daemon while clients commit, and the server that has lost its files.
func killUnderPostgres(t *testing.T, s *stagedSite, pg *postgres, args []string) {
	t.Helper()
	load := pg.command("pgbench", "--no-vacuum", "--client=4", "--time=60", "work")
	must(t, load.Start())
	before := pg.transactions()
	for pg.transactions() < before+100 {
		time.Sleep(20 * time.Millisecond)
	}
	if rand.IntN(2) == 0 {
		pg.run("psql", "--quiet", "--command=CHECKPOINT", "work")
	}
	committed := pg.transactions()
	s.kill()
	pg.kill(pg.server)
	_ = load.Wait() // it has lost its server
	s.start(args...)
	pg.start()
	if after := pg.transactions(); after < committed {
		t.Errorf("%d transactions are left of %d that others had seen", after, committed)
	}
	pg.verify()
}

// TestStagedPrograms has programs that check their own data work on a staged mount with small windows.
func TestStagedPrograms(t *testing.T) {
	requirePackages(t, "fio")
	eachStager(t, func(t *testing.T, s *stagedSite) {
		s.start("--stage-size=256k", "--stage-memory=1M", "--flush-after=20ms")
		for name, args := range map[string]string{
			"sequential": "--rw=write --bs=8k",
			"random":     "--rw=randwrite --bsrange=512-64k --bs_unaligned --norandommap=0",
			"mixed":      "--rw=randrw --bs=4k --fsync=50",
			"mmap":       "--rw=randwrite --bs=4k --ioengine=mmap",
			"direct":     "--rw=randwrite --bs=4k --direct=1",
			"sync":       "--rw=write --bs=4k --sync=1 --size=4m",
		} {
			cmd := []string{"--name=" + name, "--directory=" + s.mnt, fmt.Sprintf("--size=%dm", pickLong(16, 500)), "--verify=crc32c", "--verify_fatal=1", "--numjobs=2", "--group_reporting", "--end_fsync=1"}
			if out, err := s.program("fio", append(cmd, strings.Fields(args)...)...).CombinedOutput(); err != nil {
				t.Errorf("fio, %s: %v\n%s", name, err, tail(string(out), 4<<10))
			}
		}
		s.unmountClean()
	})
}
