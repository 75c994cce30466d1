// Package staging gathers a file's writes in memory and hands them to its
// backing file as large aligned extents. It knows neither FUSE nor devices.
//
// # Windows
//
// A window is a range of a file, Config.WindowSize long and aligned to its
// size, with memory from an anonymous mapping that nobody zeroes. A page is
// touched when a program's byte lands on it. What is valid in a window is kept
// as byte ranges, and nothing else of it is ever read or flushed: buffers go
// back to the pool, and come out of it, as dirty as they are.
//
// At any moment a range has at most two windows. One is active and takes
// writes. When it is full, old, in the way of a flush or of the budget, it is
// sealed and goes, once, through
//
//	active -> queued -> flushing -> its buffer is back in the pool
//	                ^       |
//	                +-- failed (the data stays, the flush is tried again)
//
// while the next write to the range opens a fresh active window. That one is
// not sealed before the older window is done, so flushes of a range keep the
// order of its writes. Reads take the active window's bytes first, then the
// sealed one's, then the backing file's.
//
// # What waits for what
//
// The budget (Config.Memory) counts the resident pages of all buffers, those in
// the pool included; the pool gives its pages back to the system only when the
// budget is short. A writer that finds it spent waits, in order of arrival,
// while the oldest windows are flushed. Flushing takes nothing from the budget,
// and no lock is held while it writes, so it always comes to an end: with
// success, which frees pages, or with a failure, which sends the waiters to the
// backing file with their data (see File.WriteAt).
//
// Barriers (File.Barrier, File.Truncate) keep flushes of their range from
// starting while a function runs. Writes to windows go on meanwhile.
//
// # Buffered and direct writes of one file
//
// A run of valid bytes is written in up to three parts: what is aligned inside
// goes through Backing.WriteDirect, past the page cache, its two ends through
// Backing.WriteBuffered. The split is made at multiples of the page size or of
// the backing's alignment, whichever is larger, so no page of the backing
// file's page cache holds bytes of both: writing back a dirty end cannot carry
// stale neighbours over what went past it. Where a page holds bytes of an older
// buffered write and a direct write covers it now, the kernel writes the page
// out before and drops it after the direct write. Large folios can span an end
// and an inside; they are safe because filesystems hold the inode's lock over a
// direct write including that dropping (shared) and over a buffered write
// (exclusive), so none is dirtied in between. A reader that fills the page
// cache during a direct write has what it read dropped by the same step.
//
// # Reading ahead
//
// With Config.ReadAhead a sequential reader is served from chunks, aligned
// ranges that were read past the page cache before it asked for them, several
// at a time. They are kept out of everybody else's way: nothing is read ahead
// for a random reader, in a file of fewer than fewestChunks (32 MiB), where
// bytes are staged, and where the page cache has the file; and what no chunk
// has is read as without them.
//
// A chunk may be used while it is alive, and this holds: since its reading
// began, the File has not changed the backing file in its range. For each such
// change has a beginning and an end under File.mu: begin and finish for writes
// past the windows and for barriers (a truncation is one), the state flushing,
// which ends when the bytes are not staged any more, for flushes. With the
// beginning all chunks of the range die, those that are still being read as
// well, and none is begun before the end. So a request that finds, under the
// lock, what is staged and which chunks are alive, finds the file as it is then;
// it keeps the chunks' memory until it has copied from them. A chunk says
// nothing about where the file ends: for what it has not read, the backing file
// is asked. Reads through the page cache beside it need no care, since the
// kernel keeps both ways coherent for what is written.
//
// Who changes the backing file by other ways is seen late: once a chunk was
// consumed, or a second after its last use, or four after it was read.
//
// Chunks come out of the pool and count in the budget, of which they leave a
// quarter. A writer who finds it spent gets theirs before any window has to
// leave, and nothing is read ahead for a while then. What fails is forgotten:
// the reader who comes to the place meets the error by itself.
//
// # Files that do not gain
//
// Staging is left, file by file, when writes come in small pieces far from each
// other or are synced one by one, and taken up again when they run on; see
// pattern. Such writes go to the backing file as they come.
package staging
