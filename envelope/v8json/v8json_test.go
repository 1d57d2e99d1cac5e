package v8json_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"

	"celldexport/envelope/v8json"
)

// unhex reads hexadecimal digits; spaces are for the reader.
func unhex(t testing.TB, digits string) []byte {
	t.Helper()
	raw, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// no is the expectation of a value that does not decode.
const no = ""

func TestAppend(t *testing.T) {
	cases := []struct{ name, stored, want string }{
		{"view of a part", "ff0f 4204010203045642010200", `{"$bytes":{"base64":"AgM=","type":"Uint8Array"}}`},
		{"buffer", "ff0f 42020000", `{"$bytes":{"base64":"AAA=","type":"ArrayBuffer"}}`},
		{"data view", "ff0f 4203000000563f010100", `{"$bytes":{"base64":"AA==","type":"DataView"}}`},
		{"node buffer", "ff0f 5c0a026869", `{"$bytes":{"base64":"aGk=","type":"Buffer"}}`},
		{"node view of half an element", "ff0f 5c0503010203", `{"$bytes":{"base64":"","type":"Int32Array"}}`},
		{"view off its elements", "ff0f 42 04 01020304 56 57 01 02 00", no},
		{"view of half an element", "ff0f 42 04 01020304 56 57 00 03 00", no},
		{"view beyond its buffer", "ff0f 42 04 01020304 56 42 02 03 00", no},
		{"float16", "ff0f 42020102 5668000200", `{"$bytes":{"base64":"AQI=","type":"Float16Array"}}`},
		{"same object twice", "ff0f 41026f22017149027b015e01240002", `[{"q":1},{"q":1}]`},
		{"cycle", "ff0f 6f220473656c665e007b01", no},
		{"key with dollar", "ff0f 6f220524646174652201787b01", `{"$object":{"$date":"x"}}`},
		{"map and set", "ff0f 3b6f22016149027b012749022c013a02", `{"$map":[[{"a":1},{"$set":[1]}]]}`},
		{"regexp", "ff0f 522204615c2f6213", `{"$regexp":{"source":"a\\/b","flags":"giu"}}`},
		{"regexp that is none", "ff0f 52220128 00", `{"$regexp":{"source":"(","flags":""}}`},
		{"regexp that is none with its flags", "ff0f 5222035c706110", `{"$regexp":{"source":"\\pa","flags":"u"}}`},
		{"regexp with flags of no release", "ff0f 5222016180 08", no},
		{"map key -0", "ff0f 3b 4e0000000000000080 4e0000000000000080 3a02", `{"$map":[[0,{"$number":"-0"}]]}`},
		{"map key twice", "ff0f 3b 4902 30 4904 54 4902 46 3a06", `{"$map":[[1,false],[2,true]]}`},
		{"set member twice", "ff0f 27 220161 6302006100 5e00 5e00 2c04", no},
		{"set string twice", "ff0f 27 220161 530161 4900 2c03", `{"$set":["a",0]}`},
		{"stub", "01 ff0f 4902", `{"$stub":1}`},
		{"stub of a stub", "01 01 ff0f 4902", no},
		{"stub alone", "01", no},
		{"nothing", "", no},
		{"header alone", "ff0f", no},
		{"version 12", "ff0c 30", no},
		{"version 13", "ff0d 30", "null"},
		{"version 14", "ff0e 30", "null"},
		{"version 16", "ff10 30", no},
		{"no header", "30", no},
		{"version 13 view", "ff0d 41 02 4201075642000 1 30 24 00 02", `[{"$bytes":{"base64":"Bw==","type":"Uint8Array"}},null]`},
		{"version 13 view with flags of 14", "ff0d 41 02 42010756420001 00 4902 24 00 02", `[{"$bytes":{"base64":"Bw==","type":"Uint8Array"}},1]`},
		{"version 13 view with other flags", "ff0d 41 02 42010756420001 04 4902 24 00 02", `[{"$bytes":{"base64":"Bw==","type":"Uint8Array"}},1]`},
		{"trailing bytes", "ff0f 30 01020304", "null"},
		{"padding", "ff0f 00 00 41 00 01 00 4902 00 24 00 01", no},
		{"padding before tags", "ff0f 00 00 41 01 00 4902 00 24 00 01", "[1]"},
		{"object count", "ff0f 3f 05 3f 06 30", "null"},
		{"error", "ff0f 72 54 6d 2201 78 73 2201 79 2e", `{"$error":{"name":"TypeError","message":"x"}}`},
		{"error, stack behind cause", "ff0f 72 6d 2201 78 63 30 73 2201 79 2e", `{"$error":{"name":"Error","message":"x"}}`},
		{"error that is its own cause", "ff0f 72 6d 2201 78 73 2201 79 63 5e00 2e", `{"$error":{"name":"Error","message":"x"}}`},
		{"resizable, tracked", "ff0f 7e 05 08 0102030405 56 57 02 02 03", `{"$bytes":{"base64":"AwQ=","type":"Uint16Array"}}`},
		{"resizable above its limit", "ff0f 7e 05 04 0102030405", no},
		{"resizable without its flag", "ff0f 7e 02 04 0102 56 42 00 02 00", no},
		{"array grown by a property", "ff0f 41 01 4902 49 06 54 24 01 01", `[1,{"$undefined":true},{"$undefined":true},true]`},
		{"array hole filled by a property", "ff0f 41 02 2d 4902 2201 30 54 24 01 02", `[true,1]`},
		{"array element again", "ff0f 41 01 4902 2201 30 54 24 01 01", no},
		{"array with a length", "ff0f 41 00 2206 6c656e677468 4902 24 01 00", no},
		{"shared array buffer", "ff0f 7500", no},
		{"transferred buffer", "ff0f 7400", no},
		{"shared object", "ff0f 7000", no},
		{"host object of nobody", "ff0f 5c0e 00", no},
		{"lone surrogate", "ff0f 63 02 00d8", no},
		{"lone surrogate that is not written", "ff0f 41 00 2201 61 63 02 00d8 24 01 00", "[]"},
		{"pair", "ff0f 63 04 3dd8 00de", `"😀"`},
		{"utf8 that is not", "ff0f 53 04 61 e282 62", `"a` + "\uFFFD" + `b"`},
		{"negative zero", "ff0f 5a 01", no},
		{"sparse array of four billion", "ff0f 61 ffffffff0f 40 00 ffffffff0f", no},
		{"-0 in a box", "ff0f 6e 0000000000000080", `{"$number":"-0"}`},
	}
	decoder := new(v8json.Decoder)
	for _, c := range cases {
		got, ok := decoder.Append([]byte("x"), unhex(t, c.stored))
		if ok != (c.want != no) || string(got) != "x"+c.want {
			t.Errorf("%s: %v %s, want %s", c.name, ok, got, c.want)
		}
		again, _ := v8json.Append(nil, unhex(t, c.stored))
		if "x"+string(again) != string(got) {
			t.Errorf("%s: a used decoder gives %s, a new one %s", c.name, got, again)
		}
	}
}

// nested is depth arrays around null, as objects refer to one another.
func nested(depth int) []byte {
	stored := append([]byte{0xff, 0x0f}, bytes.Repeat([]byte("A\x01"), depth)...)
	return append(append(stored, '0'), bytes.Repeat([]byte("$\x00\x01"), depth)...)
}

func TestLimits(t *testing.T) {
	text := func(size int) []byte {
		head := []byte{0xff, 0x0f, '"', byte(size)&0x7f | 0x80, byte(size>>7)&0x7f | 0x80, byte(size >> 14)}
		return append(head, bytes.Repeat([]byte("a"), size)...)
	}
	holes := func(length int) []byte {
		n := []byte{byte(length)&0x7f | 0x80, byte(length>>7)&0x7f | 0x80, byte(length >> 14)}
		return append(append(append([]byte("\xff\x0fa"), n...), '@', 0), n...)
	}
	cases := []struct {
		name   string
		stored []byte
		ok     bool
	}{
		{"2 MiB stored", append(text(1<<20), make([]byte, v8json.MaxStored-(1<<20)-6)...), true},
		{"one byte more", append(text(1<<20), make([]byte, v8json.MaxStored-(1<<20)-5)...), false},
		{"64 Mi units", holes(1<<20 - 1), true},
		{"one hole more", holes(1 << 20), false},
		{"deep", nested(v8json.MaxDepth), true},
		{"too deep", nested(v8json.MaxDepth + 1), false},
		{"all the way down", nested(v8json.MaxStored / 6), false},
	}
	for _, c := range cases {
		got, ok := v8json.Append(nil, c.stored)
		if ok != c.ok || (ok && !json.Valid(got)) {
			t.Errorf("%s: %v, %d bytes", c.name, ok, len(got))
		}
	}
}

// TestDeepByReference nests through references what is shallow as stored.
func TestDeepByReference(t *testing.T) {
	const each = 2000
	stored := []byte{0xff, 0x0f, 'A', 2}
	for _, inner := range []string{"0", "^\x01"} { // the second ends in the first
		stored = append(stored, bytes.Repeat([]byte("A\x01"), each)...)
		stored = append(stored, inner...)
		stored = append(stored, bytes.Repeat([]byte("$\x00\x01"), each)...)
	}
	stored = append(stored, "$\x00\x02"...)
	if _, ok := v8json.Append(nil, stored); ok {
		t.Error("4000 levels were written")
	}
}

// TestSharedDigits writes one large boxed bigint many times: the digits are
// worked out once, and they count each time.
func TestSharedDigits(t *testing.T) {
	size := 20_000
	build := func(times int) []byte {
		stored := append([]byte{0xff, 0x0f, 'A'}, byte(times)&0x7f|0x80, byte(times>>7))
		bits := size << 1
		stored = append(stored, 'z', byte(bits)&0x7f|0x80, byte(bits>>7)&0x7f|0x80, byte(bits>>14))
		stored = append(stored, bytes.Repeat([]byte{0xf7}, size)...)
		stored = append(stored, bytes.Repeat([]byte("^\x01"), times-1)...)
		return append(stored, '$', 0, byte(times)&0x7f|0x80, byte(times>>7))
	}
	got, ok := v8json.Append(nil, build(1000))
	var list []map[string]string
	if err := json.Unmarshal(got, &list); !ok || err != nil || len(list) != 1000 {
		t.Fatalf("%v, %v, %d values", ok, err, len(list))
	}
	for _, v := range list {
		if v["$bigint"] != list[0]["$bigint"] || len(v["$bigint"]) < 48_000 {
			t.Fatalf("a bigint of %d digits, the first has %d", len(v["$bigint"]), len(list[0]["$bigint"]))
		}
	}
	if _, ok := v8json.Append(nil, build(1500)); ok {
		t.Error("1500 times 48,000 digits are more than 64 Mi units")
	}
}

func TestAppendLegacy(t *testing.T) {
	cases := []struct{ text, want string }{
		{` { "b" : [ 1 , 2.50 , 1e3 ] , "a" : null, "b": true } `, `{"b":[1,2.50,1e3],"a":null,"b":true}`},
		{`"\u0041\/\u00e9\ud83d\ude00\n\u000a\u001F\"\\"`, "\"A/é😀\\n\\n\\u001f\\\"\\\\\""},
		{`"\u2028 raw ` + "\u2028" + `"`, "\"\u2028 raw \u2028\""},
		{`12345678901234567890`, `12345678901234567890`},
		{`-0`, `-0`},
		{`"\ud800"`, no},
		{`"\ud800x"`, no},
		{`"\ud800\u0041"`, no},
		{`"\udc00\ud800"`, no},
		{`{"\ud800":1}`, no},
		{`{"a":`, no},
		{``, no},
		{`01`, no},
		{`NaN`, no},
		{"\"\xff\"", no},
		{"\"\n\"", no},
		{"\ufeff1", no},
		{strings.Repeat("[", 20000) + strings.Repeat("]", 20000), no},
	}
	for _, c := range cases {
		got, ok := v8json.AppendLegacy([]byte("x"), []byte(c.text))
		if ok != (c.want != no) || string(got) != "x"+c.want {
			t.Errorf("%.60q: %v %q, want %q", c.text, ok, got, c.want)
		}
	}
}

func FuzzAppendLegacy(f *testing.F) {
	f.Add([]byte(`{"a":["\u0041\ud83d\ude00",1.0]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, ok := v8json.AppendLegacy(nil, text)
		if !ok {
			return
		}
		var before, after any
		if err := json.Unmarshal(text, &before); err != nil {
			return // a number beyond float64
		}
		if err := json.Unmarshal(got, &after); err != nil {
			t.Fatalf("%q became %q: %v", text, got, err)
		}
		a, _ := json.Marshal(before)
		b, _ := json.Marshal(after)
		if !bytes.Equal(a, b) || len(got) > len(text) {
			t.Fatalf("%q became %q", text, got)
		}
		again, ok := v8json.AppendLegacy(nil, got)
		if !ok || !bytes.Equal(again, got) {
			t.Fatalf("%q became %q, then %q", text, got, again)
		}
	})
}
