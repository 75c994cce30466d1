// Package gds is where staged data goes: it implements staging.Backing for real
// files. What fits is written past the page cache by a backend, everything else
// through it.
//
// The backends are O_DIRECT, and none (buffered), with which extents take the
// way of everything else. A backend writes and reads aligned extents and
// nothing more; a further one needs a type with the methods of backend, an
// entry in Choice, and a place in the order that Auto tries.
//
// Nothing that this package writes is durable before File.Sync.
package gds
