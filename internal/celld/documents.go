package celld

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// ErrDocument is wrapped by every error about a document of the fleet bucket
// that cannot be read.
var ErrDocument = errors.New("unreadable document")

// Own is cells/<cell>/own.json: who owns a cell.
type Own struct {
	// Node is the owner; "" means released, with the epoch kept.
	Node string
	// Epoch is the number of the ownership.
	Epoch uint64
}

// ParseOwn reads own.json. Both fields are required.
func ParseOwn(b []byte) (Own, error) {
	var d struct {
		Node  *string `json:"node"`
		Epoch *uint64 `json:"epoch"`
	}
	if err := parse(b, &d); err != nil {
		return Own{}, fmt.Errorf("read own.json: %w", err)
	}
	if d.Node == nil || d.Epoch == nil {
		return Own{}, fmt.Errorf("read own.json: node or epoch is missing: %w", ErrDocument)
	}
	return Own{Node: *d.Node, Epoch: *d.Epoch}, nil
}

// Append writes the document as celld does, for tools that stand in for it.
func (o Own) Append(dst []byte) []byte {
	b, _ := json.Marshal(struct { // a struct of a string and a number always marshals
		Node  string `json:"node"`
		Epoch uint64 `json:"epoch"`
	}{o.Node, o.Epoch})
	return append(dst, b...)
}

// Retired is cells/<scope>/ltx/retired.json.
type Retired struct {
	// Below is the first epoch that is kept: the objects of every smaller
	// one have been deleted or are being deleted.
	Below uint64
}

// ParseRetired reads retired.json.
func ParseRetired(b []byte) (Retired, error) {
	var d struct {
		Below *uint64 `json:"retired_below"`
	}
	if err := parse(b, &d); err != nil {
		return Retired{}, fmt.Errorf("read retired.json: %w", err)
	}
	if d.Below == nil {
		return Retired{}, fmt.Errorf("read retired.json: retired_below is missing: %w", ErrDocument)
	}
	return Retired{Below: *d.Below}, nil
}

// controlBucket is the backend that keeps ownership in the bucket.
const controlBucket = "bucket"

// Control is fleet/control.json: where the fleet keeps ownership.
type Control struct {
	Backend string
	// Table names the table of a backend that has one, "" otherwise.
	Table string
}

// ParseControl reads fleet/control.json. A document that names no backend is
// an error: what it means is not for us to guess.
func ParseControl(b []byte) (Control, error) {
	var d struct {
		Backend *string `json:"backend"`
		Table   *string `json:"table"`
	}
	if err := parse(b, &d); err != nil {
		return Control{}, fmt.Errorf("read %s: %w", ControlKey, err)
	}
	if d.Backend == nil || *d.Backend == "" {
		return Control{}, fmt.Errorf("read %s: backend is missing: %w", ControlKey, ErrDocument)
	}
	c := Control{Backend: *d.Backend}
	if d.Table != nil {
		c.Table = *d.Table
	}
	return c, nil
}

// InBucket reports whether ownership is kept in the bucket, so that own.json
// can be believed.
func (c Control) InBucket() bool { return c.Backend == controlBucket }

// Deployment is deploy/current.json or deploy/<script>/current.json: the
// pointer to what is deployed.
type Deployment struct {
	Script string
	// Prefix is where the deployment's manifest and modules are.
	Prefix string
}

// ParseDeployment reads the pointer to a deployment.
func ParseDeployment(b []byte) (Deployment, error) {
	var d struct {
		Script string `json:"script_name"`
		Prefix string `json:"prefix"`
	}
	if err := parse(b, &d); err != nil {
		return Deployment{}, fmt.Errorf("read deployment pointer: %w", err)
	}
	prefix := strings.TrimSuffix(d.Prefix, "/")
	switch {
	case d.Script == "":
		return Deployment{}, fmt.Errorf("read deployment pointer: script_name is missing: %w", ErrDocument)
	case prefix == "" || strings.HasPrefix(prefix, "/"):
		return Deployment{}, fmt.Errorf("read deployment pointer: prefix %q is no key prefix: %w", d.Prefix, ErrDocument)
	}
	return Deployment{Script: d.Script, Prefix: prefix}, nil
}

// Manifest is what the manifest of a deployment says about its script.
type Manifest struct {
	Script string
	// Classes are the Durable Object classes the script implements.
	Classes []string
}

// ParseManifest reads a deployment's manifest.json. A manifest without
// do_classes has no Durable Objects.
func ParseManifest(b []byte) (Manifest, error) {
	var d struct {
		Script  string   `json:"script_name"`
		Classes []string `json:"do_classes"`
	}
	if err := parse(b, &d); err != nil {
		return Manifest{}, fmt.Errorf("read deployment manifest: %w", err)
	}
	if d.Script == "" {
		return Manifest{}, fmt.Errorf("read deployment manifest: script_name is missing: %w", ErrDocument)
	}
	if slices.Contains(d.Classes, "") {
		return Manifest{}, fmt.Errorf("read deployment manifest of %q: empty class name: %w", d.Script, ErrDocument)
	}
	return Manifest{Script: d.Script, Classes: d.Classes}, nil
}

// parse reads one JSON object and nothing after it. Fields that we do not
// know are left alone: celld adds some with every version.
func parse(b []byte, v any) error {
	if b = bytes.TrimSpace(b); len(b) == 0 || b[0] != '{' {
		return fmt.Errorf("not a JSON object: %w", ErrDocument)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	if err := dec.Decode(v); err != nil {
		return fmt.Errorf("%w: %w", ErrDocument, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("data after the JSON object: %w", ErrDocument)
	}
	return nil
}
