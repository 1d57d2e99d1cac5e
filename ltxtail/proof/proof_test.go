package proof

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"celldexport/internal/celld"
	"celldexport/internal/ltxfile"
	"celldexport/internal/objstore"
	"celldexport/ltxtail"
)

const cell = "Cart:00000000000000000000000000000000000000000000000000000000000000aa"

// world is one cell on node-a, epoch 3, with a bucket.
type world struct {
	t      *testing.T
	store  *objstore.Memory
	fault  *objstore.Fault
	dir    string
	prover *Prover
	mu     sync.Mutex
	calls  []string
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, store: objstore.NewMemory(), dir: t.TempDir()}
	w.fault = objstore.NewFault(w.store)
	counted := recorded{w.fault, func(op, key string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.calls = append(w.calls, op+" "+key)
	}}
	w.prover = &Prover{Store: counted, Node: "node-a", Open: ltxtail.New(ltxtail.Config{Root: w.dir}).Open}
	return w
}

// recorded notes the order of requests.
type recorded struct {
	objstore.Store
	note func(op, key string)
}

func (r recorded) Get(ctx context.Context, key string, o objstore.GetOptions) (io.ReadCloser, objstore.Object, error) {
	r.note("get", key)
	return r.Store.Get(ctx, key, o)
}

// file is an LTX file of one page whose content is fill.
func (w *world) file(minTXID, maxTXID uint64, fill byte, form ltxfile.Form) []byte {
	w.t.Helper()
	var b bytes.Buffer
	h := ltxfile.Header{Flags: ltxfile.FlagNoChecksum, PageSize: 512, Commit: 1, MinTXID: minTXID, MaxTXID: maxTXID, Timestamp: 1}
	enc, err := ltxfile.NewWriter(&b, h, form)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := enc.WritePage(1, bytes.Repeat([]byte{fill}, 512)); err != nil {
		w.t.Fatal(err)
	}
	if _, err := enc.Close(0); err != nil {
		w.t.Fatal(err)
	}
	return b.Bytes()
}

func (w *world) local(txid uint64, fill byte) ltxtail.File {
	w.t.Helper()
	name := filepath.Join(w.dir, ltxfile.FileName(txid, txid))
	if err := os.WriteFile(name, w.file(txid, txid, fill, ltxfile.Frame), 0o644); err != nil {
		w.t.Fatal(err)
	}
	return ltxtail.File{TXID: txid, Path: name}
}

func (w *world) put(key string, data []byte) {
	w.t.Helper()
	if _, err := objstore.PutBytes(w.t.Context(), w.store, key, data, objstore.PutOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) object(level int, minTXID, maxTXID uint64, fill byte) {
	form := ltxfile.Block
	if level == 0 && minTXID == maxTXID {
		form = ltxfile.Frame
	}
	w.put(celld.LTXKey(cell, 3, level, minTXID, maxTXID), w.file(minTXID, maxTXID, fill, form))
}

func (w *world) own(node string, epoch uint64) {
	w.put(celld.OwnKey(cell), celld.Own{Node: node, Epoch: epoch}.Append(nil))
}

func (w *world) prove(after uint64, whole bool, local ...ltxtail.File) (Result, error) {
	return w.prover.Prove(w.t.Context(), Target{Scope: cell, Root: cell, Epoch: 3, After: after, Local: local, Whole: whole})
}

// units spells a result: "2 local, 3-5 level 1, 6 object, 7 differs".
func units(res Result) string {
	var parts []string
	for _, u := range res.Units {
		s := fmt.Sprint(u.Max)
		if u.Min != u.Max {
			s = fmt.Sprintf("%d-%d", u.Min, u.Max)
		}
		switch {
		case u.Local != nil:
			s += " local"
		case u.Differs != nil:
			s += " differs"
		case u.Object.Level > 0:
			s += fmt.Sprintf(" level %d", u.Object.Level)
		default:
			s += " object"
		}
		parts = append(parts, s)
	}
	return strings.Join(parts, ", ")
}

func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		name   string
		own    func(w *world)
		want   Verdict
		proves bool
	}{
		{"ours", func(w *world) { w.own("node-a", 3) }, Owned, true},
		{"released", func(w *world) { w.own("", 3) }, Released, true},
		{"taken over", func(w *world) { w.own("node-b", 4) }, Fenced, false},
		{"our own next epoch", func(w *world) { w.own("node-a", 4) }, Fenced, false},
		{"released after a takeover", func(w *world) { w.own("", 4) }, Fenced, false},
		{"another node in our epoch", func(w *world) { w.own("node-b", 3) }, Foreign, false},
		{"an older record", func(w *world) { w.own("node-a", 2) }, Behind, false},
		{"no record", func(w *world) {}, Missing, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			f := w.local(1, 'a')
			w.object(0, 1, 1, 'a')
			c.own(w)
			res, err := w.prove(0, false, f)
			if err != nil {
				t.Fatal(err)
			}
			if res.Verdict != c.want || res.Verdict.Proves() != c.proves {
				t.Errorf("verdict %v (proves %v), want %v (%v)", res.Verdict, res.Verdict.Proves(), c.want, c.proves)
			}
			// The proof is in this order: coverage first, ownership after it.
			if last := w.calls[len(w.calls)-1]; last != "get "+celld.OwnKey(cell) {
				t.Errorf("own.json was not read last: %v", w.calls)
			}
		})
	}
}

