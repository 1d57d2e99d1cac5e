package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"celldexport/exporter"
	"celldexport/exporter/consumer"
	"celldexport/exporter/demo/broker"
	"celldexport/internal/celldsim"
	"celldexport/internal/chain"
	"celldexport/internal/config"
	"celldexport/internal/objstore"
)

const (
	script = "demo"
	class  = "Cart"
)

// actor is one cell, whoever owns it.
type actor struct {
	scope, name string
	cell        *celldsim.Cell
	node        *celldsim.Node
	work        *celldsim.Workload
}

// host is one node with its exporter.
type host struct {
	node     *celldsim.Node
	exporter *exporter.Exporter
	stop     context.CancelFunc
	done     chan error
}

// scene is the fleet while the demo plays.
type scene struct {
	o      Options
	dir    string
	bucket objstore.Store
	// broker is where the export goes, nil when that is the bucket.
	broker *broker.Broker
	fleet  *celldsim.Fleet
	hosts  []*host
	cells  []*actor
	rand   *rand.Rand
	// zombie is the old owner of the first cell after the takeover; survived
	// is, by scope and epoch, the last txid that its successor restored.
	zombie   *celldsim.Cell
	survived consumer.Survived
	report   progress
}

func newScene(ctx context.Context, o Options, dir string) (*scene, error) {
	bucketDir := filepath.Join(dir, "bucket")
	if err := os.MkdirAll(bucketDir, 0o755); err != nil {
		return nil, fmt.Errorf("make the bucket: %w", err)
	}
	bucket, err := objstore.NewFile(bucketDir)
	if err != nil {
		return nil, err
	}
	fleet, err := celldsim.New(ctx, celldsim.Config{
		Bucket: bucket, Script: script, Classes: []string{class}, Now: time.Now, Seed: o.Seed, Layout: celldsim.V06,
	})
	if err != nil {
		return nil, err
	}
	sc := &scene{
		o: o, dir: dir, bucket: bucket, fleet: fleet, rand: rand.New(rand.NewPCG(o.Seed, 0x64656d6f)),
		survived: make(consumer.Survived), report: progress{w: o.Progress, live: o.Live},
	}
	if err := sc.openSink(); err != nil {
		return nil, errors.Join(err, sc.close())
	}
	for _, name := range []string{"node-a", "node-b"} {
		if err := sc.addHost(ctx, name); err != nil {
			return nil, errors.Join(err, sc.close())
		}
	}
	for i := range o.Cells {
		if err := sc.addCell(ctx, i); err != nil {
			return nil, errors.Join(err, sc.close())
		}
	}
	return sc, nil
}

// addHost starts a node and the exporter beside it.
func (sc *scene) addHost(ctx context.Context, name string) error {
	watch := filepath.Join(sc.dir, name)
	if err := os.MkdirAll(watch, 0o755); err != nil {
		return fmt.Errorf("make the directory of %s: %w", name, err)
	}
	node, err := sc.fleet.Node(ctx, name, watch)
	if err != nil {
		return err
	}
	s := config.Default()
	s.Watch, s.State, s.Node = watch, filepath.Join(sc.dir, "state-"+name), name
	s.Bucket = "file://" + filepath.Join(sc.dir, "bucket")
	s.Export.Enabled = true
	s.Export.Flush = flush
	if sc.broker != nil {
		s.Export.Sinks, s.Kafka.Brokers = []string{config.SinkKafka}, sc.broker.Addrs()
	}
	log, err := os.Create(filepath.Join(sc.dir, name+".log"))
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", name, err)
	}
	fleet := sc.bucket
	if sc.o.fleet != nil {
		fleet = sc.o.fleet(fleet)
	}
	e, err := exporter.New(ctx, exporter.Options{
		Settings: s, Logger: slog.New(slog.NewTextHandler(log, nil)), Fleet: fleet, Export: sc.bucket,
		Interval: interval,
	})
	if err != nil {
		return errors.Join(fmt.Errorf("start the exporter of %s: %w", name, err), log.Close())
	}
	run, stop := context.WithCancel(ctx)
	h := &host{node: node, exporter: e, stop: stop, done: make(chan error, 1)}
	go func() { h.done <- errors.Join(e.Run(run), e.Close(), log.Close()) }()
	sc.hosts = append(sc.hosts, h)
	return nil
}

