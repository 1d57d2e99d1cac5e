package delivery

import (
	"context"
	"testing"

	"celldexport/envelope"
	"celldexport/sinks"
)

// A pass that spools watermarks may be cut short before the journal knows of
// them, and somebody else's sync shows them to the sink: what is acknowledged
// counts all the same, and the next watermark begins where this one ends.
func TestMarkIsAcknowledgedBeforeItIsKnown(t *testing.T) {
	dir := t.TempDir()
	spool, err := OpenSpool(dir+"/spool", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer spool.Close()
	e, err := New(Config{Spool: spool, Dir: dir, Sinks: []sinks.Sink{&fakeSink{name: "s"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	o := e.outlets[0]
	q := newQueue(e, o)
	var marks []*envelope.Watermark
	// take acknowledges everything that is visible, entry by entry.
	take := func() {
		t.Helper()
		for acked, _ := o.cursor(); acked < spool.Last(); acked, _ = o.cursor() {
			entry, err := q.take()
			if err != nil {
				t.Fatal(err)
			}
			if entry.head.unit.Form == FormWatermark {
				w, err := mark(entry)
				if err != nil {
					t.Fatal(err)
				}
				marks = append(marks, w)
			}
			if err := q.Ack(entry.Seq()); err != nil {
				t.Fatal(err)
			}
		}
	}
	linkOf(t, spool, 1)
	unitOf(t, spool, unit(1, 1), 2)
	take()
	ended, end := context.WithCancel(t.Context())
	end()
	if n, err := e.certifier.some(ended, o, certifying{all: true}); err == nil {
		t.Fatalf("%d watermarks were made known after the end", n)
	}
	unitOf(t, spool, unit(1, 2), 3) // its sync shows the watermark too
	take()
	if _, err := e.certifier.certify(t.Context(), certifying{all: true}); err != nil {
		t.Fatal(err)
	}
	take()
	if len(marks) != 2 || marks[0].From != nil || marks[1].From == nil || *marks[1].From != marks[0].Through {
		t.Fatalf("watermarks %+v do not follow one another", marks)
	}
	if w := marks[1]; w.Records != 3 || w.Commits != 1 || w.Through.TXID != 2 {
		t.Errorf("the second watermark counts %+v, want the 3 records of txid 2", w)
	}
}