func TestCoverage(t *testing.T) {
	type files = []ltxtail.File
	for _, c := range []struct {
		name  string
		after uint64
		setup func(w *world) files
		want  string
	}{
		{"equal objects", 0, func(w *world) files {
			w.object(0, 1, 1, 'a')
			w.object(0, 2, 2, 'b')
			return files{w.local(1, 'a'), w.local(2, 'b')}
		}, "1 local, 2 local"},
		{"not uploaded yet", 1, func(w *world) files {
			w.object(0, 1, 1, 'a')
			return files{w.local(2, 'b')}
		}, ""},
		{"the tail not uploaded yet", 0, func(w *world) files {
			w.object(0, 1, 1, 'a')
			return files{w.local(1, 'a'), w.local(2, 'b')}
		}, "1 local"},
		{"merged upload", 1, func(w *world) files {
			w.object(0, 1, 1, 'a')
			w.object(0, 2, 4, 'd')
			return files{w.local(2, 'b'), w.local(3, 'c'), w.local(4, 'd'), w.local(5, 'e')}
		}, "2-4 object"},
		{"single objects win over wider ones", 0, func(w *world) files {
			w.object(0, 1, 1, 'a')
			w.object(0, 2, 2, 'b')
			w.object(1, 1, 2, 'b')
			w.object(1, 1, 3, 'c')
			return files{w.local(1, 'a'), w.local(2, 'b'), w.local(3, 'c')}
		}, "1 local, 2 local, 1-3 level 1"},
		{"the narrowest that continues", 2, func(w *world) files {
			w.object(9, 1, 9, 'z')
			w.object(1, 1, 4, 'd')
			w.object(0, 2, 5, 'e')
			return files{w.local(3, 'c')}
		}, "1-4 level 1, 2-5 object, 1-9 level 9"},
		{"a hole ends it", 0, func(w *world) files {
			w.object(0, 1, 1, 'a')
			w.object(0, 3, 3, 'c')
			return files{w.local(1, 'a'), w.local(2, 'b'), w.local(3, 'c')}
		}, "1 local"},
		{"same txid, other bytes", 0, func(w *world) files {
			w.object(0, 1, 1, 'x')
			return files{w.local(1, 'a')}
		}, "1 differs"},
		{"torn local file", 0, func(w *world) files {
			w.object(0, 1, 1, 'a')
			f := w.local(1, 'a')
			if err := os.Truncate(f.Path, 7); err != nil {
				w.t.Fatal(err)
			}
			return files{f}
		}, "1 object"},
		{"local file gone", 0, func(w *world) files {
			w.object(0, 1, 1, 'a')
			w.object(0, 2, 2, 'b')
			f := w.local(1, 'a')
			if err := os.Remove(f.Path); err != nil {
				w.t.Fatal(err)
			}
			return files{f, w.local(2, 'b')}
		}, "1 object, 2 local"},
		{"an object too short for a trailer", 0, func(w *world) files {
			w.put(celld.LTXKey(cell, 3, 0, 1, 1), []byte("torn"))
			return files{w.local(1, 'a')}
		}, "1 differs"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, whole := range []bool{false, true} {
				w := newWorld(t)
				w.own("node-a", 3)
				res, err := w.prove(c.after, whole, c.setup(w)...)
				if err != nil {
					t.Fatal(err)
				}
				if got := units(res); got != c.want {
					t.Errorf("whole %v: got %q, want %q", whole, got, c.want)
				}
				// Units are contiguous from After.
				pos := c.after
				for _, u := range res.Units {
					if u.Min > pos+1 || u.Max <= pos {
						t.Errorf("unit %d-%d does not continue from %d", u.Min, u.Max, pos)
					}
					pos = u.Max
				}
			}
		})
	}
}

