package exporter

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"celldexport/diffpage"
	"celldexport/diffpage/shadow"
	"celldexport/envelope"
	"celldexport/exporter/state"
)

// openShadow is a shadow file with its owner map.
type openShadow struct {
	shadow *shadow.Shadow
	base   *diffpage.Base
}

func (o *openShadow) close() error { return o.shadow.Close() }

// shadowName is the file of a stream's shadow: the position at which it began
// makes it another file after every re-base.
func shadowName(scope string, at envelope.Position) string {
	sum := sha256.Sum256([]byte(scope))
	return fmt.Sprintf("%s-e%d-%d-%d.db", hex.EncodeToString(sum[:12]), at.Epoch, at.TXID, at.Commit)
}

func (e *Exporter) shadowPath(name string) string { return filepath.Join(e.dir.Shadows(), name) }

func (e *Exporter) hasShadow(name string) bool {
	_, err := os.Stat(e.shadowPath(name))
	return err == nil
}

// openShadow opens a shadow file and maps its pages to tables: from the map
// that was kept of exactly this state, else by reading every page.
func (e *Exporter) openShadow(file state.Shadow) (*openShadow, error) {
	name := file.File
	sh, err := shadow.Open(e.shadowPath(name))
	if err != nil {
		return nil, err
	}
	base, err := e.keptBase(sh, file)
	if err != nil {
		base, err = diffpage.NewBase(sh)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("map the pages of shadow %s: %w", name, err), sh.Close())
	}
	return &openShadow{shadow: sh, base: base}, nil
}

// ownersSuffix names the kept owner map of a shadow file.
const ownersSuffix = ".owners"

// ownersTag names the state that an owner map is of.
func ownersTag(sh state.Shadow) string { return fmt.Sprintf("e%d:%d", sh.Epoch, sh.TXID) }

// keptBase opens a base with the owner map that was kept. Any error means
// that there is none of this state.
func (e *Exporter) keptBase(sh *shadow.Shadow, file state.Shadow) (*diffpage.Base, error) {
	owners, err := os.ReadFile(e.shadowPath(file.File) + ownersSuffix)
	if err != nil {
		return nil, err
	}
	return diffpage.OpenBase(sh, ownersTag(file), owners)
}

// keepOwners stores the owner map beside the shadow. It is a cache: a torn or
// stale file is known as such, and one that cannot be written is done without.
func (e *Exporter) keepOwners(s *stream) {
	owners, err := s.base.MarshalOwners(ownersTag(s.doc.Shadow))
	if err == nil {
		err = os.WriteFile(e.shadowPath(s.doc.Shadow.File)+ownersSuffix, owners, 0o600)
	}
	if err != nil {
		e.log.Warn("owner map is not kept", "cell", s.doc.Scope, "err", err)
	}
}

// removeShadow removes a shadow file and what is kept with it.
func (e *Exporter) removeShadow(name string) error {
	for _, file := range []string{name + ownersSuffix, name} {
		if err := os.Remove(e.shadowPath(file)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove shadow: %w", err)
		}
	}
	return nil
}

// openBase opens the stream's shadow unless it is open.
func (e *Exporter) openBase(s *stream) error {
	if s.base != nil {
		e.opened.use(s)
		return nil
	}
	o, err := e.openShadow(s.doc.Shadow)
	if errors.Is(err, os.ErrNotExist) {
		// Somebody removed it: the stream begins anew from the bucket.
		s.doc.Residency.Based = false
		e.touch(s)
	}
	if err != nil {
		return err
	}
	s.shadow, s.base = o.shadow, o.base
	e.opened.use(s)
	return nil
}

// releaseBase makes what is spooled of the stream true in its shadow and its
// document, and closes the shadow.
func (e *Exporter) releaseBase(ctx context.Context, s *stream) error {
	if _, staged := e.batch.streams[s]; staged {
		if err := e.checkpoint(ctx); err != nil {
			return err
		}
	}
	e.dropBase(s)
	return nil
}

// dropBase closes the stream's shadow, of which everything is on disk.
func (e *Exporter) dropBase(s *stream) {
	if s.shadow == nil {
		return
	}
	e.keepOwners(s)
	if err := s.shadow.Close(); err != nil {
		e.log.Warn("close shadow", "cell", s.doc.Scope, "err", err)
	}
	s.shadow, s.base, s.plan = nil, nil, nil
	e.opened.forget(s)
}

// replaceShadow makes another file the stream's shadow. The old one is
// removed once the database names the new one.
func (e *Exporter) replaceShadow(s *stream, sh state.Shadow) {
	if old := s.doc.Shadow.File; old != "" && old != sh.File {
		e.batch.obsolete = append(e.batch.obsolete, old)
	}
	s.doc.Shadow = sh
}

// trimShadows removes shadows of departed cells, the longest unused first,
// until they fit cache_bytes. Their next wake restores from the bucket.
func (e *Exporter) trimShadows(ctx context.Context) error {
	used, err := e.shadowBytes()
	if err != nil || used <= e.settings.Export.CacheBytes {
		return err
	}
	for doc, err := range e.dir.Departed(ctx) {
		if err != nil {
			return stateFailed(err)
		}
		if used <= e.settings.Export.CacheBytes {
			return nil
		}
		s, err := e.stream(ctx, doc.Scope)
		if err != nil {
			return err
		}
		if s == nil || !s.doc.Residency.Closed || s.doc.Shadow.File == "" {
			continue
		}
		used -= int64(s.doc.Shadow.PageSize) * int64(s.doc.Shadow.Commit)
		file := s.doc.Shadow.File
		e.dropBase(s)
		s.doc.Shadow.File = ""
		if err := e.saveNow(ctx, s); err != nil {
			return err
		}
		if err := e.removeShadow(file); err != nil {
			return stateFailed(err)
		}
	}
	return nil
}

// shadowBytes is what the shadow files take.
func (e *Exporter) shadowBytes() (int64, error) {
	entries, err := os.ReadDir(e.dir.Shadows())
	if err != nil {
		return 0, stateFailed(fmt.Errorf("measure shadows: %w", err))
	}
	var n int64
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil {
			n += info.Size()
		}
	}
	return n, nil
}

// opened keeps the number of open shadows within limits: the longest unused
// is closed first.
type opened struct {
	limit int
	order []*stream
}

func (o *opened) use(s *stream) {
	o.forget(s)
	o.order = append(o.order, s)
}

func (o *opened) forget(s *stream) {
	for i, x := range o.order {
		if x == s {
			o.order = append(o.order[:i], o.order[i+1:]...)
			return
		}
	}
}

// excess are the streams whose shadows are one too many.
func (o *opened) excess() []*stream {
	if n := len(o.order) - o.limit; n > 0 {
		return append([]*stream(nil), o.order[:n]...)
	}
	return nil
}
