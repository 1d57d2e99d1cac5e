package exporter

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"celldexport/internal/celld"
	"celldexport/internal/ledger"
	"celldexport/internal/objstore"
)

// scripts finds the script that a cell belongs to. Deployments are read when
// first needed and again, at most once per refresh, when a class is unknown. Two
// streams may read them at a time: nothing may be locked during a call outside.
type scripts struct {
	store objstore.Store
	// fixed is the script named in the settings; nothing is read then.
	fixed string
	now   func() time.Time

	current   string
	manifests []celld.Manifest
	read      time.Time
}

const (
	// refreshScripts is how long an unknown class waits for a new reading of
	// the deployments.
	refreshScripts = 30 * time.Second
	// maxManifest bounds a deployment document.
	maxManifest = 16 << 20
)

// find returns the script of a cell. Shared services (class names that start
// with two underscores: D1 databases, KV namespaces) are made for the fleet
// and not for one script, so they go under the fleet's current deployment.
func (s *scripts) find(ctx context.Context, scope celld.Scope) (string, error) {
	if s.fixed != "" {
		return s.fixed, nil
	}
	script, err := s.lookup(scope)
	if err != nil && (s.read.IsZero() || s.now().Sub(s.read) >= refreshScripts) {
		if err := s.load(ctx); err != nil {
			return "", fmt.Errorf("find the script of class %s: %w; set script (EXPORTD_SCRIPT) to name it", scope.Class(), err)
		}
		script, err = s.lookup(scope)
	}
	if err != nil {
		return "", fmt.Errorf("%w; set script (EXPORTD_SCRIPT) to name it", err)
	}
	return script, nil
}

// holds returns an error that wraps ledger.ErrIdentity when a cell that is bound
// to a script belongs to another one by now: its records would go on under a
// name that is not its own. The cell's id tells whom it was made for, and a
// class that moves between scripts has cells of other ids; so neither a
// redeployment nor a class that is deployed no more is such a case. Shared
// services are no script's, whatever is deployed.
func (s *scripts) holds(ctx context.Context, scope celld.Scope, bound string) error {
	if strings.HasPrefix(scope.Class(), "__") || s.fixed == "" && celld.Belongs(bound, scope.Class(), scope.ID()) {
		return nil
	}
	script, err := s.find(ctx, scope)
	if err != nil || script == bound {
		return nil // what cannot be told contradicts nothing
	}
	if s.fixed != "" {
		return fmt.Errorf("%s is exported as script %q and the settings name %q: %w; a stream keeps its script, so set it back (script, EXPORTD_SCRIPT)", scope, bound, script, ledger.ErrIdentity)
	}
	return fmt.Errorf("%s is exported as script %q and its class is deployed as %q: %w; set script (EXPORTD_SCRIPT) to %q to go on", scope, bound, script, ledger.ErrIdentity, bound)
}

func (s *scripts) lookup(scope celld.Scope) (string, error) {
	if strings.HasPrefix(scope.Class(), "__") && s.current != "" {
		return s.current, nil
	}
	return celld.ScriptFor(scope.Class(), scope.ID(), s.manifests)
}

// load reads the pointer and the manifest of every deployment.
func (s *scripts) load(ctx context.Context) error {
	var manifests []celld.Manifest
	current := ""
	for obj, err := range s.store.List(ctx, celld.DeployPrefix, "") {
		if err != nil {
			return fmt.Errorf("list deployments: %w", err)
		}
		script, ok := celld.ParseDeploymentKey(obj.Key)
		if !ok {
			continue
		}
		pointer, manifest, err := s.deployment(ctx, obj.Key)
		if err != nil {
			return err
		}
		if script == "" {
			current = pointer.Script
		}
		manifests = append(manifests, manifest)
	}
	s.current, s.manifests, s.read = current, manifests, s.now()
	return nil
}

func (s *scripts) deployment(ctx context.Context, key string) (celld.Deployment, celld.Manifest, error) {
	data, _, err := objstore.ReadAll(ctx, s.store, key, maxManifest)
	if err != nil {
		return celld.Deployment{}, celld.Manifest{}, fmt.Errorf("read deployment: %w", err)
	}
	pointer, err := celld.ParseDeployment(data)
	if err != nil {
		return pointer, celld.Manifest{}, fmt.Errorf("%s: %w", key, err)
	}
	manifestKey := celld.ManifestKey(pointer.Prefix)
	data, _, err = objstore.ReadAll(ctx, s.store, manifestKey, maxManifest)
	if errors.Is(err, objstore.ErrNotFound) {
		// Deleted with an old version; the pointer still names the script.
		return pointer, celld.Manifest{Script: pointer.Script}, nil
	}
	if err != nil {
		return pointer, celld.Manifest{}, fmt.Errorf("read deployment manifest: %w", err)
	}
	manifest, err := celld.ParseManifest(data)
	if err != nil {
		return pointer, manifest, fmt.Errorf("%s: %w", manifestKey, err)
	}
	return pointer, manifest, nil
}
