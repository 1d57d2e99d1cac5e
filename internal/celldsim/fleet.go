package celldsim

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"celldexport/internal/celld"
	"celldexport/internal/objstore"
)

// Layout is the line of celld releases whose habits a fleet follows.
type Layout uint8

const (
	// V03 uploads one object per txid and never writes handoff snapshots.
	V03 Layout = iota
	// V06 merges contiguous pending files into one object when an eviction,
	// handoff or reload uploads them, and checkpoints often.
	V06
)

// Config describes a fleet.
type Config struct {
	// Bucket is the fleet bucket. Required.
	Bucket objstore.Store
	// Script is the deployed script. Required.
	Script string
	// Classes are the Durable Object classes of the script.
	Classes []string
	// Now is the clock of every node. Required.
	Now func() time.Time
	// Seed makes random ids and generations repeatable.
	Seed uint64
	// Layout chooses the release line.
	Layout Layout
	// TruncatePages is the size of the WAL, in pages, above which a capture
	// is followed by a TRUNCATE checkpoint and a full image. 0 takes the
	// layout's own limit (121359 pages for V03; 128 for V06, where a
	// database above 1024 pages also needs a WAL larger than itself);
	// negative never checkpoints.
	TruncatePages int
}

// Fleet is a bucket with the nodes that share it. Its methods, and those of
// its nodes and cells, are safe for concurrent use; operations on one cell
// are serialised.
type Fleet struct {
	cfg Config

	mu    sync.Mutex
	rand  *rand.Rand
	nodes []*Node
}

// New makes a fleet and deploys its script: deploy/current.json and the
// manifest it points to are in the bucket when New returns.
func New(ctx context.Context, cfg Config) (*Fleet, error) {
	switch {
	case cfg.Bucket == nil:
		return nil, errors.New("make a simulated fleet: no bucket given")
	case cfg.Script == "":
		return nil, errors.New("make a simulated fleet: no script given")
	case cfg.Now == nil:
		return nil, errors.New("make a simulated fleet: no clock given")
	}
	f := &Fleet{cfg: cfg, rand: rand.New(rand.NewPCG(cfg.Seed, 0x63656c6c64))}
	if err := f.deploy(ctx, celld.DeploymentKey(""), cfg.Script, cfg.Classes); err != nil {
		return nil, err
	}
	return f, nil
}

// Close closes the databases of every node as a crash would: the files stay.
func (f *Fleet) Close() error {
	f.mu.Lock()
	nodes := f.nodes
	f.mu.Unlock()
	var errs []error
	for _, n := range nodes {
		errs = append(errs, n.Crash())
	}
	return errors.Join(errs...)
}

// CellID returns the cell (the scope "Class:id") that celld gives the Durable
// Object of the fleet's script with this class and name. Reserved classes
// ("__D1Database") get the id of their shared namespace.
func (f *Fleet) CellID(class, name string) string {
	return class + ":" + celld.IDOf(f.cfg.Script, class, name)
}

// RandomCellID returns a cell of the class whose object has no name, as an
// application gets from a unique id.
func (f *Fleet) RandomCellID(class string) string {
	return class + ":" + celld.IDOf(f.cfg.Script, class, f.token(16))
}

// DeployCohosted adds a second script to the fleet.
func (f *Fleet) DeployCohosted(ctx context.Context, script string, classes []string) error {
	return f.deploy(ctx, celld.DeploymentKey(script), script, classes)
}

// deploy writes a deployment pointer and its manifest.
func (f *Fleet) deploy(ctx context.Context, key, script string, classes []string) error {
	if classes == nil {
		classes = []string{}
	}
	version := "v1-" + f.token(4)
	prefix := "deploy/" + script + "/" + version
	if err := f.putJSON(ctx, celld.ManifestKey(prefix), manifest{
		SchemaVersion: 1, Version: version, ScriptName: script, MainModule: "worker.js",
		DOClasses: classes, SQLiteClasses: classes,
		Modules: []any{}, Crons: []any{}, RequiredFeatures: []any{},
	}); err != nil {
		return err
	}
	current := deployment{ScriptName: script, Version: version, Prefix: prefix}
	current.Rollout.Percent = 100
	return f.putJSON(ctx, key, current)
}

// deployment is the document deploy/current.json.
type deployment struct {
	ScriptName string `json:"script_name"`
	Version    string `json:"version"`
	Prefix     string `json:"prefix"`
	Rollout    struct {
		Percent int `json:"percent"`
	} `json:"rollout"`
}

// manifest is the document that a deployment points to.
type manifest struct {
	SchemaVersion    int      `json:"schema_version"`
	Version          string   `json:"version"`
	ScriptName       string   `json:"script_name"`
	MainModule       string   `json:"main_module"`
	DOClasses        []string `json:"do_classes"`
	SQLiteClasses    []string `json:"sqlite_classes"`
	Modules          []any    `json:"modules"`
	Crons            []any    `json:"crons"`
	RequiredFeatures []any    `json:"required_features"`
}

// token returns n random bytes in hex.
func (f *Fleet) token(n int) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(f.rand.Uint32())
	}
	return hex.EncodeToString(b)
}

// Node adds a node whose data directory is watchDir, and writes its lease.
// The directory is made when it is absent.
func (f *Fleet) Node(ctx context.Context, name, watchDir string) (*Node, error) {
	if name == "" {
		return nil, errors.New("add a node: no name given")
	}
	if err := os.MkdirAll(watchDir, 0o755); err != nil {
		return nil, fmt.Errorf("make the data directory of node %s: %w", name, err)
	}
	n := &Node{fleet: f, name: name, watch: watchDir}
	if err := beginLife(ctx, n); err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.nodes = append(f.nodes, n)
	f.mu.Unlock()
	return n, nil
}
