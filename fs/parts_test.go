package fs

import (
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

func TestParseDirent(t *testing.T) {
	dir := t.TempDir()
	names := map[string]bool{".": true, "..": true}
	for _, name := range []string{"a", "a name of more than eight bytes", "ünïcode", "x\ny"} {
		write(t, dir+"/"+name, "")
		names[name] = true
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := &folder{fd: fd}
	defer unix.Close(fd)
	var offsets []uint64
	err = f.each(0, func(e fuse.DirEntry) bool {
		if !names[e.Name] {
			t.Errorf("unexpected or repeated entry %q", e.Name)
		}
		delete(names, e.Name)
		offsets = append(offsets, e.Off)
		return true
	})
	if err != nil || len(names) > 0 {
		t.Fatalf("error %v, missing %v", err, names)
	}
	// From any offset on, what follows is the same.
	for i, off := range offsets {
		n := 0
		if err := f.each(off, func(fuse.DirEntry) bool { n++; return true }); err != nil {
			t.Fatal(err)
		}
		if want := len(offsets) - i - 1; n != want {
			t.Errorf("%d entries after the %dth, want %d", n, i, want)
		}
	}
}

func TestEntryThatDoesNotFitComesNext(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b", "c"} {
		write(t, dir+"/"+name, "")
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	f := &folder{fd: fd}
	seen := map[string]int{}
	for off, rounds := uint64(0), 0; rounds < 20; rounds++ {
		room := 1 // one entry a request
		if err := f.each(off, func(e fuse.DirEntry) bool {
			if room == 0 {
				return false
			}
			room--
			seen[e.Name]++
			off = e.Off
			return true
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{".", "..", "a", "b", "c"} {
		if seen[name] != 1 {
			t.Errorf("%q was listed %d times", name, seen[name])
		}
	}
}

func TestDirCacheClock(t *testing.T) {
	c := &dirCache{limit: 3}
	entry := func() *dirFD {
		fd, err := unix.Open("/", unix.O_PATH, 0)
		if err != nil {
			t.Fatal(err)
		}
		d := &dirFD{fd: fd, in: &inode{}, slot: -1}
		d.refs.start(1)
		d.in.dir.Store(d)
		c.add(d)
		return d
	}
	busy := entry()
	if !busy.acquire() {
		t.Fatal("a cached descriptor cannot be acquired")
	}
	var rest []*dirFD
	for range 10 {
		rest = append(rest, entry())
	}
	if len(c.ring) != c.limit {
		t.Errorf("%d entries, limit %d", len(c.ring), c.limit)
	}
	if busy.refs.n.Load() != 2 {
		t.Error("a descriptor in use was evicted")
	}
	if rest[0].acquire() || rest[0].in.dir.Load() != nil {
		t.Error("an evicted descriptor is still on offer")
	}
	c.remove(busy)
	if busy.refs.n.Load() != 1 {
		t.Error("removal must leave the user's reference")
	}
	busy.release()
	if busy.acquire() {
		t.Error("a closed descriptor can be acquired")
	}
	for c.shrink() {
	}
	if len(c.ring) != 0 {
		t.Errorf("%d entries after shrinking to nothing", len(c.ring))
	}
}

func TestWithoutPriv(t *testing.T) {
	const file = unix.S_IFREG
	for _, c := range []struct {
		mode   uint32
		member bool
		want   uint32
	}{
		{file | 0o4755, false, file | 0o755},
		{file | 0o2755, false, file | 0o755},
		{file | 0o2745, true, file | 0o2745}, // mandatory locking, by a member of the group
		{file | 0o2745, false, file | 0o745},
		{file | 0o6777, true, file | 0o777},
		{file | 0o1644, false, file | 0o1644},
		{unix.S_IFDIR | 0o2755, false, unix.S_IFDIR | 0o2755},
	} {
		if got := withoutPriv(c.mode, c.member); got != c.want {
			t.Errorf("%o becomes %o, want %o", c.mode, got, c.want)
		}
	}
}

func TestMountFlags(t *testing.T) {
	const safe = unix.MS_NOSUID | unix.MS_NODEV
	for _, c := range []struct {
		words   []string
		direct  bool
		flags   uintptr
		options []string
	}{
		{nil, true, safe, nil},
		{[]string{"ro", "noexec"}, true, safe | unix.MS_RDONLY | unix.MS_NOEXEC, nil},
		{[]string{"suid", "dev"}, true, unix.MS_MGC_VAL, nil},
		{[]string{"suid", "nosuid"}, true, safe, nil},
		{[]string{"ro"}, false, safe, []string{"ro"}},
	} {
		flags, options := mountFlags(c.words, nil, c.direct)
		if flags != c.flags || len(options) != len(c.options) {
			t.Errorf("%v: %#x %v, want %#x %v", c.words, flags, options, c.flags, c.options)
		}
	}
}

func TestIDTable(t *testing.T) {
	var table idTable[int]
	seen := map[uint64]bool{}
	for i := range 1000 {
		id := table.add(&i)
		if id == 0 || seen[id] {
			t.Fatalf("id %d is zero or was used before", id)
		}
		seen[id] = true
		if i%2 == 0 && table.remove(id) != &i {
			t.Fatal("remove returned another value")
		}
		if i%2 == 0 && table.get(id) != nil {
			t.Fatal("a removed value is still found")
		}
	}
	n := 0
	table.each(func(*int) { n++ })
	if n != 500 {
		t.Errorf("%d values left, want 500", n)
	}
}

func TestUnescape(t *testing.T) {
	if got := unescape(`/a\040b\134c\011d`); got != "/a b\\c\td" {
		t.Errorf("got %q", got)
	}
}
