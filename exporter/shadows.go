package exporter

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"celldexport/diffpage"
	"celldexport/diffpage/shadow"
	"celldexport/envelope"
	"celldexport/exporter/state"
)

// shadows keeps our copies of databases on disk.
type shadows struct {
	*kit
	opened opened
	// shared is what the owner maps and schemas of all cells have in common.
	shared diffpage.Shared
	// departed says that a residency was closed since shadows of departed
	// cells were last held against cache_bytes.
	departed bool
}

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

func (fs *shadows) shadowPath(name string) string { return filepath.Join(fs.dir.Shadows(), name) }

func (fs *shadows) hasShadow(name string) bool {
	_, err := os.Stat(fs.shadowPath(name))
	return err == nil
}

// create makes an empty shadow in place of what has its name.
func (fs *shadows) create(name string) (*shadow.Shadow, error) {
	return fs.file(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
}

// open opens a shadow made before.
func (fs *shadows) open(name string) (*shadow.Shadow, error) { return fs.file(name, os.O_RDWR) }

func (fs *shadows) file(name string, flag int) (*shadow.Shadow, error) {
	path := fs.shadowPath(name)
	f, err := os.OpenFile(path, flag, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open shadow: %w", err)
	}
	st, err := f.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open shadow: %w", err), f.Close())
	}
	file := shadow.File(f)
	if fs.wrap != nil {
		if file, err = fs.wrap(path, file); err != nil {
			return nil, errors.Join(fmt.Errorf("open shadow: %w", err), f.Close())
		}
	}
	sh, err := shadow.New(pulseFile{file, fs.pulse}, path, st.Size())
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return sh, nil
}

// openShadow opens a shadow file and maps its pages to tables: from the map
// that was kept of exactly this state, else by reading every page.
func (fs *shadows) openShadow(file state.Shadow) (*openShadow, error) {
	name := file.File
	sh, err := fs.open(name)
	if err != nil {
		return nil, err
	}
	base, err := fs.keptBase(sh, file)
	if err != nil {
		base, err = diffpage.NewBase(sh, fs.options()...)
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
func (fs *shadows) keptBase(sh *shadow.Shadow, file state.Shadow) (*diffpage.Base, error) {
	owners, err := os.ReadFile(fs.shadowPath(file.File) + ownersSuffix)
	if err != nil {
		return nil, err
	}
	return diffpage.OpenBase(sh, ownersTag(file), owners, fs.options()...)
}

func (fs *shadows) options() []diffpage.Option {
	return []diffpage.Option{
		diffpage.WithShared(&fs.shared), diffpage.WithMemory(fs.settings.Export.MaxTxBytes), diffpage.WithTempDir(fs.dir.Temp()),
	}
}

// keepOwners stores the owner map beside the shadow. It is a cache: a torn or
// stale file is known as such, and one that cannot be written is done without.
func (fs *shadows) keepOwners(s *stream) {
	owners, err := s.base.MarshalOwners(ownersTag(s.doc.Shadow))
	if err == nil {
		err = fs.at(StepOwners)
	}
	if err == nil {
		err = os.WriteFile(fs.shadowPath(s.doc.Shadow.File)+ownersSuffix, owners, 0o600)
	}
	if err != nil {
		fs.log.Warn("owner map is not kept", "cell", s.doc.Scope, "err", err)
	}
}

// removeShadow removes a shadow file and what is kept with it.
func (fs *shadows) removeShadow(name string) error {
	for _, file := range []string{name + ownersSuffix, name} {
		if err := os.Remove(fs.shadowPath(file)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove shadow: %w", err)
		}
	}
	return nil
}

// openBase opens the stream's shadow unless it is open.
func (jn *journal) openBase(s *stream) error {
	s.used = jn.now()
	if s.base != nil {
		jn.shadows.opened.use(s)
		return nil
	}
	o, err := jn.shadows.openShadow(s.doc.Shadow)
	if s.doc.Shadow.File == "" || errors.Is(err, os.ErrNotExist) {
		// Somebody removed it, or cache_bytes did while the residency was
		// closed: the stream begins anew from the bucket.
		s.doc.Residency.Based = false
		jn.touch(s)
	}
	if err != nil {
		return err
	}
	s.openShadow = *o
	jn.shadows.opened.use(s)
	return nil
}

// releaseBase makes what is spooled of the stream true in its shadow and its
// document, and closes the shadow.
func (jn *journal) releaseBase(ctx context.Context, s *stream) error {
	if err := jn.catchUp(ctx, s); err != nil {
		return err
	}
	jn.shadows.dropBase(s)
	return nil
}

// dropBase closes the stream's shadow, of which everything is on disk.
func (fs *shadows) dropBase(s *stream) {
	if s.shadow == nil {
		return
	}
	fs.keepOwners(s)
	if err := s.shadow.Close(); err != nil {
		fs.log.Warn("close shadow", "cell", s.doc.Scope, "err", err)
	}
	s.openShadow, s.plan = openShadow{}, nil
	fs.opened.forget(s)
}

// replaceShadow makes another file the stream's shadow. The old one is
// removed once the database names the new one.
func (jn *journal) replaceShadow(s *stream, sh state.Shadow) {
	if old := s.doc.Shadow.File; old != "" && old != sh.File {
		jn.batch.obsolete = append(jn.batch.obsolete, old)
	}
	jn.keep(sh.File)
	s.doc.Shadow = sh
}

// keep has a shadow file not removed: it is made anew.
func (jn *journal) keep(name string) {
	jn.batch.obsolete = slices.DeleteFunc(jn.batch.obsolete, func(old string) bool { return old == name })
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

// excess are the streams whose shadows are to be closed when too many are
// open: a fourth of them at once, since they are closed after a checkpoint and
// each stream in turn would cost one. One that was left behind may be using
// its own.
func (o *opened) excess() []*stream {
	if len(o.order) <= o.limit {
		return nil
	}
	oldest := slices.Clone(o.order[:len(o.order)-o.limit*3/4])
	return slices.DeleteFunc(oldest, func(s *stream) bool { return s.turn != nil })
}
