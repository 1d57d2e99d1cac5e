package apply_test

import (
	"fmt"
	"os"

	"celldexport/envelope"
	"celldexport/envelope/apply"
)

// The state of two records, whichever comes first.
func ExampleState() {
	lines := []string{
		`{"script":"shop","class":"Cart","cell":"Cart:1","facet":null,"incarnation":3,"cell_name":null,"epoch":3,"txid":9,"commit":9,"committed_at":1,"node":"n","origin":"live","fragment":1,"fragments":1,"kind":"rows","table":"items","generation":1,"columns":["sku","qty"],"key_columns":["sku"],"rows":[["U",["A"],["A",2]],["D",["B"],["B",1]]]}`,
		`{"script":"shop","class":"Cart","cell":"Cart:1","facet":null,"incarnation":3,"cell_name":null,"epoch":3,"txid":8,"commit":8,"committed_at":1,"node":"n","origin":"live","fragment":1,"fragments":1,"kind":"rows","table":"items","generation":1,"columns":["sku","qty"],"key_columns":["sku"],"rows":[["I",["A"],["A",1]],["I",["B"],["B",1]]]}`,
	}
	state := apply.New()
	for _, line := range lines {
		r, err := envelope.Decode([]byte(line))
		if err == nil {
			err = state.Add(r)
		}
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	if err := state.WriteRows(os.Stdout); err != nil {
		fmt.Println(err)
	}
	// Output:
	// {"script":"shop","class":"Cart","cell":"Cart:1","facet":null,"incarnation":3,"table":"items","generation":1,"columns":["sku","qty"],"key":["A"],"row":["A",2]}
}
