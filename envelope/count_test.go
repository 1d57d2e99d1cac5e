package envelope_test

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"celldexport/envelope"
)

func TestCounts(t *testing.T) {
	for _, kind := range []envelope.Kind{
		envelope.KindRows, envelope.KindSnapshot, envelope.KindSnapshotEnd, envelope.KindSchema, envelope.KindLink,
		envelope.KindRecovered, envelope.KindDeleted, envelope.KindWatermark, envelope.KindBulk, envelope.KindGap,
	} {
		for _, origin := range []envelope.Origin{envelope.Live, envelope.Snapshot, envelope.Repair} {
			want := kind != envelope.KindWatermark && kind != envelope.KindRecovered && origin != envelope.Repair
			if got := envelope.Counts(&envelope.Envelope{Origin: origin}, kind); got != want {
				t.Errorf("%s of origin %s counts: %v, want %v", kind, origin, got, want)
			}
		}
	}
}

func TestCounter(t *testing.T) {
	var c envelope.Counter
	add := func(txid uint64, kind envelope.Kind, change ...func(*envelope.Envelope)) {
		t.Helper()
		e := envelope.Envelope{Position: envelope.Position{Epoch: 1, TXID: txid}, Origin: envelope.Live, Fragment: 1, Fragments: 1}
		for _, f := range change {
			f(&e)
		}
		if err := c.Add(&e, kind); err != nil {
			t.Fatal(err)
		}
	}
	second := func(e *envelope.Envelope) { e.Fragment, e.Fragments = 2, 2 }
	add(0, envelope.KindLink)
	add(2, envelope.KindRows)
	add(2, envelope.KindRows, second)
	add(2, envelope.KindBulk)
	add(3, envelope.KindWatermark)
	add(3, envelope.KindRecovered)
	add(3, envelope.KindSnapshot, func(e *envelope.Envelope) { e.Origin = envelope.Repair })
	add(3, envelope.KindSnapshot, func(e *envelope.Envelope) { e.Origin = envelope.Snapshot })
	want := envelope.Counter{Positions: 3, Records: 4, Last: envelope.Position{Epoch: 1, TXID: 3}}
	if c != want {
		t.Errorf("counted %+v, want %+v", c, want)
	}
	through := envelope.Position{Epoch: 1, TXID: 9}
	if diff := cmp.Diff(&envelope.Watermark{Through: through, Commits: 3, Records: 4}, c.Watermark(nil, through)); diff != "" {
		t.Errorf("watermark (-want +got):\n%s", diff)
	}
	if err := c.AddEntry(envelope.Position{Epoch: 1, TXID: 4}, 0); err != nil || c != want {
		t.Errorf("an entry without records is counted: %+v, %v", c, err)
	}
	if err := c.AddEntry(envelope.Position{Epoch: 1, TXID: 2}, 1); err == nil || c != want {
		t.Errorf("an entry before the last is counted: %+v, %v", c, err)
	}
	if err := c.AddEntry(envelope.Position{Epoch: 1, TXID: 4}, 5); err != nil || c.Positions != 4 || c.Records != 9 {
		t.Errorf("counted %+v, %v", c, err)
	}
}

