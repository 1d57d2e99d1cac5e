package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/benbjohnson/litestream"
	"github.com/benbjohnson/litestream/file"
	_ "modernc.org/sqlite"
)

// Names of the example.
const (
	scriptName = "shop"
	className  = "Shelf"
	objectName = "aisle 9"
	nodeName   = "node-a"
)

// cellName derives the cell of the example's object as celld does: 16 bytes
// keyed from the name and 16 keyed from those.
func cellName() string {
	key := sha256.Sum256(fmt.Appendf(nil, "cells:v1:%d:%s:%s", len(scriptName), scriptName, className))
	half := func(message []byte) []byte {
		h := hmac.New(sha256.New, key[:])
		h.Write(message)
		return h.Sum(nil)[:16]
	}
	first := half([]byte(objectName))
	return className + ":" + hex.EncodeToString(first) + hex.EncodeToString(half(first))
}

// makeExample replaces the watch and bucket directories below out.
func makeExample(ctx context.Context, script, out string) error {
	watch, bucket := filepath.Join(out, "watch"), filepath.Join(out, "bucket")
	if err := errors.Join(os.RemoveAll(watch), os.RemoveAll(bucket)); err != nil {
		return err
	}
	cell := cellName()
	dir := filepath.Join(watch, cell, "ltx", "e1")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	database := filepath.Join(dir, "db.sqlite")
	if err := record(ctx, database, strings.ReplaceAll(script, "$CELL", cell)); err != nil {
		return err
	}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(database + suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return fillBucket(bucket, cell, levelZero(database))
}

// levelZero is where Litestream puts the files of a database.
func levelZero(database string) string {
	dir, name := filepath.Split(database)
	return filepath.Join(dir, "."+name+"-litestream", "ltx", "0")
}

// record runs the script against a new database that Litestream watches.
func record(ctx context.Context, path, script string) (err error) {
	db, err := sql.Open("sqlite", path+"?_pragma=journal_mode(wal)&_pragma=wal_autocheckpoint(0)")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)

	replica, err := os.MkdirTemp("", "capture-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(replica)) }()
	ls := newLitestream(path, replica)
	sections := strings.Split(script, "\n--! ")
	for i, section := range sections[1:] {
		name, body, _ := strings.Cut(section, "\n")
		if name == "truncate" {
			if err := ls.Checkpoint(ctx, litestream.CheckpointModeTruncate); err != nil {
				return fmt.Errorf("truncate: %w", err)
			}
			continue
		}
		if _, err := db.ExecContext(ctx, body); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if i == 0 { // the first capture takes a database that is there already
			if err := ls.Open(); err != nil {
				return fmt.Errorf("open Litestream: %w", err)
			}
			defer func() { err = errors.Join(err, ls.Close(ctx)) }()
		}
		if err := ls.Sync(ctx); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// newLitestream watches a database and acts only when told to.
func newLitestream(path, replica string) *litestream.DB {
	ls := litestream.NewDB(path)
	ls.MonitorInterval, ls.CheckpointInterval, ls.MinCheckpointPageN = 0, 0, 1<<30
	ls.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	client := file.NewReplicaClient(replica)
	r := litestream.NewReplicaWithClient(ls, client)
	r.MonitorEnabled = false
	client.Replica, ls.Replica = r, r
	return ls
}

// fillBucket writes what a node in bucket posture has uploaded: the captured
// files as they are, the owner, and the deployment.
func fillBucket(bucket, cell, from string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(from, e.Name()))
		if err != nil {
			return err
		}
		if err := put(bucket, "cells/"+cell+"/ltx/e1/0000/"+e.Name(), b); err != nil {
			return err
		}
	}
	prefix := "deploy/" + scriptName + "/v1"
	return errors.Join(
		put(bucket, "cells/"+cell+"/own.json", fmt.Appendf(nil, `{"node":%q,"epoch":1}`, nodeName)),
		put(bucket, "deploy/current.json", fmt.Appendf(nil,
			`{"script_name":%q,"version":"v1","prefix":%q,"rollout":{"percent":100}}`, scriptName, prefix)),
		put(bucket, prefix+"/manifest.json", fmt.Appendf(nil,
			`{"schema_version":1,"version":"v1","script_name":%q,"main_module":"worker.js","do_classes":[%q],"sqlite_classes":[%q],"modules":[]}`,
			scriptName, className, className)),
	)
}

// put writes one object of a bucket that is a directory of plain files.
func put(bucket, key string, b []byte) error {
	path := filepath.Join(bucket, filepath.FromSlash(key))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if !bytes.HasSuffix(b, []byte("\n")) && strings.HasSuffix(key, ".json") {
		b = append(b, '\n')
	}
	return os.WriteFile(path, b, 0o644)
}
