package exporter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"celldexport/diffpage/shadow"
	"celldexport/envelope"
	"celldexport/exporter/state"
	"celldexport/sinks/delivery"
)

// replay brings documents and shadows up to what the spool holds: entries
// above the applied mark are taken from their own page images, never from a
// file again (it may have become wider since), and nothing is diffed twice.
type replay struct {
	*kit
	files  *shadows
	docs   map[string]*state.Stream
	opened map[string]*shadow.Shadow
	// torn are the shadows that a crash left without a header and that no
	// entry with every page has mended yet.
	torn map[string]struct{}
}

// takeUp runs at start, before anything new is spooled.
func takeUp(ctx context.Context, k *kit, files *shadows) error {
	r := &replay{kit: k, files: files, docs: make(map[string]*state.Stream), opened: make(map[string]*shadow.Shadow), torn: make(map[string]struct{})}
	last, err := r.entries(ctx)
	for name := range r.torn {
		err = errors.Join(err, fmt.Errorf("the spool does not hold all pages of shadow %s: %w", name, shadow.ErrTorn))
	}
	for name, sh := range r.opened {
		if err == nil {
			err = sh.Sync()
		}
		if cerr := sh.Close(); cerr != nil {
			err = errors.Join(err, fmt.Errorf("close shadow %s: %w", name, cerr))
		}
	}
	if err != nil {
		return fmt.Errorf("take up the spool: %w", err)
	}
	if last > k.spool.Applied() {
		docs := make([]*state.Stream, 0, len(r.docs))
		for _, d := range r.docs {
			docs = append(docs, d)
		}
		if err := k.dir.Save(ctx, docs...); err != nil {
			return err
		}
		if err := k.spool.SetApplied(last); err != nil {
			return err
		}
		k.log.Info("took up from the spool", "through", last, "streams", len(docs))
	}
	return r.removeOrphans(ctx)
}

func (r *replay) entries(ctx context.Context) (uint64, error) {
	var last uint64
	for entry, err := range r.spool.Entries(r.spool.Applied()) {
		if err != nil {
			return 0, err
		}
		last = entry.Seq()
		if err := r.entry(ctx, entry); err != nil {
			return 0, fmt.Errorf("entry %d of %s: %w", last, entry.Unit().Scope, err)
		}
	}
	return last, nil
}

func (r *replay) entry(ctx context.Context, entry *delivery.Stored) error {
	u := entry.Unit()
	if u.Form == delivery.FormWatermark {
		return nil
	}
	doc, err := r.doc(ctx, u.Scope)
	if err != nil {
		return err
	}
	if u.Sink != "" && (doc.Residency.Epoch != u.Position.Epoch || doc.ID != u.Stream) {
		return nil // a gap of one sink in an epoch that is over
	}
	if doc.Residency.Epoch != u.Position.Epoch {
		return fmt.Errorf("it is of e%d, the state database is at e%d", u.Position.Epoch, doc.Residency.Epoch)
	}
	switch u.Form {
	case delivery.FormUnit:
		kept, err := r.pages(doc, entry)
		if err != nil {
			return err
		}
		doc.Residency.Spooled, doc.Residency.Based = u.MaxTXID, kept
		// Nothing follows a close but what withdrew it.
		doc.Residency.Closed = false
		doc.Shadow.PageSize, doc.Shadow.Commit = u.PageSize, u.Commit
		doc.Shadow.Epoch, doc.Shadow.TXID = u.Position.Epoch, u.MaxTXID
		doc.CellName, doc.CommittedAt = u.CellName, u.CommittedAt
	case delivery.FormClose:
		doc.Residency.Closed = true
	case delivery.FormRecords:
		r.records(doc, u)
	}
	if u.Sink != "" {
		return nil // what one sink was told of, the others were not
	}
	return r.described(doc, entry)
}