const (
	// interval and flush are short, so that much happens in little time.
	interval = 100 * time.Millisecond
	flush    = 300 * time.Millisecond
)

func (sc *scene) addCell(ctx context.Context, i int) error {
	name := fmt.Sprintf("cart-%d", i+1)
	a := &actor{scope: sc.fleet.CellID(class, name), name: name, node: sc.hosts[0].node}
	var err error
	if a.cell, err = a.node.Activate(ctx, a.scope, a.name); err != nil {
		return err
	}
	a.work = celldsim.NewWorkload(celldsim.WorkloadConfig{Seed: sc.o.Seed + uint64(i), Scope: a.scope, Rows: 80})
	sc.cells = append(sc.cells, a)
	return nil
}

// play writes for the set time, then waits until everything is exported.
func (sc *scene) play(ctx context.Context) error {
	begin := time.Now()
	for time.Since(begin) < sc.o.Time {
		if err := ctx.Err(); err != nil {
			return err
		}
		if sc.zombie == nil && time.Since(begin) > sc.o.Time/2 {
			if err := sc.takeover(ctx); err != nil {
				return err
			}
		}
		if err := sc.step(ctx); err != nil {
			return err
		}
		sc.report.show(sc.line(begin))
		time.Sleep(pace)
	}
	for _, a := range sc.cells {
		if err := upload(ctx, a, false); err != nil {
			return err
		}
	}
	if err := sc.settle(ctx, begin); err != nil {
		return err
	}
	return sc.stopExporters()
}

// pace is the pause between two bursts of traffic.
const pace = 4 * time.Millisecond

// step lets one cell write, and sometimes evicts and wakes it.
func (sc *scene) step(ctx context.Context) error {
	a := sc.cells[sc.rand.IntN(len(sc.cells))]
	if err := a.work.Run(ctx, a.cell.DB(), 1+sc.rand.IntN(4)); err != nil {
		return fmt.Errorf("write to %s: %w", a.scope, err)
	}
	if _, err := a.cell.Capture(); err != nil {
		return err
	}
	if sc.rand.IntN(3) > 0 {
		if err := upload(ctx, a, sc.rand.IntN(4) == 0); err != nil {
			return err
		}
	}
	if sc.zombie != nil && sc.rand.IntN(4) == 0 {
		if err := sc.haunt(ctx); err != nil {
			return err
		}
	}
	if sc.rand.IntN(60) == 0 {
		return sc.evict(ctx, a)
	}
	return nil
}

func upload(ctx context.Context, a *actor, merged bool) error {
	if _, err := a.cell.Capture(); err != nil {
		return err
	}
	if merged {
		return a.cell.UploadMerged(ctx)
	}
	return a.cell.Upload(ctx)
}

// evict sends a cell to sleep and wakes it in its next epoch.
func (sc *scene) evict(ctx context.Context, a *actor) error {
	if err := a.node.Evict(ctx, a.scope, sc.rand.IntN(3) > 0); err != nil {
		return err
	}
	var err error
	a.cell, err = a.node.Activate(ctx, a.scope, a.name)
	return err
}

// takeover moves the first cell to the other node while its old owner is
// paused and does not notice.
func (sc *scene) takeover(ctx context.Context) error {
	a := sc.cells[0]
	if err := upload(ctx, a, false); err != nil {
		return err
	}
	files, err := chain.List(ctx, sc.bucket, a.scope)
	if err != nil {
		return err
	}
	head, ok := chain.Derive(files)
	if !ok {
		return fmt.Errorf("%s has no head to take over", a.scope)
	}
	sc.survived[a.scope] = map[uint64]uint64{head.Epoch: head.TXID}
	sc.zombie = a.cell
	a.node = sc.hosts[1].node
	if a.cell, err = a.node.TakeOver(ctx, a.scope, a.name); err != nil {
		return err
	}
	sc.report.say("demo: %s moves from node-a e%d to node-b e%d; node-a does not notice and goes on writing", a.name, head.Epoch, a.cell.Epoch())
	return sc.haunt(ctx)
}

