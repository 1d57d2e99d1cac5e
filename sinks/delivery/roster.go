package delivery

import (
	"context"
	"fmt"

	"celldexport/envelope"
	"celldexport/sinks"
)

// roster finds the sinks' places when an engine is made.
type roster struct{ e *Engine }

// attach finds each sink's place in the spool.
func (r *roster) attach() error {
	known, err := r.e.journal.sinks()
	if err != nil {
		return err
	}
	if first := r.e.spool.files.first(); len(known) == 0 && first > 1 {
		return fmt.Errorf("%s knows no sink but the spool begins at entry %d: it is not the one kept with this spool: %w",
			r.e.journal.path, first, ErrCorrupt)
	}
	seen := map[string]bool{}
	for _, sink := range r.e.cfg.Sinks {
		name := sink.Name()
		if name == "" || seen[name] {
			return fmt.Errorf("two sinks or none are named %q", name)
		}
		seen[name] = true
		row, ok := known[name]
		if err := r.place(name, row, ok, len(known) == 0); err != nil {
			return err
		}
	}
	if known, err = r.e.journal.sinks(); err != nil {
		return err
	}
	for _, sink := range r.e.cfg.Sinks {
		o, err := r.newOutlet(sink, known[sink.Name()])
		if err != nil {
			return err
		}
		r.e.outlets = append(r.e.outlets, o)
	}
	return nil
}

// place gives a sink that the journal does not know, or that lost its place,
// one in the spool.
func (r *roster) place(name string, row sinkRow, ok, alone bool) error {
	first, last := r.e.spool.files.first(), r.e.spool.Last()
	if ok {
		if row.cursor > last {
			return fmt.Errorf("sink %s acknowledged entry %d but the spool ends at %d: %w", name, row.cursor, last, ErrCorrupt)
		}
		away, err := r.e.journal.absent(row.id)
		if err != nil {
			return err
		}
		next := row.cursor + 1
		if away != nil && row.cursor >= away.handed {
			next = away.skipped + 1
		}
		if next >= first && !r.e.spool.files.holes.has(next) {
			return r.missed(row, away)
		}
	}
	cursor := last
	var streams map[envelope.Stream]bool
	switch {
	case !ok && alone:
		cursor = 0
	default:
		var err error
		if streams, err = r.streams(); err != nil {
			return err
		}
	}
	return r.e.journal.attach(name, cursor, ok, r.e.cfg.Now().UnixMilli(), r.e.cfg.WatermarkIdle.Milliseconds(), streams)
}

// missed notes that entries left the spool without being passed over for a
// detached sink one by one, which happens while the settings do not name it:
// any stream may have had some of them.
func (r *roster) missed(row sinkRow, away *absence) error {
	last := r.e.spool.Last()
	if away == nil || !lacks(r.e.spool.files, span{away.skipped + 1, last}) {
		return nil
	}
	streams, err := r.streams()
	if err != nil {
		return err
	}
	return r.e.journal.change(context.Background(), func(tx *tx) error {
		if err := tx.allBehind(row.id, away.handed, streams); err != nil {
			return err
		}
		_, err := tx.Exec("UPDATE detached SET skipped = ? WHERE sink = ?", int64(last), row.id)
		return err
	})
}

// streams are those of the entries in the spool.
func (r *roster) streams() (map[envelope.Stream]bool, error) {
	streams := map[envelope.Stream]bool{}
	for entry, err := range r.e.spool.Entries(0) {
		if err != nil {
			return nil, err
		}
		streams[entry.head.unit.Stream] = true
	}
	return streams, nil
}

// newOutlet takes up what the journal knows of a sink.
func (r *roster) newOutlet(sink sinks.Sink, row sinkRow) (*outlet, error) {
	o := &outlet{
		e: r.e, sink: sink, id: row.id, since: row.since, acked: row.cursor, saved: row.cursor,
		sent: tally{row.records, row.watermarks},
	}
	o.place.o, o.place.fell = o, 1
	var err error
	if o.place.away, err = r.e.journal.absent(o.id); err != nil {
		return nil, err
	}
	var noted bool
	if o.place.offered, noted, err = r.e.journal.offered(o.id); err != nil {
		return nil, err
	}
	switch {
	case len(r.e.cfg.Sinks) == 1:
		// It is never detached; another that is added later finds no note and
		// takes everything for handed out.
		err = r.e.journal.forgetOffered(o.id)
	case !noted:
		o.place.offered = r.e.spool.Last()
		err = r.e.journal.noteOffered(o.id, o.place.offered)
	}
	return o, err
}
