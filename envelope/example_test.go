package envelope_test

import (
	"bytes"
	"fmt"

	"celldexport/envelope"
)

// A record of Go values, written and read back.
func ExampleEncode() {
	r := &envelope.Record{
		Envelope: envelope.Envelope{
			Stream:   envelope.Stream{Script: "shop", Class: "Cart", Cell: "Cart:5f0c", Incarnation: 3},
			Position: envelope.Position{Epoch: 3, TXID: 42, Commit: 42}, CommittedAt: 1790000000000,
			Node: "node-a", Origin: envelope.Live, Fragment: 1, Fragments: 1,
		},
		Body: &envelope.Rows{
			TableGeneration: envelope.TableGeneration{Table: "items", Generation: 1},
			Columns:         []string{"sku", "qty"}, KeyColumns: []string{"sku"},
			Changes: []envelope.RowChange{{
				Op: envelope.Update, Key: []envelope.Value{envelope.Text("A-100")},
				Row: []envelope.Value{envelope.Text("A-100"), envelope.Int(2)},
			}},
		},
	}
	e, err := envelope.Encode(r)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s\n", e.Body)
	back, err := envelope.Decode(e.AppendJSON(nil))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(back.Stream, "at", back.Position)
	// Output:
	// {"kind":"rows","table":"items","generation":1,"columns":["sku","qty"],"key_columns":["sku"],"rows":[["U",["A-100"],["A-100",2]]]}
	// shop/Cart:5f0c@3 at e3:42:42
}

// Rows that are JSON already become a record without Go values.
func ExampleSplitter() {
	env := envelope.Envelope{Stream: envelope.Stream{Script: "shop", Class: "Cart", Cell: "Cart:5f0c"}, Origin: envelope.Live}
	head := envelope.RowsHead{Kind: envelope.KindRows, Table: "items", Generation: 1, Columns: []string{"v"}, KeyColumns: []string{"_rowid_"}}
	s := envelope.NewSplitter(env, head, 350, envelope.SplitOptions{})
	var row []byte
	for i := range int64(4) {
		row = append(row[:0], `["I",[`...)
		row = append(envelope.AppendInt(row, i), `],[`...)
		row = append(envelope.AppendReal(row, float64(i)/2), `]]`...)
		if err := s.Add(row); err != nil {
			fmt.Println(err)
			return
		}
	}
	split, err := s.Finish(func(e *envelope.Encoded) error {
		_, rows, _ := bytes.Cut(e.Body, []byte(`"rows":`))
		fmt.Printf("%d of %d: %s\n", e.Fragment, e.Fragments, rows)
		return nil
	})
	fmt.Println(split.Fragments, split.Rows, split.Bulk, err)
	// Output:
	// 1 of 2: [["I",[0],[0.0]],["I",[1],[0.5]]]}
	// 2 of 2: [["I",[2],[1.0]],["I",[3],[1.5]]]}
	// 2 4 false <nil>
}
