package exporter_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"celldexport/internal/objstore"
)

// patience is how long a test waits for something that comes about by itself
// before it gives up. It is long because the disk of a busy machine is slow;
// what holds for ever still fails, and says what it saw.
const patience = 90 * time.Second

// evidenceDir is a directory for what a failed test leaves to be looked at:
// the test's artifacts with -artifacts, else one that nobody removes.
func evidenceDir(t *testing.T) (string, error) {
	if f := flag.Lookup("test.artifacts"); f != nil && f.Value.String() == "true" {
		return t.ArtifactDir(), nil
	}
	return os.MkdirTemp("", strings.ReplaceAll(t.Name(), "/", "-")+"-")
}

// evidence is what a failed test leaves: file names and what is in them.
type evidence map[string]string

// leave writes the evidence below dir.
func (ev evidence) leave(dir string) error {
	for name, text := range ev {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return fmt.Errorf("leave evidence: %w", err)
		}
	}
	return nil
}

// goroutines are the stacks of all goroutines.
func goroutines() string {
	b := make([]byte, 1<<20)
	for {
		n := runtime.Stack(b, true)
		if n < len(b) {
			return string(b[:n])
		}
		b = make([]byte, 2*len(b))
	}
}

// spellJSON is a value as indented JSON.
func spellJSON(v any) string {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// stalled ends a test that waits in vain: it says what its exporters say of
// themselves, and leaves their whole log and what every goroutine does.
func (w *world) stalled(format string, args ...any) {
	w.t.Helper()
	left := evidence{"goroutines.txt": goroutines(), "log.txt": w.log.String()}
	said := fmt.Sprintf(format, args...)
	for name, h := range w.nodes {
		if h.e == nil {
			continue
		}
		state := spellJSON(h.e.Status())
		left["state-"+name+".json"] = state
		said += fmt.Sprintf("\n%s says: %s", name, state)
	}
	dir, err := evidenceDir(w.t)
	if err == nil {
		err = left.leave(dir)
	}
	if err != nil {
		w.t.Error(err)
	}
	w.t.Fatalf("%s\nlog: %s\nmore is in %s", said, tail(w.log.String()), dir)
}

// until waits for something that the exporters do by themselves.
func (w *world) until(what string, done func() bool) {
	w.t.Helper()
	for end := time.Now().Add(patience); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			w.stalled("in vain waited until %s", what)
		}
	}
}

// await is what comes out of a channel. A test that waits for it in vain ends
// with what every goroutine does.
func await[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("%s did not come about; what every goroutine does:\n%s", what, goroutines())
		panic("not reached")
	}
}

// tail is the end of a long log.
func tail(log string) string {
	const most = 8000
	if len(log) > most {
		return "..." + log[len(log)-most:]
	}
	return log
}

// lastWords prints the end of the exporters' log when a test failed otherwise
// than by waiting.
func (w *world) lastWords() {
	if w.t.Failed() && !testing.Verbose() {
		w.t.Logf("the exporters' log:\n%s", tail(w.log.String()))
	}
}

// leave gathers what a fleet that ended badly looks like; its exporters are
// still open.
func (m *model) leave(problems []string) evidence {
	left := evidence{
		"problems.txt": strings.Join(problems, "\n") + "\n", "goroutines.txt": goroutines(),
		"trace.txt": m.trace.String(),
	}
	for _, h := range m.hosts {
		if h.e != nil {
			left["state-"+h.settings.Node+".json"] = spellJSON(h.e.Status())
		}
	}
	var objects bytes.Buffer
	for obj, err := range m.store.List(m.ctx, "", "") {
		if err != nil {
			break
		}
		fmt.Fprintf(&objects, "%s %d %s\n", obj.Key, obj.Size, obj.ETag)
	}
	left["objects.txt"] = objects.String()
	return left
}

// leaveStates copies the nodes' directories and what is in the bucket; the
// exporters are closed.
func (m *model) leaveStates(dir string) error {
	if err := os.CopyFS(filepath.Join(dir, "disks"), os.DirFS(m.dir)); err != nil {
		return fmt.Errorf("leave the nodes' disks: %w", err)
	}
	root := filepath.Join(dir, "bucket")
	if err := os.Mkdir(root, 0o700); err != nil {
		return fmt.Errorf("leave the bucket: %w", err)
	}
	bucket, err := objstore.NewFile(root)
	if err != nil {
		return fmt.Errorf("leave the bucket: %w", err)
	}
	for obj, err := range m.store.List(m.ctx, "", "") {
		if err != nil {
			return fmt.Errorf("leave the bucket: %w", err)
		}
		data, _, err := objstore.ReadAll(m.ctx, m.store, obj.Key, 1<<30)
		if err == nil {
			_, err = objstore.PutBytes(m.ctx, bucket, obj.Key, data, objstore.PutOptions{})
		}
		if err != nil {
			return fmt.Errorf("leave the bucket: %w", err)
		}
	}
	return nil
}
