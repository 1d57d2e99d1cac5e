package exporter_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"

	"celldexport/exporter"
	"celldexport/internal/celld"
	"celldexport/internal/celldsim"
	"celldexport/internal/chain"
	"celldexport/internal/objstore"
)

// event is something that happens in a model fleet. A chooses the cell or the
// host it happens to, B everything else.
type event struct {
	Op   op
	A, B uint64
}

type op uint8

const (
	opWrite op = iota
	opCapture
	opUpload
	opUploadMerged
	opCompact
	opFullImage
	opEvict
	opWake
	opHandoff
	opTakeOver
	opZombieWrite
	opZombieUpload
	opZombieEnds
	opNodeCrash
	opResume
	opReset
	opAbandon
	opReload
	opDropImages
	opCollect
	opRound
	opFlush
	opStop
	opStart
	opFailAt
	opLoseState
	opCopyState
	opOldState
	opLag
	opFault
	opMend
	opTick
	opRace
	opCount
)

var opNames = [...]string{
	"write", "capture", "upload", "upload merged", "compact", "full image", "evict", "wake", "hand off", "take over",
	"zombie writes", "zombie uploads", "zombie ends", "node crashes", "resume", "reset", "abandon eviction", "reload", "drop images", "collect epochs",
	"round", "flush", "exporter stops", "exporter starts", "exporter fails at a step", "state is lost", "state is copied", "old state is back",
	"listing lags", "bucket fails", "bucket is mended", "time passes or steps", "something happens in a round",
}

func (e event) String() string {
	return fmt.Sprintf("{%d, %d, %d}, // %s", e.Op, e.A, e.B, opNames[e.Op])
}

// weights is how often each event is drawn.
var weights = [opCount]int{
	opWrite: 30, opCapture: 8, opUpload: 10, opUploadMerged: 4, opCompact: 2, opFullImage: 2,
	opEvict: 4, opWake: 9, opHandoff: 3, opTakeOver: 3, opZombieWrite: 3, opZombieUpload: 3, opZombieEnds: 1,
	opNodeCrash: 1, opResume: 2, opReset: 1, opAbandon: 2, opReload: 1, opDropImages: 1, opCollect: 1,
	opRound: 30, opFlush: 6, opStop: 2, opStart: 6, opFailAt: 2, opLoseState: 1, opCopyState: 1, opOldState: 1,
	opLag: 2, opFault: 3, opMend: 4, opTick: 4, opRace: 8,
}

// draw makes a list of n events from a seed. Half of all lists lose no state.
func draw(seed uint64, n int) []event {
	r := rand.New(rand.NewPCG(seed, 1))
	w := weights
	if seed%2 == 0 {
		w[opLoseState], w[opOldState] = 0, 0
	}
	total := 0
	for _, x := range w {
		total += x
	}
	list := make([]event, n)
	for i := range list {
		pick := r.IntN(total)
		o := op(0)
		for pick >= w[o] {
			pick -= w[o]
			o++
		}
		list[i] = event{Op: o, A: r.Uint64N(64), B: r.Uint64N(64)}
	}
	return list
}

// play has one event happen. An event that does not fit does nothing, so that
// events can be left out of a list.
func (m *model) play(ev event) {
	c, h := m.cells[ev.A%uint64(len(m.cells))], m.hosts[ev.A%uint64(len(m.hosts))]
	switch {
	case ev.Op <= opFullImage:
		m.traffic(c, ev)
	case ev.Op <= opZombieEnds:
		m.move(c, ev)
	case ev.Op <= opCollect:
		m.disturb(c, h, ev)
	default:
		m.operate(h, ev)
	}
	m.observe()
}

