package exporter_test

import (
	"encoding/base64"
	"strings"
	"testing"
)

// Key-value rows the whole way: views, buffers, shared and cyclic objects,
// user keys that look like tags, values of other formats, rows of another
// scope, a value that is too large to decode, a table of the application's
// own with the name of the storage.
func TestKV01(t *testing.T) {
	t.Parallel()
	p := newTape(t)
	p.h.settings.Export.MaxRecordBytes = 16 << 20
	p.odd = []string{"kv:"} // decoded here by hand, not by the program under test
	var values []string
	var want []string
	add := func(key, value, row string) {
		values = append(values, "('"+p.c.Scope()+"', '"+key+"', "+value+")")
		want = append(want, `["`+key+`"] ["`+key+`",`+row+`]`)
	}
	v8 := func(hex string) string { return "x'ff0f" + hex + "'" }
	json := func(text string) string { return `"` + strings.ReplaceAll(text, `"`, `\"`) + `"` }
	blob := func(b string) string { return `{"$blob":"` + base64.StdEncoding.EncodeToString([]byte(b)) + `"}` }
	add("a view", v8("4204010203045642010200"), json(`{"$bytes":{"base64":"AgM=","type":"Uint8Array"}}`))
	add("b buffer", v8("42020000"), json(`{"$bytes":{"base64":"AAA=","type":"ArrayBuffer"}}`))
	add("c data view", v8("4203000000563f010100"), json(`{"$bytes":{"base64":"AA==","type":"DataView"}}`))
	add("d node buffer", v8("5c0a026869"), json(`{"$bytes":{"base64":"aGk=","type":"Buffer"}}`))
	add("e shared", v8("41026f22017149027b015e01240002"), json(`[{"q":1},{"q":1}]`))
	add("f cycle", v8("6f220473656c665e007b01"), blob("\xff\x0fo\"\x04self^\x00{\x01"))
	add("g user key", v8("6f220524646174652201787b01"), json(`{"$object":{"$date":"x"}}`))
	add("h map", v8("3b6f22016149027b012749022c013a02"), json(`{"$map":[[{"a":1},{"$set":[1]}]]}`))
	add("i regexp", v8("522204615c2f6213"), `"{\"$regexp\":{\"source\":\"a\\\\/b\",\"flags\":\"giu\"}}"`)
	add("j legacy", `' { "a" : [1, "x"] } '`, json(`{"a":[1,"x"]}`))
	add("k broken", `'{"a":'`, blob(`{"a":`))
	add("l integer", `5`, `"5"`)
	add("m real", `CAST(2.5 AS REAL)`, `"2.5"`)
	add("n null", `NULL`, `null`)
	add("o large", `CAST(x'ff0f' || zeroblob(3145728) AS BLOB)`, blob("\xff\x0f"+strings.Repeat("\x00", 3<<20)))
	p.unit(`DROP TABLE _cf_KV`, `CREATE TABLE _cf_KV(scope TEXT, k TEXT, v, PRIMARY KEY(scope, k))`,
		`INSERT INTO _cf_KV VALUES`+strings.Join(values, ",")+`, ('Cart:another', 'a view', 'x')`,
		`CREATE TABLE kv(a)`, `INSERT INTO kv VALUES('mine')`)
	got := p.rows("kv")
	if len(got) != len(want) {
		t.Fatalf("%d rows, want %d", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("got  %.300s\nwant %.300s", got[i], want[i])
		}
	}
	p.wantRows("_cf_SQL_kv", `[1] ["mine"]`)
}
