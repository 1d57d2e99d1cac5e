package exporter_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"celldexport/envelope"
	"celldexport/exporter/consumer"
	"celldexport/internal/celldsim"
	"celldexport/internal/chain"
	"celldexport/internal/ltxfile"
)

// truth is what really happened, which the exporters are never shown.
type truth struct {
	// survived is, by cell and epoch, the last txid that a later epoch goes
	// on from.
	survived consumer.Survived
	// stamps are the times of the captured files, which are never equal.
	stamps map[mark]int64
	// dumps are what the databases held.
	dumps map[mark]map[string]celldsim.DumpedTable
	// seen is the last txid of an epoch that was noted.
	seen map[mark]uint64
}

// mark is a transaction of a cell.
type mark struct {
	scope       string
	epoch, txid uint64
}

func newTruth() truth {
	return truth{
		survived: make(consumer.Survived), stamps: make(map[mark]int64),
		dumps: make(map[mark]map[string]celldsim.DumpedTable), seen: make(map[mark]uint64),
	}
}

// continues notes that an epoch begins on what a chain ends with: nothing
// else of the epochs before it is any part of the cell's history.
func (tr *truth) continues(scope string, epoch uint64, head chain.Head) {
	survived := tr.survived[scope]
	if survived == nil {
		survived = make(map[uint64]uint64)
		tr.survived[scope] = survived
	}
	base := uint64(0)
	for _, span := range head.Spans {
		survived[span.Epoch] = span.Hi
		base = span.Epoch
	}
	for e := base + 1; e < epoch; e++ {
		survived[e] = 0
	}
}

// void notes that an epoch goes on from a txid and numbers anew from there.
func (tr *truth) void(scope string, epoch, txid uint64) {
	gone := func(m mark) bool { return m.scope == scope && m.epoch == epoch && m.txid > txid }
	for m := range tr.stamps {
		if gone(m) {
			delete(tr.stamps, m)
			delete(tr.dumps, m)
		}
	}
	tr.seen[mark{scope: scope, epoch: epoch}] = txid
}

// observe notes what was captured since.
func (m *model) observe() {
	for _, c := range m.cells {
		for _, z := range c.zombies {
			m.stamp(z)
		}
		if c.res == nil {
			continue
		}
		m.stamp(c.res)
		at := mark{c.scope, c.res.Epoch(), c.res.TXID()}
		if _, ok := m.truth.dumps[at]; !ok && !c.dirty {
			dump, err := celldsim.Dump(m.ctx, c.res.DB(), c.scope)
			m.must(err)
			m.truth.dumps[at] = dump
		}
	}
}

// stamp notes the times of a cell's new files.
func (m *model) stamp(c *celldsim.Cell) {
	seen := mark{scope: c.Scope(), epoch: c.Epoch()}
	for txid := m.truth.seen[seen] + 1; txid <= c.TXID(); txid++ {
		b, err := os.ReadFile(filepath.Join(c.LTXDir(), ltxfile.FileName(txid, txid)))
		if os.IsNotExist(err) {
			continue // below the marker of a paged epoch
		}
		m.must(err)
		h, err := ltxfile.ParseHeader(b[:ltxfile.HeaderSize])
		m.must(err)
		m.truth.stamps[mark{c.Scope(), c.Epoch(), txid}] = h.Timestamp
	}
	m.truth.seen[seen] = c.TXID()
}

// finish mends everything, lets every exporter catch up, and takes every cell
// to one more epoch.
func (m *model) finish() {
	for _, h := range m.hosts {
		h.fault.Clear()
		h.gather()
		if h.e != nil && h.e.Failed() {
			h.halt() // its disk failed for a stream that was left behind
		}
		h.step = ""
		h.start()
	}
	m.wakeAll()
	m.settle(false)
	for _, c := range m.cells {
		m.move(c, event{Op: opEvict, B: 1})
	}
	m.settle(false)
	m.wakeAll()
	m.settle(true)
}

func (m *model) wakeAll() {
	for _, c := range m.cells {
		if c.res == nil {
			h := c.owner
			if h == nil {
				h = m.hosts[0]
			}
			m.activate(c, h, celldsim.Activation{})
		}
		m.traffic(c, event{Op: opWrite, B: 2})
		m.capture(c)
		m.must(c.res.Upload(m.ctx))
		m.observe()
	}
}

