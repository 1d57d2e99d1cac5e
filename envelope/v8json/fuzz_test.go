package v8json_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"unicode/utf8"

	"celldexport/envelope/v8json"
)

// FuzzAppend: whatever the bytes, the text is valid JSON in UTF-8 without
// needless white space, the same each time, no larger than its units allow,
// and bytes that follow a value change nothing.
func FuzzAppend(f *testing.F) {
	for _, stored := range seeds(f) {
		f.Add(stored)
	}
	decoder := new(v8json.Decoder)
	f.Fuzz(func(t *testing.T, stored []byte) {
		got, ok := decoder.Append(nil, stored)
		again, okAgain := v8json.Append([]byte("before"), stored)
		if ok != okAgain || "before"+string(got) != string(again) {
			t.Fatalf("decoded to %q, then to %q", got, again)
		}
		if !ok {
			return
		}
		if !json.Valid(got) || !utf8.Valid(got) || len(got) > 6*v8json.MaxUnits {
			t.Fatalf("%d bytes that are no good: %.1000q", len(got), got)
		}
		if more, ok := v8json.Append(nil, append(bytes.Clone(stored), "A^\x00\xff"...)); len(stored) < v8json.MaxStored-4 && !ok {
			// A value that ended in a buffer may not be followed by a view.
			t.Fatalf("with more behind it %q does not decode, alone it is %q", stored, got)
		} else if ok && !bytes.Equal(more, got) {
			t.Fatalf("with more behind it %q is %q, alone %q", stored, more, got)
		}
	})
}

// seeds are the stored values of the corpus that are short.
func seeds(f *testing.F) [][]byte {
	var list [][]byte
	files, err := filepath.Glob("testdata/*.jsonl")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		r, err := os.Open(file)
		if err != nil {
			f.Fatal(err)
		}
		defer r.Close()
		for scan := bufio.NewScanner(r); scan.Scan(); {
			var line corpusLine
			if json.Unmarshal(scan.Bytes(), &line) == nil && len(line.Hex) < 400 {
				list = append(list, unhex(f, line.Hex))
			}
		}
	}
	return list
}

func BenchmarkAppend(b *testing.B) {
	object := unhex(b, "ff0f 6f 2202 6964 49f61c 2204 6e616d65 2208 41646120 42796f6e 2204 74616773 41 02 2203 6e6577 2203 766970 24 00 02 2205 73636f7265 4e 0000000000404540 2202 6f6b 54 2204 73656e74 44 0000c07e3d717842 7b 06")
	decoder := new(v8json.Decoder)
	dst, ok := decoder.Append(nil, object)
	if !ok {
		b.Fatal("the object does not decode")
	}
	b.Run("object", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(object)))
		for b.Loop() {
			dst, _ = decoder.Append(dst[:0], object)
		}
	})
	long := append([]byte("\xff\x0f\"\x80\x80\x04"), bytes.Repeat([]byte("text and "), 1<<16)[:1<<16]...)
	b.Run("string", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(long)))
		for b.Loop() {
			dst, _ = decoder.Append(dst[:0], long)
		}
	})
}