// traffic is what a resident cell does.
func (m *model) traffic(c *modelCell, ev event) {
	if c.res == nil {
		return
	}
	switch ev.Op {
	case opWrite:
		m.writes++
		m.must(scribble(m.ctx, c.res, m.seed<<16+m.writes<<8+ev.B))
		c.dirty = true
		if ev.B%2 == 0 {
			m.capture(c)
		}
		if ev.B%4 == 0 {
			m.must(c.res.Upload(m.ctx))
		}
	case opCapture:
		m.capture(c)
	case opUpload:
		if pending := c.res.Pending(); ev.B%4 == 0 && len(pending) > 0 {
			m.must(c.res.UploadThrough(m.ctx, pending[int(ev.B)%len(pending)]))
			return
		}
		m.must(c.res.Upload(m.ctx))
	case opUploadMerged:
		m.must(c.res.UploadMerged(m.ctx))
	case opCompact:
		_, _, err := c.res.Compact(m.ctx, 1+int(ev.B))
		m.must(err)
	case opFullImage:
		_, err := c.res.FullImage()
		m.must(err)
		c.dirty = false
	}
}

func (m *model) capture(c *modelCell) {
	_, err := c.res.Capture()
	m.must(err)
	c.dirty = false
	m.observe()
}

// move is what happens between nodes.
func (m *model) move(c *modelCell, ev event) {
	to := m.hosts[ev.B%uint64(len(m.hosts))]
	switch ev.Op {
	case opEvict, opHandoff:
		if c.res == nil {
			return
		}
		m.capture(c)
		node, last := c.owner.node, c.res
		if ev.Op == opEvict {
			m.must(node.Evict(m.ctx, c.scope, ev.B%3 > 0))
		} else {
			m.must(node.Handoff(m.ctx, c.scope, ev.B%2 == 0 && !c.resumed))
			c.owner = nil
		}
		c.res = nil
		c.ended[c.epoch] = last.TXID()
	case opWake:
		if c.res == nil && (c.owner == nil || c.owner == to) {
			m.activate(c, to, celldsim.Activation{Paged: ev.B%8 > 5})
		} else if c.res == nil {
			m.activate(c, c.owner, celldsim.Activation{Paged: ev.B%8 > 5})
		}
	case opTakeOver:
		if c.owner == nil || c.owner == to {
			return
		}
		if c.res != nil {
			c.zombies = append(c.zombies, c.res)
			c.res = nil
		}
		m.activate(c, to, celldsim.Activation{Paged: ev.B%8 > 5, TakeOver: true})
	default:
		if len(c.zombies) > 0 {
			m.zombie(c, int(ev.B)%len(c.zombies), ev)
		}
	}
}

// zombie is an owner that does not notice that it lost the cell.
func (m *model) zombie(c *modelCell, i int, ev event) {
	z := c.zombies[i]
	switch ev.Op {
	case opZombieWrite:
		m.must(z.Exec(`CREATE TABLE IF NOT EXISTS phantom(x)`))
		m.must(z.Exec(`INSERT INTO phantom VALUES(1)`))
		_, err := z.Capture()
		m.must(err)
		if ev.B%2 == 0 {
			m.must(z.Upload(m.ctx))
		}
	case opZombieUpload:
		m.must(z.Upload(m.ctx))
	case opZombieEnds:
		m.endZombie(c, i)
	}
}

func (m *model) endZombie(c *modelCell, i int) {
	m.must(c.zombies[i].Node().Drop(c.scope))
	c.zombies = slices.Delete(c.zombies, i, i+1)
}

