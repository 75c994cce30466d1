// Package bench measures programs on filesystems: it runs them interleaved, takes medians and tabulates.
//
// It mounts nothing by itself. Who measures a filesystem in this process hands over folders; who measures one in
// another process (Attach) hands over the command that mounts it. Sizes are bytes, times are durations, and a ratio
// above 1 is always the better side.
//
// Nothing here is safe for concurrent use: two measurements at once would measure each other.
package bench
