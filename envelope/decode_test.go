package envelope_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"celldexport/envelope"
)

// head is an envelope's fields, to be followed by those of a body.
const head = `{"script":"s","class":"C","cell":"C:1","facet":null,"incarnation":1,"cell_name":null,"epoch":1,"txid":2,"commit":3,"committed_at":4,"node":"n","origin":"live","fragment":1,"fragments":1,`

// rows is a record with the given SQL value in it.
func rowsWith(value string) string {
	return head + `"kind":"rows","table":"t","generation":1,"columns":["a"],"key_columns":["a"],"rows":[["I",[1],[` + value + `]]]}`
}

func TestDecodeAccepts(t *testing.T) {
	deleted := head + `"kind":"deleted"}`
	for _, tt := range []struct{ name, in, want string }{
		{"canonical", deleted, deleted},
		{"white space around", " \t\r\n" + strings.ReplaceAll(deleted, `,"`, " ,\n\"") + "\n", deleted},
		{"kind last and fields in any order",
			`{"reason":"r","to":{"commit":3,"txid":2,"epoch":1},"from":{"epoch":1,"txid":1,"commit":0},"fragments":1,"fragment":1,"origin":"live","node":"n","committed_at":4,"commit":3,"txid":2,"epoch":1,"cell_name":null,"incarnation":1,"facet":null,"cell":"C:1","class":"C","script":"s","kind":"gap"}`,
			head + `"kind":"gap","from":{"epoch":1,"txid":1,"commit":0},"to":{"epoch":1,"txid":2,"commit":3},"reason":"r"}`},
		{"facet and cell_name missing", strings.NewReplacer(`"facet":null,`, "", `"cell_name":null,`, "").Replace(deleted), deleted},
		{"empty facet", strings.Replace(deleted, `"facet":null`, `"facet":""`, 1), deleted},
		{"unknown field", head + `"kind":"deleted","new":{"a":[1,2.5e3,null,true,false,"\u00e9"],"a":1}}`, deleted},
		{"unknown field twice", head + `"kind":"deleted","new":1,"new":2}`, deleted},
		{"a field of another kind", head + `"kind":"deleted","mode":7,"mode":8}`, deleted},
		{"unknown field of 126 arrays", head + `"x":` + strings.Repeat("[", 126) + strings.Repeat("]", 126) + `,"kind":"deleted"}`, deleted},
		{"unknown field of many arrays side by side", head + `"x":[` + strings.Repeat("[],{},", 200) + `[]],"kind":"deleted"}`, deleted},
		{"unknown huge integer", head + `"x":123456789012345678901234567890,"kind":"deleted"}`, deleted},
		{"unknown underflow", head + `"x":1e-400,"kind":"deleted"}`, deleted},
		{"escaped names and text", strings.Replace(head, `"script":"s"`, `"\u0073cript":"\u0073"`, 1) + `"\u006bind":"delete\u0064"}`, deleted},
		{"deleted flags spelled out", head + `"kind":"deleted","subtree":false,"target_facet":null,"target_incarnation":null,"through_incarnation":null}`, deleted},
		{"cells missing", head + `"kind":"recovered","session":"n/1","head":{"epoch":1,"txid":2,"commit":3}}`, head + `"kind":"recovered","session":"n/1","head":{"epoch":1,"txid":2,"commit":3},"cells":0}`},
		{"column defaults", head + `"kind":"schema","table":"t","generation":1,"sql":"","columns":[{"type":"","name":"a","extra":1}],"dropped":false,"renamed_from":null}`,
			head + `"kind":"schema","table":"t","generation":1,"sql":"","columns":[{"name":"a","type":"","pk":0,"not_null":false,"generated":false}]}`},
		{"integer limits", rowsWith("-9223372036854775808"), rowsWith("-9223372036854775808")},
		{"negative zero integer", rowsWith("-0"), rowsWith("0")},
		{"negative zero real", rowsWith("-0.0"), rowsWith("-0.0")},
		{"real without point", rowsWith("1E3"), rowsWith("1000.0")},
		{"real that underflows", rowsWith("-1e-400"), rowsWith("-0.0")},
		{"real past 2^63", rowsWith("9223372036854775808.0"), rowsWith("9.223372036854776e+18")},
		{"surrogate pair", rowsWith(`"\ud83d\ude00"`), rowsWith(`"😀"`)},
		{"escapes", rowsWith(`"\"\\\/\b\f\n\r\t\u0000\u001F"`), rowsWith(`"\"\\/\b\f\n\r\t\u0000\u001f"`)},
		{"blob and infinities", rowsWith(`{"$blob":"AA=="},{ "$real" : "inf" },{"$real":"-inf"}`), rowsWith(`{"$blob":"AA=="},{"$real":"inf"},{"$real":"-inf"}`)},
		{"key and row lengths are not checked", strings.Replace(rowsWith("1,2,3"), `"I",[1]`, `"D",[]`, 1), strings.Replace(rowsWith("1,2,3"), `"I",[1]`, `"D",[]`, 1)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := envelope.Decode([]byte(tt.in))
			if err != nil {
				t.Fatal(err)
			}
			got, err := r.Append(nil)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != tt.want {
				t.Errorf("means %s\nwant  %s", got, tt.want)
			}
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	deleted := head + `"kind":"deleted"}`
	swap := func(old, new string) string {
		if !strings.Contains(deleted, old) {
			t.Fatalf("%q is not in the record", old)
		}
		return strings.Replace(deleted, old, new, 1)
	}
	body := func(fields string) string { return head + fields + "}" }
	cases := map[string]string{
		"nothing":                  "",
		"not an object":            `["rows"]`,
		"byte order mark":          "\uFEFF" + deleted,
		"trailing data":            deleted + "x",
		"two records":              deleted + "\n" + deleted,
		"cut off":                  deleted[:len(deleted)-1],
		"comma at the end":         strings.TrimSuffix(deleted, "}") + ",}",
		"comma at the start":       "{," + deleted[1:],
		"no colon":                 swap(`"epoch":1`, `"epoch" 1`),
		"no comma":                 swap(`"epoch":1,`, `"epoch":1 `),
		"unquoted name":            swap(`"epoch"`, `epoch`),
		"field twice":              swap(`"epoch":1`, `"epoch":1,"epoch":1`),
		"field twice, escaped":     swap(`"epoch":1`, `"epoch":1,"\u0065poch":1`),
		"kind twice":               body(`"kind":"deleted","kind":"deleted"`),
		"unknown kind":             swap(`"deleted"`, `"delete"`),
		"kind as a number":         swap(`"deleted"`, `6`),
		"no kind":                  strings.Replace(deleted, `,"kind":"deleted"`, "", 1),
		"fragment 0":               swap(`"fragment":1`, `"fragment":0`),
		"fragments 0":              swap(`"fragments":1`, `"fragments":0`),
		"fragment past the last":   swap(`"fragment":1`, `"fragment":2`),
		"fragment beyond 32 bits":  swap(`"fragments":1`, `"fragments":4294967296`),
		"unknown origin":           swap(`"live"`, `"dead"`),
		"null script":              swap(`"s"`, `null`),
		"number as text":           swap(`"node":"n"`, `"node":1`),
		"float epoch":              swap(`"epoch":1`, `"epoch":1.0`),
		"exponent epoch":           swap(`"epoch":1`, `"epoch":1e0`),
		"negative epoch":           swap(`"epoch":1`, `"epoch":-1`),
		"epoch beyond 64 bits":     swap(`"epoch":1`, `"epoch":18446744073709551616`),
		"time beyond 64 bits":      swap(`"committed_at":4`, `"committed_at":9223372036854775808`),
		"text epoch":               swap(`"epoch":1`, `"epoch":"1"`),
		"null epoch":               swap(`"epoch":1`, `"epoch":null`),
		"leading zero":             swap(`"epoch":1`, `"epoch":01`),
		"plus sign":                swap(`"epoch":1`, `"epoch":+1`),
		"bad utf-8":                swap(`"s"`, "\"\xff\""),
		"bad utf-8, skipped":       body("\"x\":\"\xc3\",\"kind\":\"deleted\""),
		"lone surrogate":           swap(`"s"`, `"\ud800"`),
		"lone surrogate, skipped":  body(`"x":"\udc00","kind":"deleted"`),
		"surrogates the wrong way": swap(`"s"`, `"\ude00\ud83d"`),
		"surrogate then other":     swap(`"s"`, `"\ud83d\u0041"`),
		"unknown escape":           swap(`"s"`, `"\x41"`),
		"short escape":             swap(`"s"`, `"\u00e"`),
		"raw control character":    swap(`"s"`, "\"\x01\""),
		"raw newline":              swap(`"s"`, "\"\n\""),
		"overflow, skipped":        body(`"x":1e400,"kind":"deleted"`),
		"long overflow, skipped":   body(`"x":` + strings.Repeat("9", 400) + `,"kind":"deleted"`),
		"127 arrays, skipped":      body(`"x":` + strings.Repeat("[", 127) + strings.Repeat("]", 127) + `,"kind":"deleted"`),
		"a million brackets":       body(`"x":` + strings.Repeat("[", 1_000_000)),
		"nan":                      rowsWith("NaN"),
		"hexadecimal":              rowsWith("0x1"),
		"no digits after point":    rowsWith("1."),
		"no digits before point":   rowsWith(".5"),
		"no exponent digits":       rowsWith("1e+"),
		"minus alone":              rowsWith("-"),
		"integer beyond 64 bits":   rowsWith("9223372036854775808"),
		"real overflow":            rowsWith("1e400"),
		"boolean":                  rowsWith("true"),
		"array":                    rowsWith("[1]"),
		"empty object":             rowsWith("{}"),
		"unknown object":           rowsWith(`{"$date":"x"}`),
		"two-key object":           rowsWith(`{"$blob":"","$real":"inf"}`),
		"blob twice":               rowsWith(`{"$blob":"","$blob":""}`),
		"nan payload":              rowsWith(`{"$real":"nan"}`),
		"finite payload":           rowsWith(`{"$real":"1.0"}`),
		"blob number":              rowsWith(`{"$blob":1}`),
		"base64 without padding":   rowsWith(`{"$blob":"AA"}`),
		"base64 with loose bits":   rowsWith(`{"$blob":"AB=="}`),
		"base64 for urls":          rowsWith(`{"$blob":"_-8="}`),
		"base64 with a newline":    rowsWith(`{"$blob":"AA\n=="}`),
		"truth cut short":          body(`"kind":"deleted","subtree":tru`),
		"null flag":                body(`"kind":"deleted","subtree":null`),
		"flag as number":           body(`"kind":"deleted","subtree":1`),
		"flag twice":               body(`"kind":"deleted","subtree":true,"subtree":true`),
		"empty facet path":         body(`"kind":"deleted","target_facet":""`),
		"unknown op":               strings.Replace(rowsWith("1"), `"I"`, `"X"`, 1),
		"two elements":             strings.Replace(rowsWith("1"), `"I",`, ``, 1),
		"four elements":            strings.Replace(rowsWith("1"), `[["I"`, `[["I",[1]`, 1),
		"no elements":              strings.Replace(rowsWith("1"), `["I",[1],[1]]`, `[]`, 1),
		"rows null":                body(`"kind":"rows","table":"t","generation":1,"columns":[],"key_columns":[],"rows":null`),
		"columns of numbers":       body(`"kind":"rows","table":"t","generation":1,"columns":[1],"key_columns":[],"rows":[]`),
		"unknown scope":            body(`"kind":"snapshot_end","snapshot_id":"i","scope":"cell","tables":[],"records":0`),
		"unknown mode":             body(`"kind":"link","start_txid":1,"prev_epoch":null,"prev_txid":null,"mode":"new"`),
		"prev_epoch missing":       body(`"kind":"link","start_txid":1,"prev_txid":null,"mode":"fresh"`),
		"from missing":             body(`"kind":"watermark","through":{"epoch":1,"txid":1,"commit":1},"commits":0,"records":0`),
		"through null":             body(`"kind":"watermark","from":null,"through":null,"commits":0,"records":0`),
		"position cut short":       body(`"kind":"watermark","from":null,"through":{"epoch":1,"txid":1},"commits":0,"records":0`),
		"position field twice":     body(`"kind":"gap","from":{"epoch":1,"epoch":1,"txid":1,"commit":1},"to":{"epoch":1,"txid":1,"commit":1},"reason":""`),
		"column without type":      body(`"kind":"schema","table":"t","generation":1,"sql":"","columns":[{"name":"a"}]`),
		"table without generation": body(`"kind":"bulk","tables":[{"table":"t"}]`),
	}
	for _, field := range []string{`"script":"s",`, `"class":"C",`, `"cell":"C:1",`, `"incarnation":1,`, `"epoch":1,`, `"txid":2,`,
		`"commit":3,`, `"committed_at":4,`, `"node":"n",`, `"origin":"live",`, `"fragment":1,`, `"fragments":1,`} {
		cases["without "+field] = swap(field, "")
	}
	for name, in := range cases {
		t.Run(name, func(t *testing.T) {
			r, err := envelope.Decode([]byte(in))
			if err == nil {
				t.Fatalf("%.300s is taken as %+v", in, r)
			}
			if !errors.Is(err, envelope.ErrMalformed) {
				t.Errorf("error does not wrap ErrMalformed: %v", err)
			}
		})
	}
}

func TestDecodeErrorNamesTheFault(t *testing.T) {
	in := strings.Replace(head, `"fragment":1`, `"fragment":3`, 1) + `"kind":"deleted"}`
	if _, err := envelope.Decode([]byte(in)); err == nil || !strings.Contains(err.Error(), "fragment 3 of 1 is out of range") {
		t.Errorf("error is %v", err)
	}
	if _, err := envelope.Decode([]byte(rowsWith("true"))); err == nil || !strings.Contains(err.Error(), `field "rows": change 0`) {
		t.Errorf("error is %v", err)
	}
}

func TestDecodeBody(t *testing.T) {
	env := envelope.Envelope{Origin: envelope.Live, Fragment: 1, Fragments: 1}
	if r, err := envelope.DecodeBody(env, envelope.KindDeleted, []byte(` {"subtree":true,"kind":"deleted","more":[]} `)); err != nil || !r.Body.(*envelope.Deleted).Subtree {
		t.Errorf("body is read as %+v, %v", r, err)
	}
	for name, in := range map[string]string{
		"other kind":    `{"kind":"bulk","tables":[]}`,
		"no kind":       `{"subtree":true}`,
		"kind twice":    `{"kind":"deleted","kind":"deleted"}`,
		"trailing data": `{"kind":"deleted"}{}`,
		"empty":         ``,
		"field missing": `{"kind":"deleted","subtree":0}`,
	} {
		if _, err := envelope.DecodeBody(env, envelope.KindDeleted, []byte(in)); !errors.Is(err, envelope.ErrMalformed) {
			t.Errorf("%s: error is %v", name, err)
		}
	}
	if _, err := envelope.DecodeBody(envelope.Envelope{Origin: envelope.Live}, envelope.KindDeleted, []byte(`{"kind":"deleted"}`)); !errors.Is(err, envelope.ErrMalformed) {
		t.Errorf("fragment 0 of 0: error is %v", err)
	}
}

// FuzzMalleability holds that a record has one spelling: what is read and
// written again is a fixed point, and nothing read is refused when written.
func FuzzMalleability(f *testing.F) {
	for _, line := range readLines(f, "testdata/examples.jsonl") {
		f.Add(line)
	}
	f.Add([]byte(rowsWith(`1e15,1e16,-0.0,5e-324,{"$real":"-inf"},"\u2028\ud83d\ude00"`)))
	f.Fuzz(func(t *testing.T, in []byte) {
		r, err := envelope.Decode(in)
		if err != nil {
			if !errors.Is(err, envelope.ErrMalformed) {
				t.Fatalf("error does not wrap ErrMalformed: %v", err)
			}
			return
		}
		once, err := r.Append(nil)
		if err != nil {
			t.Fatalf("%s was read but cannot be written: %v", in, err)
		}
		if bytes.ContainsAny(once, "\n\r") {
			t.Fatalf("%q spans lines", once)
		}
		again, err := envelope.Decode(once)
		if err != nil {
			t.Fatalf("%s was written but cannot be read: %v", once, err)
		}
		twice, err := again.Append(nil)
		if err != nil || !slices.Equal(once, twice) {
			t.Fatalf("%s\nis written again as\n%s (%v)", once, twice, err)
		}
		if r.Key() != again.Key() {
			t.Fatalf("%s changes its key", once)
		}
	})
}
