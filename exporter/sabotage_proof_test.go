package exporter_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"celldexport/diffpage/shadow"
	"celldexport/exporter"
	"celldexport/exporter/consumer"
	"celldexport/internal/celld"
	"celldexport/internal/celldsim"
	"celldexport/internal/chain"
	"celldexport/internal/ltxfile"
	"celldexport/internal/objstore"
)

// byName takes every object for the twin of the local file of its name: it
// answers for trailers with those of the local files.
type byName struct {
	objstore.Store
	dir string
}

func (s byName) Get(ctx context.Context, key string, opts objstore.GetOptions) (io.ReadCloser, objstore.Object, error) {
	body, obj, err := s.Store.Get(ctx, key, opts)
	if err != nil || opts.Offset != -ltxfile.TrailerSize {
		return body, obj, err
	}
	local, lerr := os.ReadFile(filepath.Join(s.dir, filepath.Base(key)))
	if lerr != nil {
		return body, obj, nil
	}
	return io.NopCloser(bytes.NewReader(local[len(local)-ltxfile.TrailerSize:])), obj, errors.Join(body.Close())
}

// forgeObject stores, as the object of the cell's last txid, a file whose
// pages hold another text of the same length.
func forgeObject(t *testing.T, w *world, c *celldsim.Cell, from, to string) {
	t.Helper()
	name := ltxfile.FileName(c.TXID(), c.TXID())
	data, err := os.ReadFile(filepath.Join(c.LTXDir(), name))
	w.must(err)
	h, err := ltxfile.ParseHeader(data[:ltxfile.HeaderSize])
	w.must(err)
	var out bytes.Buffer
	enc, err := ltxfile.NewWriter(&out, h, ltxfile.Frame)
	w.must(err)
	_, err = ltxfile.Decode(bytes.NewReader(data), int64(len(data)), func(pgno uint32, page []byte) error {
		return enc.WritePage(pgno, bytes.ReplaceAll(page, []byte(from), []byte(to)))
	})
	w.must(err)
	_, err = enc.Close(0)
	w.must(err)
	_, err = objstore.PutBytes(t.Context(), w.store, celld.LTXKey(c.Scope(), c.Epoch(), 0, c.TXID(), c.TXID()), out.Bytes(), objstore.PutOptions{})
	w.must(err)
}

// Coverage is of bytes: an object of the right name with other pages proves
// nothing. An exporter that proved by name would send rows that no later
// owner has.
func TestSabotageProofByName(t *testing.T) {
	t.Parallel()
	for _, sabotaged := range []bool{false, true} {
		w := newWorld(t, celldsim.V03)
		a, b := w.host("node-a"), w.host("node-b")
		c := a.activate("one")
		w.write(c, createItems, insertTwo)
		if sabotaged {
			a.rig = func(o *exporter.Options) { o.Fleet = byName{o.Fleet, c.LTXDir()} }
		}
		a.run()
		a.sync()
		w.must(c.Exec(`INSERT INTO items VALUES('ours',1)`))
		_, err := c.Capture()
		w.must(err)
		forgeObject(t, w, c, "ours", "them")
		if sabotaged {
			a.sync() // the transaction is taken for proven
		} else {
			w.until("the transaction is seen", func() bool { return a.e.Status().Streams[exporter.StateExported] == 0 })
			a.rounds(20)
		}
		zombie := c
		c = w.takeOver(b, c, "one")
		// The old owner's next file has its exporter notice and close.
		w.must(zombie.Exec(`DELETE FROM items`))
		_, err = zombie.Capture()
		w.must(err)
		until(t, "the close", func() bool { return a.e.Status().Streams[exporter.StateFenced] == 1 })
		b.run()
		w.write(c, `UPDATE items SET qty = 5 WHERE sku = 'a'`)
		b.sync()
		a.halt()
		b.halt()
		diffs, err := w.consumer().Compare(t.Context(), consumer.SourceOf(c))
		w.must(err)
		if noticed := len(diffs) > 0 && strings.Contains(strings.Join(diffs, "\n"), "table items"); noticed != sabotaged {
			t.Errorf("proof by name %v: differences %v", sabotaged, diffs)
		}
	}
}

// A restart applies a spooled unit from the spool's own pages. One that took
// them from a file that has become wider since would put the shadow ahead of
// what was sent, and the rows in between would never leave.
func TestSabotageRedoFromWiderFile(t *testing.T) {
	t.Parallel()
	for _, sabotaged := range []bool{false, true} {
		w := newWorld(t, celldsim.V03)
		a := w.host("node-a")
		c := a.activate("one")
		w.write(c, createItems, `CREATE TABLE other(id INTEGER PRIMARY KEY, v)`, insertTwo)
		a.once()
		w.write(c, `INSERT INTO items VALUES('c',3)`)
		crashed := errors.New("crashed between spool and shadow")
		e, err := exporter.New(t.Context(), exporter.Options{
			Settings: a.settings, Logger: slog.New(slog.DiscardHandler), Fleet: w.fault, Export: w.fault, Interval: 10 * time.Millisecond,
			Step: func(s exporter.Step) error {
				if s == exporter.StepPages {
					return crashed
				}
				return nil
			},
		})
		w.must(err)
		if _, err := e.Once(t.Context(), exportTime); !errors.Is(err, crashed) {
			t.Fatalf("it ended with %v", err)
		}
		w.must(e.Close())
		w.write(c, `INSERT INTO other VALUES(1,'in between')`)
		if sabotaged {
			widen(t, w, a, c)
		}
		a.once()
		diffs, err := w.consumer().Compare(t.Context(), consumer.SourceOf(c))
		w.must(err)
		if noticed := len(diffs) > 0 && strings.Contains(strings.Join(diffs, "\n"), "table other"); noticed != sabotaged {
			t.Errorf("redo from a wider file %v: differences %v", sabotaged, diffs)
		}
	}
}

// widen brings the shadow of a cell to the bucket's head behind the
// exporter's back.
func widen(t *testing.T, w *world, h *host, c *celldsim.Cell) {
	t.Helper()
	files, err := chain.List(t.Context(), w.store, c.Scope())
	w.must(err)
	plan, err := chain.Plan(files, c.Epoch(), c.TXID())
	w.must(err)
	for _, name := range shadowFiles(t, h.settings.State) {
		sh, err := shadow.Open(filepath.Join(h.settings.State, "shadow", name))
		w.must(err)
		_, _, err = chain.Restore(t.Context(), w.store, plan, sh)
		w.must(errors.Join(err, sh.Sync(), sh.Close()))
	}
}
