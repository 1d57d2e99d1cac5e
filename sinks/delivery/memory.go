package delivery

import "sync"

// memory is that of readers and writers, kept for the next ones.
type memory struct {
	// buffers are *buffers that readers share, scratch *scratch of writers.
	buffers, scratch sync.Pool
}

func newMemory() *memory {
	return &memory{
		buffers: sync.Pool{New: func() any { return new(buffers) }},
		scratch: sync.Pool{New: func() any { return &scratch{done: make([]byte, headRoom)} }},
	}
}
