package tests

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestGit clones a repository onto the mount, works in it, packs it and clones it back.
func TestGit(t *testing.T) {
	requirePackages(t, "git")
	u := unprivileged()
	home := filepath.Join(scratch(t), "home")
	makeDir(t, home, u)
	git := gitUser{t: t, user: u, home: home}
	origin := git.makeRepository(filepath.Join(home, "origin"))
	eachMode(t, func(t *testing.T, mode string) {
		m := mountFor(t, u, mode)
		git := gitUser{t: t, user: u, home: home}
		clone := m.Path("clone")
		git.run(home, "clone", "--quiet", "file://"+origin, clone)
		git.run(clone, "fsck", "--strict", "--no-progress")
		git.wantClean(clone)
		if mode == "passthrough" { // the mount is root's, who can make the kernel ask anew
			if err := forgetInodes(m.Dir); err != nil {
				t.Fatal(err)
			}
			git.wantClean(clone)
		}

		git.run(clone, "switch", "--quiet", "--create", "work")
		git.run(clone, "rm", "--quiet", "-r", "dir3")
		git.run(clone, "mv", "dir1", "moved")
		git.run(clone, "commit", "--quiet", "--all", "--message", "work")
		git.run(clone, "worktree", "add", "--quiet", m.Path("tree"), "main")
		git.run(clone, "merge", "--quiet", "--no-edit", "--no-ff", "-s", "ours", "HEAD~3")
		git.run(clone, "switch", "--quiet", "--detach", "main")
		git.run(clone, "gc", "--quiet", "--aggressive", "--prune=now")
		git.run(clone, "fsck", "--strict", "--full", "--no-progress")
		git.wantClean(clone)
		git.wantClean(m.Path("tree"))

		back := filepath.Join(home, "back-"+mode)
		git.run(home, "clone", "--quiet", "file://"+clone, back)
		git.run(back, "fsck", "--strict", "--no-progress")
		if got, want := git.run(back, "rev-parse", "HEAD"), git.run(origin, "rev-parse", "main"); got != want {
			t.Errorf("the way there and back made %s of %s", got, want)
		}
	})
}

// gitUser runs git as user, away from all settings of the machine.
type gitUser struct {
	t    *testing.T
	user *user
	home string
}

func (g gitUser) command(dir string, args ...string) *exec.Cmd {
	cmd := program(g.user, "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+g.home, "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org")
	return cmd
}

func (g gitUser) run(dir string, args ...string) string {
	g.t.Helper()
	return run(g.t, g.command(dir, args...))
}

// wantClean wants each file to have the inode number, size, times, mode and owner that git has noted in
// its index: diff-files looks at nothing else, and reports what differs.
func (g gitUser) wantClean(dir string) {
	g.t.Helper()
	if out := g.run(dir, "diff-files", "--name-only"); out != "" {
		g.t.Errorf("%s: git thinks that these were touched: %s", dir, out)
	}
	if out := g.run(dir, "status", "--porcelain"); out != "" {
		g.t.Errorf("%s: git status: %s", dir, out)
	}
}

// makeRepository makes a bare repository of 30 commits to 400 files.
func (g gitUser) makeRepository(dir string) string {
	g.t.Helper()
	g.run(g.home, "init", "--quiet", "--bare", "--initial-branch=main", dir)
	var in strings.Builder
	for commit := range sized(30, 1000) {
		fmt.Fprintf(&in, "commit refs/heads/main\ncommitter a <a@example.org> %d +0000\ndata 1\nc\n", 1700000000+commit)
		for file := range 400 {
			if commit > 0 && file%30 != commit%30 {
				continue
			}
			mode := []string{"100644", "100755", "120000"}[file%3]
			content := strings.Repeat(fmt.Sprintf("%d of %d\n", file, commit), 1+file%3/2*4*file)
			if mode == "120000" {
				content = fmt.Sprintf("../target/%d", commit)
			}
			fmt.Fprintf(&in, "M %s inline dir%d/sub%d/file%d\ndata %d\n%s\n", mode, file%5, file%7, file, len(content), content)
		}
	}
	cmd := g.command(dir, "fast-import", "--quiet")
	cmd.Stdin = strings.NewReader(in.String())
	run(g.t, cmd)
	return dir
}