// settle runs rounds until no stream has anything left to do. A stream that
// never gets there is an error when strict is set.
func (m *model) settle(strict bool) {
	for range 200 {
		busy := 0
		for _, h := range m.hosts {
			h.round()
			h.gather()
			busy += len(h.e.Unfinished())
		}
		if busy == 0 {
			break
		}
	}
	for _, h := range m.hosts {
		if left := h.e.Unfinished(); strict && len(left) > 0 {
			m.must(fmt.Errorf("%s stalls: %v", h.settings.Node, left))
		}
		m.must(h.e.Checkpoint(m.ctx))
		h.flush()
	}
}

// check holds everything that was exported against what really happened.
func (m *model) check(count tallies) []string {
	c, err := consumer.Load(m.ctx, m.store)
	m.must(err)
	m.count(c, count)
	problems := c.Phantoms(m.truth.survived)
	problems = append(problems, m.checkTimes(c)...)
	for _, cell := range m.cells {
		src := consumer.SourceOf(cell.res)
		diffs, err := c.Compare(m.ctx, src)
		m.must(err)
		holes, err := c.Holes(cell.scope)
		m.must(err)
		if !m.lost || len(holes) == 0 {
			problems = append(problems, diffs...)
		}
		if !m.lost {
			problems = append(problems, holes...)
		}
		problems = append(problems, c.Certified(src)...)
		problems = append(problems, m.checkCertificates(c, cell.scope, count)...)
	}
	return problems
}

// count counts what the fleet went through.
func (m *model) count(c *consumer.Consumer, count tallies) {
	count["fleets"]++
	for _, r := range c.Records {
		switch b := r.Body.(type) {
		case *envelope.Link:
			count["link "+string(b.Mode)]++
		case *envelope.SnapshotEnd:
			count[string(b.Scope)+" snapshots"]++
		default:
			count[string(b.Kind())]++
		}
	}
	for _, survived := range m.truth.survived {
		for _, last := range survived {
			if last == 0 {
				count["epochs lost"]++
			} else {
				count["epochs continued"]++
			}
		}
	}
	if m.lost {
		count["with lost state"]++
	}
}

// checkTimes holds the time of every record against the file that it must
// come from: one of a history that was replaced under the same number has
// another.
func (m *model) checkTimes(c *consumer.Consumer) []string {
	var problems []string
	for _, r := range c.Records {
		if k := r.Body.Kind(); k == envelope.KindLink || k == envelope.KindWatermark {
			continue // they repeat the time of another position
		}
		at := mark{r.Stream.Cell, r.Position.Epoch, r.Position.TXID}
		if stamp, ok := m.truth.stamps[at]; !ok || stamp != r.CommittedAt {
			problems = append(problems, fmt.Sprintf("cell %s: a %s record at %v has time %d, the file of that transaction %d", r.Stream.Cell, r.Body.Kind(), r.Position, r.CommittedAt, stamp))
		}
	}
	return problems
}

// checkCertificates holds every certified position of a cell against what its
// database held there: what is certified, and has no gap before it, is right.
func (m *model) checkCertificates(c *consumer.Consumer, scope string, count tallies) []string {
	id, ok := c.Stream(scope)
	if !ok {
		return nil
	}
	var problems []string
	certified := c.State.Certified(id)
	for _, r := range c.Records {
		w, ok := r.Body.(*envelope.Watermark)
		if !ok || r.Stream != id || w.Through.Compare(certified[w.Through.Epoch]) > 0 || w.Through.Commit < w.Through.TXID {
			continue // not certified, or no more than a link
		}
		dump, ok := m.truth.dumps[mark{scope, w.Through.Epoch, w.Through.TXID}]
		if !ok {
			continue
		}
		part, err := c.Until(scope, w.Through)
		m.must(err)
		holes, err := part.Holes(scope)
		m.must(err)
		if len(holes) > 0 {
			continue
		}
		count["certificates"]++
		for _, d := range part.CompareDump(scope, dump) {
			problems = append(problems, fmt.Sprintf("certified at %v: %s", w.Through, d))
		}
	}
	slices.Sort(problems)
	return slices.Compact(problems)
}