// activate opens a cell on a host and notes what it goes on from.
func (m *model) activate(c *modelCell, h *modelHost, a celldsim.Activation) {
	for i := len(c.zombies) - 1; i >= 0; i-- {
		if c.zombies[i].Node() == h.node {
			m.endZombie(c, i)
		}
	}
	files, err := chain.List(m.ctx, m.store, c.scope)
	m.must(err)
	head, ok := chain.Derive(files)
	a.Paged = a.Paged && ok
	a.Resume = a.Resume && ok && head.Epoch == c.epoch
	if !a.Resume && ok && head.Epoch > c.epoch {
		m.must(fmt.Errorf("the bucket is ahead of own.json: e%d", head.Epoch))
	}
	if a.Paged {
		m.endUnlisted(c, head.Epoch)
	}
	image := !a.TakeOver && !a.Paged && !a.Resume && c.hasImage(h)
	a.Cell, a.Name = c.scope, c.name
	res, err := h.node.ActivateWith(m.ctx, a)
	m.must(err)
	c.owner, c.res, c.dirty, c.crashed, c.resumed = h, res, false, false, a.Resume
	switch {
	case a.Resume:
		m.truth.void(c.scope, c.epoch, head.TXID)
	case image:
		m.truth.continues(c.scope, res.Epoch(), chain.Head{Spans: []chain.Span{{Epoch: c.epoch, Lo: 1, Hi: c.ended[c.epoch]}}})
	default:
		m.truth.continues(c.scope, res.Epoch(), head)
	}
	c.epoch = res.Epoch()
}

// endUnlisted ends owners of epochs above the one that a paged epoch is built
// on. Such an epoch names its base by a number only: if one of them uploaded
// that number now, celld itself could not tell the two apart.
func (m *model) endUnlisted(c *modelCell, base uint64) {
	for i := len(c.zombies) - 1; i >= 0; i-- {
		if c.zombies[i].Epoch() > base {
			m.endZombie(c, i)
		}
	}
}

// hasImage reports whether an eviction left the cell's database on a host.
func (c *modelCell) hasImage(h *modelHost) bool {
	scope, err := celld.ParseScope(c.scope)
	if err != nil {
		return false
	}
	_, err = os.Stat(filepath.Join(celld.EpochDir(h.settings.Watch, scope, c.epoch), celld.EvictedName))
	return err == nil
}

// disturb is what ends residencies in disorder.
func (m *model) disturb(c *modelCell, h *modelHost, ev event) {
	switch ev.Op {
	case opNodeCrash:
		for _, c := range m.cells {
			if c.owner == h && c.res != nil {
				c.res, c.crashed = nil, true
			}
			c.zombies = slices.DeleteFunc(c.zombies, func(z *celldsim.Cell) bool { return z.Node() == h.node })
		}
		m.must(h.node.Restart(m.ctx))
	case opResume:
		files, err := chain.List(m.ctx, m.store, c.scope)
		m.must(err)
		if head, ok := chain.Derive(files); c.res == nil && c.owner != nil && ok && head.Epoch == c.epoch && c.crashed {
			m.activate(c, c.owner, celldsim.Activation{Resume: true})
		}
	case opReset:
		if c.res != nil {
			m.must(c.owner.node.Reset(c.scope))
			c.res = nil
		}
	case opAbandon:
		if c.res != nil {
			m.abandon(c, ev.B%2 == 0)
		}
	case opReload:
		for _, c := range m.cells {
			if c.owner == h && c.res != nil {
				m.capture(c)
			}
			for i := len(c.zombies) - 1; i >= 0; i-- {
				if c.zombies[i].Node() == h.node {
					m.endZombie(c, i)
				}
			}
		}
		m.must(h.node.Reload(m.ctx))
	case opDropImages:
		m.must(h.node.DropImages())
	case opCollect:
		m.collect(c)
	}
}

// abandon gives an eviction up, late when the captured files were deleted by
// then and the exporter saw it.
func (m *model) abandon(c *modelCell, late bool) {
	m.capture(c)
	if !late {
		m.must(c.owner.node.AbandonEviction(m.ctx, c.scope))
		return
	}
	m.must(c.owner.node.AbandonEvictionLate(m.ctx, c.scope, func() error { c.owner.round(); return nil }))
}

