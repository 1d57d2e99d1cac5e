package exporter_test

import (
	"bytes"
	"context"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"celldexport/internal/celld"
	"celldexport/internal/objstore"
)

// A model whose checks could not fail would prove nothing: each promise that
// is broken turns the check that is named for it red in some fleet.
func TestModelNoticesSabotage(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		rig  sabotage
		says string
	}{
		{"own.json is not read afresh", func(node string, s objstore.Store) objstore.Store {
			return &stillOurs{Store: s, node: node, last: make(map[string][]byte)}
		}, "is of a history that was lost"},
		{"an object is acknowledged and not stored", func(_ string, s objstore.Store) objstore.Store {
			return &forgetful{Store: s, prefix: "export/changes/", every: 3}
		}, "certified"},
		{"the ledger forgets", func(_ string, s objstore.Store) objstore.Store {
			return &forgetful{Store: s, prefix: "exportd/ledger/", every: 2}
		}, "is at the consumer and not in the source"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for s := uint64(1); s <= 100; s++ {
				problems, _ := (&play{seed: s, list: draw(s, fleetEvents), count: tallies{}, rig: tt.rig}).run(t.Context())
				if len(problems) > 0 && strings.Contains(strings.Join(problems, "\n"), tt.says) {
					t.Logf("fleet %d: %s", s, problems[0])
					return
				}
			}
			t.Errorf("no fleet of a hundred says that %s", tt.says)
		})
	}
}

// stillOurs answers every reading of an own.json that names another node with
// the last one that named its own.
type stillOurs struct {
	objstore.Store
	node string

	mu   sync.Mutex
	last map[string][]byte
}

func (s *stillOurs) Get(ctx context.Context, key string, opts objstore.GetOptions) (io.ReadCloser, objstore.Object, error) {
	body, obj, err := s.Store.Get(ctx, key, opts)
	if err != nil || !strings.HasSuffix(key, "/own.json") {
		return body, obj, err
	}
	defer body.Close()
	data, err := io.ReadAll(body)
	if err != nil {
		return nil, obj, err
	}
	own, err := celld.ParseOwn(data)
	if err != nil {
		return nil, obj, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if own.Node == s.node {
		s.last[key] = data
	}
	if forged, ok := s.last[key]; ok {
		data = forged
	}
	obj.Size = int64(len(data))
	return io.NopCloser(bytes.NewReader(data)), obj, nil
}

// forgetful acknowledges some PUTs below a prefix and stores nothing.
type forgetful struct {
	objstore.Store
	prefix string
	every  int64
	puts   atomic.Int64
}

func (f *forgetful) Put(ctx context.Context, key string, body io.ReaderAt, size int64, opts objstore.PutOptions) (objstore.Object, error) {
	if strings.HasPrefix(key, f.prefix) && f.puts.Add(1)%f.every == 0 {
		return objstore.Object{Key: key, Size: size, ETag: "forgotten"}, nil
	}
	return f.Store.Put(ctx, key, body, size, opts)
}
