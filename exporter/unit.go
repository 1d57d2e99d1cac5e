package exporter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"celldexport/diffpage"
	"celldexport/diffpage/shadow"
	"celldexport/envelope"
	"celldexport/envelope/rowset"
	"celldexport/envelope/v8json"
	"celldexport/internal/chain"
	"celldexport/internal/ledger"
	"celldexport/internal/ltxfile"
	"celldexport/internal/objstore"
	"celldexport/ltxtail"
	"celldexport/ltxtail/proof"
	"celldexport/sinks/delivery"
)

// units turns proven LTX files into spool entries.
type units struct {
	*kit
	ledgers *ledgers
	shadows *shadows
	journal *journal
	entries *entries
	turns   *turns
	// scratch, kv and pages are memory that units use one after the other.
	scratch rowset.Scratch
	kv      v8json.Decoder
	pages   shadow.Pool
}

// errTwoWriters is returned when the node's file and the bucket's object of
// one transaction hold different pages: two processes wrote the same epoch.
var errTwoWriters = errors.New("two writers in one epoch")

// export spools the proven units in order.
func (us *units) export(ctx context.Context, s *stream, units []proof.Unit) error {
	for _, u := range units {
		if u.Max <= s.doc.Residency.Spooled {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := us.entries.room(); err != nil {
			return err
		}
		if err := us.exportUnit(ctx, s, u); err != nil {
			return fmt.Errorf("export %s e%d txid %d: %w", s.doc.Scope, s.doc.Residency.Epoch, u.Max, err)
		}
		s.wait.reset()
		// What was broken lies below by now.
		clear(s.skip)
	}
	return nil
}

// room reports whether the spool takes another unit. One is always taken, so
// that a unit larger than the spool's bound still goes through. A sink that
// alone holds up a full spool is detached.
func (en *entries) room() error {
	used, full := en.full()
	if !full {
		return nil
	}
	if en.makeRoom != nil {
		relieved, err := en.makeRoom(context.Background())
		if err != nil {
			return stateFailed(err)
		}
		if used, full = en.full(); relieved && !full {
			return nil
		}
	}
	return waiting(StateFull, "the spool holds %d bytes (spool_bytes %d): reading stops until the sinks acknowledge", used, en.settings.Export.SpoolBytes)
}

func (en *entries) full() (used int64, full bool) {
	used, entries := en.spool.Usage()
	return used, entries > 0 && used >= en.settings.Export.SpoolBytes
}

func (us *units) exportUnit(ctx context.Context, s *stream, u proof.Unit) error {
	if err := us.journal.openBase(s); err != nil {
		return err
	}
	st, change, err := us.diffUnit(ctx, s, u)
	if err != nil {
		return err
	}
	defer change.Close()
	return us.spoolUnit(ctx, s, st, change)
}

// diffUnit reads, verifies and diffs a unit. The change owns the pages.
func (us *units) diffUnit(ctx context.Context, s *stream, u proof.Unit) (staged, *diffpage.Change, error) {
	st, err := us.stage(ctx, s, u)
	if err != nil {
		return st, nil, err
	}
	if err := checkGrowth(st.images, s.shadow, st.info.Commit); err != nil {
		return st, nil, errors.Join(us.broken(s, u, fmt.Errorf("%s: %w", fileOf(u), err)), st.images.Close())
	}
	change, err := s.base.Diff(st.images, st.info.Commit)
	if err != nil {
		return st, nil, errors.Join(us.broken(s, u, fmt.Errorf("%s: %w", fileOf(u), err)), st.images.Close())
	}
	return st, change, nil
}

// broken has the object of a unit passed over from now on: a wider one, or
// the next full image, may carry the stream on. A local file that was used in
// its place holds the same bytes.
func (us *units) broken(s *stream, u proof.Unit, err error) error {
	if errors.Is(err, ltxfile.ErrCorrupt) || errors.Is(err, diffpage.ErrCorrupt) {
		s.skip[proof.ObjectID{Key: u.Object.Object.Key, ETag: u.Object.Object.ETag}] = struct{}{}
	}
	return err
}

// staged is a unit's verified pages.
type staged struct {
	images *shadow.Images
	info   ltxfile.Info
}

// stage reads and verifies a unit: the local file, or the covering object
// when there is no equal local file or that one turns out to be damaged.
func (us *units) stage(ctx context.Context, s *stream, u proof.Unit) (staged, error) {
	if u.Local != nil {
		st, err := us.stageLocal(ctx, *u.Local)
		if err == nil && st.info.Checksum == u.Checksum {
			return st, checkTXIDs(st.info, u.Min, u.Max)
		}
		if err == nil {
			// Renamed over since it was compared: what is there now is
			// compared anew in the next round.
			return staged{}, errors.Join(waiting(StatePending, "%s changed while it was read", u.Local.Path), st.images.Close())
		}
		switch {
		case errors.Is(err, ltxfile.ErrCorrupt):
			us.log.Warn("local file is damaged, reading the bucket's", "cell", s.doc.Scope, "err", err)
		case !errors.Is(err, fs.ErrNotExist):
			return staged{}, err
		}
		// Gone since it was compared, as with an eviction, it holds what the
		// object does.
	}
	st, err := us.stageObject(ctx, u.Object)
	if err != nil {
		return staged{}, us.broken(s, proof.Unit{Object: u.Object}, err)
	}
	if err := checkTXIDs(st.info, u.Min, u.Max); err != nil {
		return staged{}, errors.Join(err, st.images.Close())
	}
	if u.Differs != nil {
		if err := us.compareTwins(ctx, st, *u.Differs); err != nil {
			return staged{}, errors.Join(err, st.images.Close())
		}
	}
	return st, nil
}

func checkTXIDs(info ltxfile.Info, minTXID, maxTXID uint64) error {
	if info.MinTXID != minTXID || info.MaxTXID != maxTXID {
		return fmt.Errorf("its header says txids %d-%d: %w", info.MinTXID, info.MaxTXID, ltxfile.ErrCorrupt)
	}
	return nil
}

func (us *units) stageLocal(ctx context.Context, f ltxtail.File) (staged, error) {
	r, err := openNode(ctx, us.tail, f)
	if err != nil {
		return staged{}, err
	}
	defer r.Close()
	st, err := us.decode(r, r.size)
	if err != nil {
		return staged{}, fmt.Errorf("stage %s: %w", f.Path, err)
	}
	return st, nil
}

func (us *units) stageObject(ctx context.Context, f chain.File) (staged, error) {
	r, err := chain.Open(ctx, us.fleet, f)
	if errors.Is(err, objstore.ErrPrecondition) || errors.Is(err, objstore.ErrNotFound) {
		return staged{}, waiting(StatePending, "%s changed after it was listed", f.Object.Key)
	}
	if err != nil {
		return staged{}, err
	}
	defer r.Close()
	st, err := us.decode(r, f.Object.Size)
	if err != nil {
		return staged{}, fmt.Errorf("stage %s: %w", f.Object.Key, err)
	}
	return st, nil
}

// decode keeps a file's pages until its checksum is known to be right.
func (us *units) decode(r io.Reader, size int64) (staged, error) {
	var images *shadow.Images
	r = us.pulse.reader(r)
	head := make([]byte, ltxfile.HeaderSize)
	if _, err := io.ReadFull(r, head); err != nil {
		return staged{}, fmt.Errorf("%w: %d bytes are no LTX file: %w", ltxfile.ErrCorrupt, size, err)
	}
	h, err := ltxfile.ParseHeader(head)
	if err != nil {
		return staged{}, err
	}
	images = us.pages.NewImages(h.PageSize, us.turns.memory(), us.dir.Temp())
	info, err := ltxfile.DecodeInto(io.MultiReader(bytes.NewReader(head), r), size, images.Slot, images.Add)
	if err != nil {
		return staged{}, errors.Join(err, images.Close())
	}
	return staged{images: images, info: info}, nil
}

// compareTwins decides between an object that was encoded again and two
// writers: the pages of both files must be equal. A local file that cannot be
// read in full is no evidence of a second writer.
func (us *units) compareTwins(ctx context.Context, st staged, local ltxtail.File) error {
	twin, err := us.stageLocal(ctx, local)
	if err != nil {
		return nil
	}
	defer twin.images.Close()
	same := twin.info.Commit == st.info.Commit && twin.images.Len() == st.images.Len()
	// A page is read into its buffer or is memory of the unit, which must stay
	// as it is: the buffers are never replaced by what is returned.
	buffers := [2][]byte{make([]byte, st.images.PageSize()), make([]byte, twin.images.PageSize())}
	for i := 0; same && i < st.images.Len(); i++ {
		a, err := st.images.Page(i, buffers[0])
		if err != nil {
			return err
		}
		b, err := twin.images.Page(i, buffers[1])
		if err != nil {
			return err
		}
		same = st.images.Pgno(i) == twin.images.Pgno(i) && bytes.Equal(a, b)
	}
	if !same {
		return fmt.Errorf("%s and the bucket's object of the same txid hold different pages: %w", local.Path, errTwoWriters)
	}
	return nil
}

// fileOf names what a unit was read from.
func fileOf(u proof.Unit) string {
	if u.Local != nil {
		return u.Local.Path
	}
	return u.Object.Object.Key
}

// checkGrowth refuses a unit that enlarges the database without bringing
// every new page: its rows would be read as zeros. All pages are new when they
// have another size than those before, as after VACUUM or a restore.
func checkGrowth(images *shadow.Images, sh *shadow.Shadow, commit uint32) error {
	size, was, from := images.PageSize(), sh.PageSize(), sh.Commit()
	if size != was {
		from = 0
	}
	for pgno := uint64(from) + 1; pgno <= uint64(commit); pgno++ {
		if images.Has(uint32(pgno)) || uint32(pgno) == ltxfile.LockPage(size) {
			continue
		}
		if from == 0 && sh.Commit() > 0 {
			return fmt.Errorf("%w: the database goes from pages of %d bytes to %d pages of %d bytes and page %d is missing", ltxfile.ErrCorrupt, was, commit, size, pgno)
		}
		return fmt.Errorf("%w: the database grows from %d to %d pages and page %d is missing", ltxfile.ErrCorrupt, from, commit, pgno)
	}
	return nil
}

// spoolUnit encodes a unit's records beside its pages, as one spool entry.
func (us *units) spoolUnit(ctx context.Context, s *stream, st staged, change *diffpage.Change) error {
	at := ledger.Mark{Epoch: s.doc.Residency.Epoch, TXID: st.info.MaxTXID}
	plan, err := us.plan(ctx, s, change, at)
	if err != nil {
		return err
	}
	name, err := us.cellName(s, change)
	if err != nil {
		return err
	}
	env := us.entries.envelope(s, name, st.info.Timestamp, envelope.Position{Epoch: at.Epoch, TXID: at.TXID, Commit: at.TXID})
	w, err := us.spool.Begin(delivery.Unit{
		Form: delivery.FormUnit, Stream: env.Stream, CellName: name, CommittedAt: env.CommittedAt, Node: env.Node,
		Scope: s.doc.Scope, Position: env.Position, MinTXID: st.info.MinTXID, MaxTXID: st.info.MaxTXID,
		PageSize: st.images.PageSize(), Commit: st.info.Commit, Checksum: st.info.Checksum,
		Uncertified: s.doc.Residency.Uncertified,
	})
	if err != nil {
		return stateFailed(err)
	}
	stats, err := plan.Encode(env, change, s.described, func(e *envelope.Encoded) error {
		us.pulse.beat()
		return w.Record(e)
	})
	if err == nil {
		err = change.Pages(w.Page)
	}
	if err != nil {
		return errors.Join(err, w.Abort())
	}
	seq, err := w.Commit()
	if err != nil {
		return stateFailed(err)
	}
	changed := int64(change.NumPages()) * int64(st.images.PageSize())
	if err := change.Accept(); err != nil {
		return cutShort(err)
	}
	us.accepted(s, plan, stats)
	us.journal.spooled(s, seq, changed)
	d := s.doc
	d.CellName, d.CommittedAt = name, env.CommittedAt
	d.Residency.Spooled, d.Residency.Based = at.TXID, true
	d.Shadow.PageSize, d.Shadow.Commit, d.Shadow.Epoch, d.Shadow.TXID = st.images.PageSize(), st.info.Commit, at.Epoch, at.TXID
	us.tail.Advance(d.Scope, at.Epoch, at.TXID)
	return nil
}

// accepted counts what a unit became.
func (us *units) accepted(s *stream, plan *rowset.Plan, stats rowset.Stats) {
	s.plan = plan.Next()
	s.describe(stats.Described)
	us.metrics.unit(stats)
	for _, r := range stats.Reasons {
		us.log.Warn("table exported without rows", "cell", s.doc.Scope, "table", r.Table, "generation", r.Generation, "reason", r.Reason)
	}
}

// plan decides what the unit does to each table and enters it in the ledger
// first: no unit is spooled whose generations the ledger does not hold.
func (us *units) plan(ctx context.Context, s *stream, change *diffpage.Change, at ledger.Mark) (*rowset.Plan, error) {
	if s.plan != nil && change.After() == change.Before() {
		return s.plan, nil
	}
	led, err := us.ledgers.ledgerOf(ctx, s)
	if err != nil {
		return nil, err
	}
	plan, err := rowset.NewPlan(change.After(), change.Before(), led.Tables, at, s.spooledMark(), us.rowOptions(s))
	if err != nil {
		return nil, err
	}
	return plan, us.enterPlan(ctx, s, plan)
}

// enterPlan writes the generations that a plan opens and closes.
func (us *units) enterPlan(ctx context.Context, s *stream, plan *rowset.Plan) error {
	if !plan.Changed() {
		return nil
	}
	led, err := us.ledgers.updateLedger(ctx, s, func(l *ledger.Stream) error {
		return l.SetTables(s.doc.Residency.Epoch, plan.Ledger())
	})
	if err != nil {
		return waiting(StateWaiting, "enter generations of %s in the ledger: %w", s.doc.Scope, err)
	}
	s.led = led
	return nil
}

func (us *units) rowOptions(s *stream) rowset.Options {
	return rowset.Options{
		Scope: s.doc.Scope, Deny: us.deny(s.scope.Class()),
		MaxRecordBytes: us.settings.Export.MaxRecordBytes, MemoryBytes: us.settings.Export.MaxTxBytes, TempDir: us.dir.Temp(),
		DecodeKV: us.kv.Append, Scratch: &us.scratch,
	}
}

// deny is the deny list of a class.
func (us *units) deny(class string) func(string) bool {
	denied := make(map[string]bool)
	for _, t := range us.settings.Export.DenyTables {
		if t.Class == class {
			denied[t.Name] = true
		}
	}
	return func(name string) bool { return denied[name] }
}

// cellName is the Durable Object's name after the unit.
func (us *units) cellName(s *stream, change *diffpage.Change) (*string, error) {
	if s.doc.Residency.Based && !change.Touched(metadataTable) {
		return s.doc.CellName, nil
	}
	name, _, err := rowset.Metadata(change, s.doc.Scope)
	if err != nil {
		return nil, fmt.Errorf("read the cell's name: %w", err)
	}
	return name, nil
}

// metadataTable is celld's own table with the name of the cell.
const metadataTable = "_cf_METADATA"

// envelope is the part that all records of one position share.
func (en *entries) envelope(s *stream, name *string, committedAt int64, pos envelope.Position) envelope.Envelope {
	return envelope.Envelope{
		Stream: s.doc.ID, CellName: name, Position: pos, CommittedAt: committedAt, Node: en.settings.Node,
		Origin: envelope.Live, Fragment: 1, Fragments: 1,
	}
}