// collect deletes epochs below the base of the owner's chain, as a fleet with
// retention does.
func (m *model) collect(c *modelCell) {
	if c.res == nil {
		return
	}
	files, err := chain.List(m.ctx, m.store, c.scope)
	m.must(err)
	head, ok := chain.Derive(files)
	if !ok {
		return
	}
	below := min(head.Spans[0].Epoch, c.epoch-1)
	b, err := json.Marshal(map[string]uint64{"retired_below": below})
	m.must(err)
	_, err = objstore.PutBytes(m.ctx, m.store, celld.RetiredKey(c.scope), b, objstore.PutOptions{})
	m.must(err)
	for _, f := range files {
		if f.Epoch < below {
			m.must(m.store.Delete(m.ctx, f.Object.Key))
		}
	}
}

// operate is what exporters do and what is done to them.
func (m *model) operate(h *modelHost, ev event) {
	if ev.Op != opRound && ev.Op != opFlush && ev.Op != opTick {
		h.gather()
	}
	switch ev.Op {
	case opRound:
		for _, other := range m.hosts {
			if other == h || ev.B%2 == 0 {
				other.round()
			}
		}
	case opFlush:
		h.flushUnlessBroken()
	case opStop:
		h.halt()
	case opStart:
		h.start()
	case opFailAt:
		steps := exporter.Steps()
		h.step, h.left = steps[ev.B%uint64(len(steps))], int(ev.B/32)
	case opLoseState:
		h.halt()
		m.must(os.RemoveAll(h.settings.State))
		m.lost = true
	case opCopyState:
		h.copyState()
	case opOldState:
		if h.copied != "" {
			h.halt()
			m.must(os.RemoveAll(h.settings.State))
			m.must(os.CopyFS(h.settings.State, os.DirFS(h.copied)))
			m.lost = true
		}
	case opLag:
		h.lag()
	case opFault:
		h.fail(ev.B)
	case opMend:
		h.fault.Clear()
	case opTick:
		h.tick(ev.B)
	case opRace:
		if h.e == nil {
			return
		}
		c := m.cells[ev.A/8%uint64(len(m.cells))]
		h.race.arm(int(ev.B%16), func() { m.race(c, ev.B/16) })
		h.round()
	}
}

func (h *modelHost) copyState() {
	running := h.e != nil
	h.halt()
	if _, err := os.Stat(h.settings.State); err != nil {
		return
	}
	dir, err := os.MkdirTemp(h.m.dir, "copy")
	h.m.must(err)
	h.m.must(os.CopyFS(dir, os.DirFS(h.settings.State)))
	h.copied = dir
	if running {
		h.start()
	}
}

// lag has listings leave out what is put from now on.
func (h *modelHost) lag() {
	known := make(map[string]struct{})
	for obj, err := range h.m.store.List(h.m.ctx, "", "") {
		h.m.must(err)
		known[obj.Key] = struct{}{}
	}
	h.fault.Add(objstore.Rule{Op: objstore.OpList, Hide: func(o objstore.Object) bool {
		_, ok := known[o.Key]
		return !ok
	}})
}

// fail has some of the exporter's next calls go wrong, before or after they
// took effect.
func (h *modelHost) fail(b uint64) {
	calls := []string{objstore.OpGet, objstore.OpPut, objstore.OpList}
	r := objstore.Rule{Op: calls[b%3], Skip: int(b/4) % 3, Times: 1 + int(b/16)}
	if b%8 < 4 {
		r.Before = errInjected
	} else {
		r.After = errInjected
	}
	h.fault.Add(r)
}

// tick lets time pass, or steps a clock by whole hours.
func (h *modelHost) tick(b uint64) {
	hours := (int64(b/4)%7 - 3) * 3_600_000
	switch b % 4 {
	case 0:
		h.m.skew.Store(hours)
	case 1:
		h.skew.Store(hours)
	default:
		h.m.clock.Add(3000)
	}
}

// flushUnlessBroken flushes when no fault can keep the sinks from it.
func (h *modelHost) flushUnlessBroken() {
	h.fault.Clear()
	h.flush()
}
