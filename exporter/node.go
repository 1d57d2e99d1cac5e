package exporter

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"celldexport/exporter/state"
	"celldexport/internal/ledger"
	"celldexport/internal/objstore"
)

// errNodeTaken is returned when another process has claimed the node's object
// in the fleet bucket: two exporters of one node would write over each other.
var errNodeTaken = errors.New("another exportd runs for this node")

// renewEvery is how often, at most, a node that exports takes a new token. What
// is exported within it after a copy of the state directory was made is what a
// start from that copy cannot know of; it costs one write to the bucket.
const renewEvery = 10 * time.Second

// node is this start's claim on the node's object in the fleet bucket. It
// tells a state directory that was lost, restored from a copy or started
// twice from one that is ours.
type node struct {
	store  objstore.Store
	dir    *state.Dir
	random io.Reader
	now    func() time.Time
	name   string
	id     state.Identity
	// before is an object that was written for the node before its first
	// start, "" for none.
	before string
	// renewed is when the token was drawn.
	renewed time.Time
}

// claimNode compares the state directory with the node's object and claims
// the next boot. lost says that a state directory other than this one, or a
// newer copy of it, spoke for the node last: the directory was emptied and
// every stream re-bases. The first start of all looks into the export bucket
// for what was written for the node before.
func claimNode(ctx context.Context, store, export objstore.Store, dir *state.Dir, name string, random io.Reader, now func() time.Time) (n *node, lost bool, err error) {
	id, err := dir.Identity(ctx)
	if err != nil {
		return nil, false, err
	}
	if id.Node != "" && id.Node != name {
		// Taken for lost, all that it holds would have to be sent again, for
		// what most likely is a slip of the pen.
		return nil, false, fmt.Errorf("the state directory is of node %q, and the settings say %q: set node (CELLD_NODE) back, or give this node an empty directory", id.Node, name)
	}
	have, etag, err := ledger.LoadNode(ctx, store, name)
	if err != nil {
		return nil, false, fmt.Errorf("read the node's object: %w", err)
	}
	lost = id.ID != "" && !speaksFor(have, id)
	if lost {
		if err := dir.Reset(ctx); err != nil {
			return nil, false, err
		}
		id = state.Identity{}
	}
	if have != nil && id.Next != "" && have.Token == id.Next {
		// The claim of a start that was cut short is ours. It is taken over
		// before the next token replaces its own, or nothing would tell.
		id.Boot, id.Token = have.Boot, have.Token
	}
	if id.ID == "" {
		if id.ID, err = token(random); err != nil {
			return nil, false, err
		}
	}
	id.Node = name
	if id.Next, err = token(random); err != nil {
		return nil, false, err
	}
	if err := dir.SaveIdentity(ctx, id); err != nil {
		return nil, false, err
	}
	doc := ledger.NodeDoc{State: id.ID, Boot: 1, Token: id.Next}
	if have != nil {
		doc.Boot, doc.Before = have.Boot+1, have.Before
	} else if doc.Before, err = writtenBefore(ctx, export, name); err != nil {
		return nil, false, err
	}
	if err := ledger.ClaimNode(ctx, store, name, doc, etag); err != nil {
		return nil, false, fmt.Errorf("claim the node's object: %w", err)
	}
	id.Boot, id.Token, id.Next = doc.Boot, doc.Token, ""
	if err := dir.SaveIdentity(ctx, id); err != nil {
		return nil, false, err
	}
	n = &node{store: store, dir: dir, random: random, now: now, name: name, id: id, before: doc.Before, renewed: now()}
	return n, lost || have != nil && have.State != id.ID, nil
}

// speaksFor reports whether the node's object names this state directory as
// it is: its last boot, or one whose claim was answered after we died. A
// missing object says nothing for us.
func speaksFor(doc *ledger.NodeDoc, id state.Identity) bool {
	if doc == nil {
		return id.Boot == 0
	}
	return doc.State == id.ID && (doc.Token == id.Token && doc.Boot == id.Boot || id.Next != "" && doc.Token == id.Next)
}

// check reads the node's object again. It is done in every round that reads
// an own.json, so that a copy of us is noticed before anything is exported.
// When the token has served its time a new one takes its place, so that a copy
// of the directory that is older than that is known as one when it is started.
func (n *node) check(ctx context.Context) error {
	doc, etag, err := ledger.LoadNode(ctx, n.store, n.name)
	if err != nil {
		return fmt.Errorf("read the node's object: %w", err)
	}
	if doc == nil || !speaksFor(doc, n.id) {
		return n.taken()
	}
	if doc.Token == n.id.Next {
		return n.adopt(ctx, doc.Token)
	}
	if since := n.now().Sub(n.renewed); since >= 0 && since < renewEvery {
		return nil
	}
	return n.renew(ctx, *doc, etag)
}

// still is check between rounds, beside which another may be under way: it
// claims nothing.
func (n *node) still(ctx context.Context) error {
	for {
		was := n.id
		doc, _, err := ledger.LoadNode(ctx, n.store, n.name)
		if err != nil {
			return fmt.Errorf("read the node's object: %w", err)
		}
		if doc != nil && (speaksFor(doc, was) || speaksFor(doc, n.id)) {
			return nil
		}
		if was == n.id {
			return n.taken()
		}
	}
}

// taken is the error for a node's object that is not ours.
func (n *node) taken() error {
	return fmt.Errorf("%w: %s no longer names this start of state %s", errNodeTaken, ledger.NodeKey(n.name), n.id.ID)
}

// renew claims the node's object with a new token. One whose claim has an
// unknown outcome is tried again, or it could take effect unknown to us.
func (n *node) renew(ctx context.Context, doc ledger.NodeDoc, etag string) (err error) {
	if n.id.Next == "" {
		next := n.id
		if next.Next, err = token(n.random); err != nil {
			return err
		}
		if err := n.dir.SaveIdentity(ctx, next); err != nil {
			return stateFailed(err)
		}
		n.id = next
	}
	doc.Token = n.id.Next
	if err := ledger.ClaimNode(ctx, n.store, n.name, doc, etag); err != nil {
		return fmt.Errorf("renew the claim on the node's object: %w", err)
	}
	return n.adopt(ctx, doc.Token)
}

// adopt makes the next token, which the node's object has, the one.
func (n *node) adopt(ctx context.Context, token string) error {
	n.id.Token, n.id.Next, n.renewed = token, "", n.now()
	if err := n.dir.SaveIdentity(ctx, n.id); err != nil {
		return stateFailed(err)
	}
	return nil
}

// token is 16 random bytes in hex.
func token(random io.Reader) (string, error) {
	var b [16]byte
	if _, err := io.ReadFull(random, b[:]); err != nil {
		return "", fmt.Errorf("draw a random token: %w", err)
	}
	return hex.EncodeToString(b[:]), nil
}
