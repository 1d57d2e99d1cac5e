package exporter

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"celldexport/exporter/state"
	"celldexport/internal/ledger"
	"celldexport/internal/objstore"
)

// errNodeTaken is returned when another process has claimed the node's object
// in the fleet bucket: two exporters of one node would write over each other.
var errNodeTaken = errors.New("another exportd runs for this node")

// node is this start's claim on the node's object in the fleet bucket. It
// tells a state directory that was lost, restored from a copy or started
// twice from one that is ours.
type node struct {
	store objstore.Store
	name  string
	id    state.Identity
	// before is an object that was written for the node before its first
	// start, "" for none.
	before string
}

// claimNode compares the state directory with the node's object and claims
// the next boot. lost says that a state directory other than this one, or a
// newer copy of it, spoke for the node last: the directory was emptied and
// every stream re-bases. The first start of all looks into the export bucket
// for what was written for the node before.
func claimNode(ctx context.Context, store, export objstore.Store, dir *state.Dir, name string, random io.Reader) (n *node, lost bool, err error) {
	id, err := dir.Identity(ctx)
	if err != nil {
		return nil, false, err
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
	return &node{store: store, name: name, id: id, before: doc.Before}, lost || have != nil && have.State != id.ID, nil
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
func (n *node) check(ctx context.Context) error {
	doc, _, err := ledger.LoadNode(ctx, n.store, n.name)
	if err != nil {
		return fmt.Errorf("read the node's object: %w", err)
	}
	if doc == nil || doc.State != n.id.ID || doc.Boot != n.id.Boot || doc.Token != n.id.Token {
		return fmt.Errorf("%w: %s no longer names this start of state %s", errNodeTaken, ledger.NodeKey(n.name), n.id.ID)
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