func TestCertified(t *testing.T) {
	at := func(epoch, txid uint64) envelope.Position {
		return envelope.Position{Epoch: epoch, TXID: txid, Commit: txid}
	}
	mark := func(from *envelope.Position, through envelope.Position, commits, records uint64) envelope.Watermark {
		return envelope.Watermark{From: from, Through: through, Commits: commits, Records: records}
	}
	from := func(p envelope.Position) *envelope.Position { return &p }
	type positions = map[uint64]envelope.Position
	// Held: epoch 1 has one record at 0, two at 2, one at 4; epoch 2 one at 5.
	held := []envelope.Position{at(1, 0), at(1, 2), at(1, 2), at(1, 4), at(2, 5)}
	for _, tt := range []struct {
		name  string
		marks []envelope.Watermark
		want  positions
	}{
		{"none", nil, positions{}},
		{"first", []envelope.Watermark{mark(nil, at(1, 2), 2, 3)}, positions{1: at(1, 2)}},
		{"records differ", []envelope.Watermark{mark(nil, at(1, 2), 2, 2)}, positions{}},
		{"positions differ", []envelope.Watermark{mark(nil, at(1, 2), 3, 3)}, positions{}},
		{"through a position without records", []envelope.Watermark{mark(nil, at(1, 3), 2, 3)}, positions{1: at(1, 3)}},
		{"chain", []envelope.Watermark{mark(from(at(1, 2)), at(1, 4), 1, 1), mark(nil, at(1, 2), 2, 3)}, positions{1: at(1, 4)}},
		{"empty stretch", []envelope.Watermark{mark(nil, at(1, 4), 3, 4), mark(from(at(1, 4)), at(1, 9), 0, 0)}, positions{1: at(1, 9)}},
		{"empty stretch that is not", []envelope.Watermark{mark(nil, at(1, 2), 2, 3), mark(from(at(1, 2)), at(1, 9), 0, 0)}, positions{1: at(1, 2)}},
		{"first link missing", []envelope.Watermark{mark(from(at(1, 2)), at(1, 4), 1, 1)}, positions{}},
		{"chain with a hole", []envelope.Watermark{mark(nil, at(1, 0), 1, 1), mark(from(at(1, 2)), at(1, 4), 1, 1)}, positions{1: at(1, 0)}},
		{"invalid link in the middle", []envelope.Watermark{mark(nil, at(1, 0), 1, 1), mark(from(at(1, 0)), at(1, 2), 1, 9), mark(from(at(1, 2)), at(1, 4), 1, 1)}, positions{1: at(1, 0)}},
		{"two firsts, the higher holds", []envelope.Watermark{mark(nil, at(1, 0), 1, 1), mark(nil, at(1, 4), 3, 4)}, positions{1: at(1, 4)}},
		{"a second process counts only its own", []envelope.Watermark{mark(nil, at(1, 2), 2, 3), mark(nil, at(1, 4), 1, 1)}, positions{1: at(1, 2)}},
		{"a step that stays", []envelope.Watermark{mark(nil, at(1, 2), 2, 3), mark(from(at(1, 2)), at(1, 2), 0, 0)}, positions{1: at(1, 2)}},
		{"epochs are independent", []envelope.Watermark{mark(nil, at(2, 5), 1, 1)}, positions{2: at(2, 5)}},
		{"no chain across epochs", []envelope.Watermark{mark(nil, at(1, 4), 3, 4), mark(from(at(1, 4)), at(2, 5), 1, 1)}, positions{1: at(1, 4)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var c envelope.Census
			for _, p := range held {
				c.Add(&envelope.Envelope{Position: p, Origin: envelope.Live, Fragment: 1, Fragments: 1}, envelope.KindRows)
			}
			c.Add(&envelope.Envelope{Position: at(1, 1), Origin: envelope.Repair}, envelope.KindSnapshot)
			for i := range tt.marks {
				c.Mark(&tt.marks[i])
			}
			if got := c.Certified(); !maps.Equal(got, tt.want) {
				t.Errorf("certified %v, want %v", got, tt.want)
			}
		})
	}
}

// What the producer counts is what the consumer finds, wherever watermarks
// are cut; with any record missing, nothing from it on is certified.
func TestProducerAndConsumerCountAlike(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c envelope.Counter
		var census, torn envelope.Census
		var from *envelope.Position
		var last envelope.Position
		entries := rapid.SliceOfN(rapid.Uint64Range(0, 3), 1, 20).Draw(t, "records per position")
		lost := rapid.IntRange(0, len(entries)-1).Draw(t, "lost")
		var before envelope.Position
		for i, n := range entries {
			p := envelope.Position{Epoch: 1, TXID: uint64(i + 1), Commit: uint64(i + 1)}
			e := envelope.Envelope{Position: p, Origin: envelope.Live, Fragment: 1, Fragments: 1}
			for j := range n {
				if err := c.Add(&e, envelope.KindRows); err != nil {
					t.Fatal(err)
				}
				census.Add(&e, envelope.KindRows)
				if i != lost || j > 0 {
					torn.Add(&e, envelope.KindRows)
				}
			}
			if rapid.Bool().Draw(t, "mark") {
				w := c.Watermark(from, p)
				census.Mark(w)
				torn.Mark(w)
				c, from, last = envelope.Counter{}, &p, p
				if i < lost {
					before = p
				}
			}
		}
		if got := census.Certified()[1]; got != last {
			t.Fatalf("certified %s, want %s", got, last)
		}
		if entries[lost] > 0 {
			if got := torn.Certified()[1]; got != before {
				t.Fatalf("without a record of entry %d certified %s, want %s", lost, got, before)
			}
		}
	})
}
