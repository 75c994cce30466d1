package fs

// The end of staging, with the mount or before it.

// allStages returns those there are, each with a reference for the caller.
func (t *Tree) allStages() (all []*stage) {
	t.inodes.ids.each(func(in *inode) {
		if s := in.staged(); s != nil {
			all = append(all, s)
		}
	})
	return all
}

// endStaging writes out what is staged, and ends all stages and the stager.
func (t *Tree) endStaging() {
	if t.Staging.Stager == nil {
		return
	}
	t.flushAll()
	for _, s := range t.allStages() {
		t.endStage(s, s.Close(nil)) // or Close has it ended, if it was to end later
		s.release(t)
	}
	if _, err := t.Staging.Stager.Close(); err != nil {
		t.Log.Error("the end of staging", "err", err)
	}
}

// flushAll writes out the stages, many at a time. Those that fail keep their
// data and their error.
func (t *Tree) flushAll() {
	if t.Staging.Stager != nil {
		t.Staging.Stager.FlushAll(nil)
	}
}

func (t *Tree) stagedBytes() (n int64) {
	for _, s := range t.allStages() {
		n += s.StagedBytes()
		s.release(t)
	}
	return n
}

// lose counts and logs bytes that programs wrote and that nothing will write to
// the backing file any more.
func (t *Tree) lose(in *inode, off, n int64, err error) {
	t.lost.Add(n)
	t.Log.Error("staged data is lost", "path", t.path(in), "offset", off, "bytes", n, "err", err)
}

// giveUp counts and logs as lost what is still staged.
func (t *Tree) giveUp() {
	for _, s := range t.allStages() {
		if n := s.StagedBytes(); n > 0 {
			t.lost.Add(n)
			t.Log.Error("data is given up", "path", t.path(s.in), "bytes", n, "err", s.Err())
		}
		s.release(t)
	}
}