func (r *replay) doc(ctx context.Context, scope string) (*state.Stream, error) {
	if d := r.docs[scope]; d != nil {
		return d, nil
	}
	d, err := r.dir.Load(ctx, scope)
	if err != nil {
		return nil, err
	}
	if d == nil {
		return nil, errors.New("the state database does not know the stream")
	}
	r.docs[scope] = d
	return d, nil
}

// records takes up an entry that is no unit: a link (commit 0), a re-base
// (which carries the shape of its shadow), or records at a position that
// counts on.
func (r *replay) records(doc *state.Stream, u delivery.Unit) {
	if u.Position.Commit == 0 {
		doc.Residency.Linked = true
		return
	}
	if first := doc.Residency.Spooled + 1 + doc.Life<<32; u.Position.Commit >= first {
		doc.Residency.Next = max(doc.Residency.Next, u.Position.Commit-first+1)
	}
	if u.PageSize == 0 {
		return
	}
	at := envelope.Position{Epoch: u.Position.Epoch, TXID: u.MaxTXID, Commit: u.MaxTXID}
	doc.Shadow = state.Shadow{File: shadowName(u.Scope, at), PageSize: u.PageSize, Commit: u.Commit, Epoch: at.Epoch, TXID: at.TXID}
	doc.Residency.Based, doc.Residency.Spooled = true, u.MaxTXID
	doc.CellName, doc.CommittedAt = u.CellName, u.CommittedAt
}

// described takes up the schema records that the entry holds.
func (r *replay) described(doc *state.Stream, entry *delivery.Stored) error {
	for enc, err := range entry.Records() {
		if err != nil {
			return err
		}
		if enc.Kind == envelope.KindGap && entry.Unit().Sink == "" {
			doc.Residency.Hole = doc.Residency.Spooled + 1
		}
		if enc.Kind != envelope.KindSchema {
			continue
		}
		rec, err := envelope.DecodeBody(enc.Envelope, enc.Kind, enc.Body)
		if err != nil {
			return err
		}
		body, ok := rec.Body.(*envelope.Schema)
		if ok && !body.Dropped && !slices.Contains(doc.Described, body.TableGeneration) {
			doc.Described = append(doc.Described, body.TableGeneration)
		}
	}
	return nil
}

// pages writes a unit's images into the shadow. Doing it twice is the same.
// kept is false when somebody removed the shadow: the stream re-bases.
func (r *replay) pages(doc *state.Stream, entry *delivery.Stored) (kept bool, err error) {
	u := entry.Unit()
	name := doc.Shadow.File
	sh := r.opened[name]
	if sh == nil {
		sh, err = r.files.open(name)
		if name == "" || errors.Is(err, os.ErrNotExist) {
			return false, nil
		}
		if errors.Is(err, shadow.ErrTorn) {
			r.torn[name] = struct{}{}
			sh, err = r.files.create(name)
		}
		if err != nil {
			return false, err
		}
		r.opened[name] = sh
	}
	if all := int64(u.Commit); entry.PageCount() == all || entry.PageCount() == all-1 && u.Commit >= shadow.LockPage(u.PageSize) {
		delete(r.torn, name)
	}
	if err := sh.Resize(u.PageSize, u.Commit); err != nil {
		return false, err
	}
	for page, err := range entry.Pages() {
		if err != nil {
			return false, err
		}
		if err := sh.WritePage(page.Number, page.Data); err != nil {
			return false, err
		}
	}
	return true, nil
}

// removeOrphans removes shadow files that no document names: those of a start
// that was cut short.
func (r *replay) removeOrphans(ctx context.Context) error {
	named, err := r.dir.ShadowFiles(ctx)
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(r.dir.Shadows())
	if err != nil {
		return fmt.Errorf("list shadows: %w", err)
	}
	for _, entry := range entries {
		if _, ok := named[strings.TrimSuffix(entry.Name(), ownersSuffix)]; ok {
			continue
		}
		if err := os.Remove(r.files.shadowPath(entry.Name())); err != nil {
			return fmt.Errorf("remove shadow of a start that was cut short: %w", err)
		}
	}
	return nil
}
