package delivery

import (
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// codec compresses blocks and keeps the memory of readers and writers for the
// next ones.
type codec struct {
	zip *zstd.Encoder
	unz *zstd.Decoder
	// buffers are *buffers that readers share, scratch *scratch of writers.
	buffers, scratch sync.Pool
}

func newCodec() (*codec, error) {
	zip, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithEncoderConcurrency(2), zstd.WithEncoderCRC(false), zstd.WithWindowSize(blockRaw))
	if err != nil {
		return nil, fmt.Errorf("make zstd encoder: %w", err)
	}
	unz, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(4<<30))
	if err != nil {
		return nil, fmt.Errorf("make zstd decoder: %w", err)
	}
	c := &codec{zip: zip, unz: unz}
	c.buffers.New = func() any { return new(buffers) }
	c.scratch.New = func() any { return new(scratch) }
	return c, nil
}

func (c *codec) close() { c.unz.Close() }