func TestSkippedObjects(t *testing.T) {
	w := newWorld(t)
	w.own("node-a", 3)
	w.object(0, 1, 1, 'a')
	w.object(1, 1, 2, 'b')
	local := []ltxtail.File{w.local(1, 'a')}
	res, err := w.prove(0, true, local...)
	if err != nil {
		t.Fatal(err)
	}
	bad := res.Units[0].Object.Object
	res, err = w.prover.Prove(t.Context(), Target{Scope: cell, Root: cell, Epoch: 3, Local: local, Skip: map[ObjectID]struct{}{{bad.Key, bad.ETag}: {}}})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := units(res), "1-2 level 1"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A backlog longer than the probes is listed; what is asked of the bucket
// stays one request per unit plus a few.
func TestBacklogRequests(t *testing.T) {
	w := newWorld(t)
	w.own("node-a", 3)
	var local []ltxtail.File
	for txid := uint64(1); txid <= 40; txid++ {
		w.object(0, txid, txid, byte(txid))
		local = append(local, w.local(txid, byte(txid)))
	}
	res, err := w.prove(0, false, local...)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(res.Units); n != 40 {
		t.Errorf("%d of 40 units proven", n)
	}
	if n := len(w.calls); n > 42 {
		t.Errorf("%d reads for 40 units", n)
	}
	w.calls = nil
	if res, err := w.prove(40, false); err != nil || res.Verdict != Unasked || len(w.calls) != 0 {
		t.Errorf("an idle cell costs %d reads, verdict %v, err %v", len(w.calls), res.Verdict, err)
	}
}

func TestControl(t *testing.T) {
	w := newWorld(t)
	if err := w.prover.Control(t.Context()); err != nil {
		t.Errorf("no control.json: %v", err)
	}
	w.put(celld.ControlKey, []byte(`{"backend":"dynamodb","fleet":"f","format":1,"region":"r","table":"t"}`))
	if err := w.prover.Control(t.Context()); !errors.Is(err, ErrControl) || !strings.Contains(err.Error(), "dynamodb") {
		t.Errorf("foreign control plane: %v", err)
	}
	w.put(celld.ControlKey, []byte(`nonsense`))
	if err := w.prover.Control(t.Context()); err == nil || errors.Is(err, ErrControl) || !strings.Contains(err.Error(), celld.ControlKey) {
		t.Errorf("broken control.json: %v", err)
	}
}

// Whatever cannot be read proves nothing.
func TestUnreadableEvidence(t *testing.T) {
	for name, spoil := range map[string]func(w *world){
		"own.json is no JSON":   func(w *world) { w.put(celld.OwnKey(cell), []byte(`{"node":`)) },
		"own.json has no epoch": func(w *world) { w.put(celld.OwnKey(cell), []byte(`{"node":"node-a"}`)) },
		"a foreign object name": func(w *world) {
			w.put(celld.LTXEpochPrefix(cell, 3)+"0000/whatever.ltx", []byte("x"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.own("node-a", 3)
			w.object(0, 1, 1, 'a')
			f := w.local(1, 'a')
			spoil(w)
			res, err := w.prove(0, true, f)
			if err == nil {
				t.Fatalf("no error, result %+v", res)
			}
			if res.Verdict.Proves() {
				t.Error("a failed reading proves something")
			}
			if slices.ContainsFunc([]string{cell}, func(s string) bool { return !strings.Contains(err.Error(), s) }) {
				t.Errorf("the error does not name the cell: %v", err)
			}
		})
	}
}