// haunt is the old owner going on: its writes must never reach a consumer.
func (sc *scene) haunt(ctx context.Context) error {
	z := sc.zombie
	if err := z.Exec(`CREATE TABLE IF NOT EXISTS phantom(id INTEGER PRIMARY KEY, what TEXT)`); err != nil {
		return fmt.Errorf("write as the old owner: %w", err)
	}
	if err := z.Exec(`INSERT INTO phantom(what) VALUES('never happened')`); err != nil {
		return fmt.Errorf("write as the old owner: %w", err)
	}
	if _, err := z.Capture(); err != nil {
		return err
	}
	return z.Upload(ctx)
}

// settle waits until both exporters have nothing left to do.
func (sc *scene) settle(ctx context.Context, begin time.Time) error {
	for deadline := time.Now().Add(settleTime); ; time.Sleep(interval) {
		if err := ctx.Err(); err != nil {
			return err
		}
		busy := 0
		for _, h := range sc.hosts {
			busy += h.busy()
		}
		sc.report.show(sc.line(begin))
		if busy == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			// What is left shows in the comparison.
			sc.report.say("demo: %d streams are not finished after %v", busy, settleTime)
			return nil
		}
	}
}

// settleTime bounds the wait for the exporters at the end.
const settleTime = 30 * time.Second

// busy is the number of the node's streams and files that wait.
func (h *host) busy() int {
	s := h.exporter.Status()
	return s.Watch.Pending + s.Streams[exporter.StatePending] + s.Streams[exporter.StateWaiting] + s.Streams[exporter.StateFailed] + s.Streams[exporter.StateFull]
}

func (sc *scene) stopExporters() error {
	var errs []error
	for _, h := range sc.hosts {
		h.stop()
		errs = append(errs, <-h.done)
	}
	sc.hosts = nil
	return errors.Join(errs...)
}

func (sc *scene) close() error {
	err := errors.Join(sc.stopExporters(), sc.fleet.Close())
	if sc.broker != nil {
		sc.broker.Close()
	}
	return err
}

// compare holds the consumer against every cell: rows, certificates, gaps, and
// that nothing of a lost history was exported.
func (sc *scene) compare(ctx context.Context, c *consumer.Consumer) ([]string, error) {
	var diffs []string
	for _, a := range sc.cells {
		src := consumer.SourceOf(a.cell)
		found, err := c.Compare(ctx, src)
		if err != nil {
			return nil, err
		}
		holes, err := c.Holes(a.scope)
		if err != nil {
			return nil, err
		}
		diffs = append(append(append(diffs, found...), c.Certified(src)...), holes...)
	}
	return append(diffs, c.Phantoms(sc.survived)...), nil
}

func (sc *scene) transactions() int {
	n := 0
	for _, a := range sc.cells {
		n += a.work.Transactions()
	}
	return n
}

func (sc *scene) line(begin time.Time) string {
	var spooled uint64
	busy := 0
	for _, h := range sc.hosts {
		s := h.exporter.Status()
		spooled += s.Spool.Last
		busy += h.busy()
	}
	return fmt.Sprintf("demo: %3.0fs  %d cells  %d transactions written  %d entries spooled  %d waiting",
		time.Since(begin).Seconds(), len(sc.cells), sc.transactions(), spooled, busy)
}

// progress is one line that is rewritten on a terminal and repeated every few
// seconds elsewhere.
type progress struct {
	w    io.Writer
	live bool
	last time.Time
}

func (p *progress) show(line string) {
	every := 5 * time.Second
	if p.live {
		every = 200 * time.Millisecond
	}
	if time.Since(p.last) < every {
		return
	}
	p.last = time.Now()
	if p.live {
		fmt.Fprintf(p.w, "\r\x1b[K%s", line)
		return
	}
	fmt.Fprintln(p.w, line)
}

// say writes a line that stays.
func (p *progress) say(format string, args ...any) {
	if p.live {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
	fmt.Fprintf(p.w, format+"\n", args...)
}
