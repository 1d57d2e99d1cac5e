package apply_test

import (
	"bytes"
	"math"
	"os"
	"testing"

	"celldexport/envelope"
)

// examples are the worked examples of the format, with the schemas and
// snapshots of tags and log that complete them.
func examples(t *testing.T) []*envelope.Record {
	t.Helper()
	data, err := os.ReadFile("../testdata/examples.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var list []*envelope.Record
	for line := range bytes.Lines(data) {
		r, err := envelope.Decode(line)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, r)
	}
	schema, snapshot := list[1], list[2]
	for _, table := range []struct {
		name         string
		columns, key []string
	}{{"tags", []string{"name", "x"}, []string{"name"}}, {"log", []string{"msg"}, []string{"_rowid_"}}} {
		s := &envelope.Record{Envelope: schema.Envelope, Body: &envelope.Schema{TableGeneration: tg(table.name, 1)}}
		rows := envelope.Rows{TableGeneration: tg(table.name, 1), Columns: table.columns, KeyColumns: table.key}
		id := snapshot.Body.(*envelope.SnapshotRows).SnapshotID
		list = append(list, s, &envelope.Record{Envelope: snapshot.Envelope, Body: &envelope.SnapshotRows{SnapshotID: id, Rows: rows}})
	}
	return list
}

func TestExamplesMean(t *testing.T) {
	list := examples(t)
	const second = 6 // the second fragment of log's rows
	s := build(t, list...)
	if got := s.Certified(root)[4]; got != at(4, 4, 3) {
		t.Errorf("epoch 4 is certified through %s", got)
	}
	var rows bytes.Buffer
	if err := s.WriteRows(&rows); err != nil {
		t.Fatal(err)
	}
	const id = `{"script":"depot","class":"Shelf","cell":"Shelf:a17","facet":null,"incarnation":4,`
	want := id + `"table":"log","generation":1,"columns":["msg"],"key":[1],"row":["a"]}` + "\n" +
		id + `"table":"log","generation":1,"columns":["msg"],"key":[2],"row":["b"]}` + "\n" +
		id + `"table":"tags","generation":1,"columns":["name","x"],"key":["RED"],"row":["RED",-0.0]}` + "\n" +
		id + `"table":"tags","generation":1,"columns":["name","x"],"key":["big"],"row":["big",1e+300]}` + "\n" +
		id + `"table":"tags","generation":1,"columns":["name","x"],"key":["inf"],"row":["inf",{"$real":"inf"}]}` + "\n" +
		id + `"table":"tags","generation":1,"columns":["name","x"],"key":["nil"],"row":["nil",null]}` + "\n" +
		id + `"table":"tags","generation":1,"columns":["name","x"],"key":["raw"],"row":["raw",{"$blob":"AP8="}]}` + "\n"
	if rows.String() != want {
		t.Errorf("rows are\n%swant\n%s", &rows, want)
	}

	torn := build(t, append(list[:second:second], list[second+1:]...)...)
	if got, ok := torn.Certified(root)[4]; ok || torn.Pending() != 1 {
		t.Errorf("without the second fragment epoch 4 is certified through %s", got)
	}
}

// The gaps that the later examples open, and what makes them good.
func TestExampleGaps(t *testing.T) {
	list := examples(t)
	const link = "link at e5:10:0 bound 4:9 certified 4"
	const unknown = "recovered at e5:11:18446744073709551615 bound 5:11"
	if got := gapLines(t, build(t, list...)); got != link+"; "+unknown {
		t.Errorf("gaps are %q", got)
	}
	// With epoch 5 certified past what recovery saved, what it lost is the
	// consumer's surplus.
	list = append(list, certify(at(5, 12, 4), 2, 2))
	const loss = "recovered at e5:11:18446744073709551615 bound 5:12 certified 12"
	if got := gapLines(t, build(t, list...)); got != link+"; "+loss {
		t.Errorf("gaps are %q", got)
	}
	for _, p := range []envelope.Position{at(4, 9, math.MaxUint64), at(5, 10, 3)} {
		end := rec(p, endBody("repair", envelope.ScopeStream, 0), by(envelope.Repair))
		if got := gapLines(t, build(t, append(list, end)...)); got != loss {
			t.Errorf("after a snapshot at %s gaps are %q", p, got)
		}
	}
}

func TestExampleFacetDelete(t *testing.T) {
	const path = "facets/0123456789abcdef0123456789abcdef"
	const bound = 5497558139000
	list := examples(t)
	visible := map[envelope.Stream]bool{
		withFacet(root, path, bound):                                        false,
		withFacet(root, path, bound+1):                                      true,
		withFacet(root, path+"/facets/fedcba9876543210fedcba9876543210", 1): false,
		withFacet(root, path+"0", 1):                                        true,
	}
	for s := range visible {
		list = append(list, rec(at(5, 99, 99), rowsBody(tg("a", 1), "I x 1"), on(s)))
	}
	state := build(t, list...)
	for s, want := range visible {
		if _, got := state.Summary(s); got != want {
			t.Errorf("%s is visible: %v, want %v", s, got, want)
		}
	}
}

func TestFingerprint(t *testing.T) {
	print := func(records ...*envelope.Record) string { return build(t, records...).Fingerprint(root) }
	one := rec(at(1, 1, 1), rowsBody(tg("a", 1), "I x 1"))
	seen := map[string]string{}
	for name, got := range map[string]string{
		"nothing":            print(),
		"a row":              print(one),
		"another value":      print(rec(at(1, 1, 1), rowsBody(tg("a", 1), "I x 2"))),
		"another key":        print(rec(at(1, 1, 1), rowsBody(tg("a", 1), "I y 1"))),
		"another table":      print(rec(at(1, 1, 1), rowsBody(tg("b", 1), "I x 1"))),
		"another generation": print(rec(at(1, 1, 1), rowsBody(tg("a", 2), "I x 1"))),
		"an empty table":     print(rec(at(1, 1, 1), rowsBody(tg("a", 1), "D x"))),
	} {
		if other, ok := seen[got]; ok {
			t.Errorf("%s and %s have the same fingerprint", name, other)
		}
		seen[got] = name
	}
	// Neither the way to a state nor the stream's name matters.
	long := print(one, rec(at(1, 2, 2), rowsBody(tg("a", 1), "U x 3", "I y 1")), rec(at(1, 3, 3), rowsBody(tg("a", 1), "U x 1", "D y")))
	elsewhere := build(t, rec(at(1, 1, 1), rowsBody(tg("a", 1), "I x 1"), on(facet))).Fingerprint(facet)
	if want := print(one); long != want || elsewhere != want {
		t.Errorf("fingerprints of equal rows are %s, %s and %s", want, long, elsewhere)
	}
}
