package fs

import (
	"sync"
	"sync/atomic"
)

// idShards spreads an idTable's locks; a power of two.
const idShards = 32

// idTable hands out numbers for values and finds them again. Numbers start at
// 1 and are never used twice. Safe for concurrent use.
type idTable[T any] struct {
	last   atomic.Uint64
	shards [idShards]struct {
		sync.RWMutex
		m map[uint64]*T
	}
}

func (t *idTable[T]) add(v *T) uint64 {
	id := t.last.Add(1)
	s := &t.shards[id%idShards]
	s.Lock()
	if s.m == nil {
		s.m = make(map[uint64]*T)
	}
	s.m[id] = v
	s.Unlock()
	return id
}

func (t *idTable[T]) get(id uint64) *T {
	s := &t.shards[id%idShards]
	s.RLock()
	v := s.m[id]
	s.RUnlock()
	return v
}

func (t *idTable[T]) remove(id uint64) *T {
	s := &t.shards[id%idShards]
	s.Lock()
	v := s.m[id]
	delete(s.m, id)
	s.Unlock()
	return v
}

// each calls f with every value, one shard at a time; f must not call t.
func (t *idTable[T]) each(f func(*T)) {
	for i := range t.shards {
		s := &t.shards[i]
		s.RLock()
		for _, v := range s.m {
			f(v)
		}
		s.RUnlock()
	}
}
