package envelope_test

import (
	"encoding/base64"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"celldexport/envelope"
)

func TestRealSpelling(t *testing.T) {
	for _, tt := range []struct {
		in   float64
		want string
	}{
		{0, "0.0"},
		{math.Copysign(0, -1), "-0.0"},
		{1, "1.0"},
		{-1, "-1.0"},
		{3.5, "3.5"},
		{0.1, "0.1"},
		{1.0 / 3, "0.3333333333333333"},
		{100, "100.0"},
		{123456789.125, "123456789.125"},
		{1e15, "1000000000000000.0"},
		{1e15 + 0.5, "1000000000000000.5"},
		{9007199254740993, "9007199254740992.0"},
		{math.Nextafter(1e16, 0), "9999999999999998.0"},
		{1e16, "1e+16"},
		{-1e16, "-1e+16"},
		{1.5e16, "1.5e+16"},
		{1.2345678901234566e17, "1.2345678901234566e+17"},
		{1e21, "1e+21"},
		{1e100, "1e+100"},
		{1e300, "1e+300"},
		{math.MaxFloat64, "1.7976931348623157e+308"},
		{1e-4, "0.0001"},
		{1e-5, "0.00001"},
		{1.25e-5, "0.0000125"},
		{math.Nextafter(1e-5, 0), "9.999999999999999e-6"},
		{1e-6, "1e-6"},
		{-1.5e-7, "-1.5e-7"},
		{1e-10, "1e-10"},
		{5e-324, "5e-324"},
		{2.2250738585072014e-308, "2.2250738585072014e-308"},
		{math.Inf(1), `{"$real":"inf"}`},
		{math.Inf(-1), `{"$real":"-inf"}`},
		{math.NaN(), "null"},
	} {
		if got := string(envelope.AppendReal(nil, tt.in)); got != tt.want {
			t.Errorf("%v is spelled %s, want %s", tt.in, got, tt.want)
		}
	}
}

// Whatever the bits, the spelling is a real and reads back as the same bits.
func TestRealRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := math.Float64frombits(rapid.Uint64().Draw(t, "bits"))
		if math.IsNaN(f) || math.IsInf(f, 0) {
			t.Skip("not a value that this property is about")
		}
		text := string(envelope.AppendReal(nil, f))
		back, err := strconv.ParseFloat(text, 64)
		if err != nil || math.Float64bits(back) != math.Float64bits(f) {
			t.Fatalf("%v is spelled %s, which reads as %v (%v)", f, text, back, err)
		}
		if !strings.ContainsAny(text, ".e") {
			t.Fatalf("%s reads as an integer", text)
		}
	})
}

func TestStringSpelling(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"empty", "", `""`},
		{"plain", "abc", `"abc"`},
		{"quote and backslash", `a"b\c`, `"a\"b\\c"`},
		{"slash stays", "a/b", `"a/b"`},
		{"short escapes", "\b\f\n\r\t", `"\b\f\n\r\t"`},
		{"other controls", "\x00\x01\x0b\x1f", `"\u0000\u0001\u000b\u001f"`},
		{"delete stays", "\x7f", "\"\x7f\""},
		{"html stays", "<&>", `"<&>"`},
		{"line separators stay", "\u2028\u2029", "\"\u2028\u2029\""},
		{"astral", "a😀b", `"a😀b"`},
		{"the replacement character itself", "\uFFFD", "\"\uFFFD\""},
		{"one bad byte", "a\xffb", "\"a\uFFFDb\""},
		{"two bad bytes", "\xff\xfe", "\"\uFFFD\uFFFD\""},
		{"truncated sequence is one", "a\xe2\x82", "\"a\uFFFD\""},
		{"truncated four bytes is one", "\xf0\x9f\x98z", "\"\uFFFDz\""},
		{"surrogate is three", "\xed\xa0\x80", "\"\uFFFD\uFFFD\uFFFD\""},
		{"overlong is each byte", "\xc0\xaf", "\"\uFFFD\uFFFD\""},
		{"overlong three is each byte", "\xe0\x80\xaf", "\"\uFFFD\uFFFD\uFFFD\""},
		{"beyond unicode", "\xf4\x90\x80\x80", "\"\uFFFD\uFFFD\uFFFD\uFFFD\""},
		{"overlong four is each byte", "\xf0\x80\x80\x80", "\"\uFFFD\uFFFD\uFFFD\uFFFD\""},
		{"lone continuation", "\x80a", "\"\uFFFDa\""},
		{"lead then lead", "\xe2\xe2\x82\xac", "\"\uFFFD€\""},
		{"bad then escape", "\xe2\x82\"", "\"\uFFFD\\\"\""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := string(envelope.AppendString(nil, tt.in)); got != tt.want {
				t.Errorf("%q is spelled %s, want %s", tt.in, got, tt.want)
			}
		})
	}
}

// Text keeps what it can say and falls back to the stored bytes otherwise.
func TestTextFallsBackToBytes(t *testing.T) {
	for in, want := range map[string]string{
		"a\"é":  `"a\"é"`,
		"":      `""`,
		"a\xff": `{"$blob":"Yf8="}`,
	} {
		got := string(envelope.AppendText([]byte("x"), []byte(in)))
		if got != "x"+want {
			t.Errorf("text %q is spelled %s, want x%s", in, got, want)
		}
		if v := envelope.Text(in).String(); v != want {
			t.Errorf("Text(%q) is %s, want %s", in, v, want)
		}
	}
}

func TestBlobSpelling(t *testing.T) {
	if got := string(envelope.AppendBlob(nil, nil)); got != `{"$blob":""}` {
		t.Errorf("empty blob is spelled %s", got)
	}
	for _, n := range []int{1, 2, 3, 383, 384, 385, 768, 1000} {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(i * 7)
		}
		want := `{"$blob":"` + base64.StdEncoding.EncodeToString(b) + `"}`
		if got := string(envelope.AppendBlob(nil, b)); got != want {
			t.Errorf("blob of %d bytes is spelled %s", n, got)
		}
		if got := envelope.Blob(b).String(); got != want {
			t.Errorf("Blob of %d bytes is %s", n, got)
		}
	}
}

func TestValueAccessors(t *testing.T) {
	for _, tt := range []struct {
		v     envelope.Value
		class envelope.Class
		want  string
	}{
		{envelope.Value{}, envelope.ClassNull, "null"},
		{envelope.Null(), envelope.ClassNull, "null"},
		{envelope.Real(math.NaN()), envelope.ClassNull, "null"},
		{envelope.Int(math.MinInt64), envelope.ClassInteger, "-9223372036854775808"},
		{envelope.Int(math.MaxInt64), envelope.ClassInteger, "9223372036854775807"},
		{envelope.Real(1), envelope.ClassReal, "1.0"},
		{envelope.Text("1"), envelope.ClassText, `"1"`},
		{envelope.Blob([]byte("1")), envelope.ClassBlob, `{"$blob":"MQ=="}`},
	} {
		if tt.v.Class() != tt.class || tt.v.String() != tt.want {
			t.Errorf("class %d and JSON %s, want %d and %s", tt.v.Class(), tt.v, tt.class, tt.want)
		}
	}
	if envelope.Int(7).Int() != 7 || envelope.Int(7).Text() != "" || envelope.Int(7).Blob() != nil || envelope.Int(7).Real() != 0 {
		t.Error("accessors of an integer")
	}
	if envelope.Real(7).Real() != 7 || envelope.Real(7).Int() != 0 {
		t.Error("accessors of a real")
	}
	if envelope.Text("a").Text() != "a" || string(envelope.Blob([]byte("a")).Blob()) != "a" {
		t.Error("accessors of text and blob")
	}
}

func genValue() *rapid.Generator[envelope.Value] {
	return rapid.OneOf(
		rapid.Just(envelope.Null()),
		rapid.Map(rapid.Int64(), envelope.Int),
		rapid.Map(rapid.Int64Range(-2, 2), envelope.Int),
		rapid.Map(rapid.Float64(), envelope.Real),
		rapid.SampledFrom([]envelope.Value{
			envelope.Real(0), envelope.Real(math.Copysign(0, -1)), envelope.Real(1), envelope.Real(math.Inf(1)),
			envelope.Real(math.Inf(-1)), envelope.Real(5e-324), envelope.Text(""), envelope.Blob(nil),
		}),
		rapid.Map(rapid.String(), envelope.Text),
		rapid.Map(rapid.SliceOf(rapid.Byte()), envelope.Blob),
	)
}

// Compare is a total order that agrees with ==, and so does the JSON.
func TestValueOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(genValue(), 3, 3).Draw(t, "values")
		a, b, c := list[0], list[1], list[2]
		if (a == b) != (a.Compare(b) == 0) {
			t.Fatalf("%s and %s: == and Compare differ", a, b)
		}
		if (a == b) != (a.String() == b.String()) {
			t.Fatalf("%s and %s: == and JSON differ", a, b)
		}
		if sign(a.Compare(b)) != -sign(b.Compare(a)) {
			t.Fatalf("%s and %s: Compare is not antisymmetric", a, b)
		}
		if a.Compare(b) <= 0 && b.Compare(c) <= 0 && a.Compare(c) > 0 {
			t.Fatalf("%s, %s, %s: Compare is not transitive", a, b, c)
		}
		if a.Class() < b.Class() && a.Compare(b) >= 0 {
			t.Fatalf("%s and %s: classes do not come first", a, b)
		}
	})
	ascending := []envelope.Value{
		envelope.Null(), envelope.Int(-1), envelope.Int(1), envelope.Real(math.Inf(-1)), envelope.Real(-1),
		envelope.Real(math.Copysign(0, -1)), envelope.Real(0), envelope.Real(5e-324), envelope.Real(math.Inf(1)),
		envelope.Text(""), envelope.Text("a"), envelope.Text("b"), envelope.Blob(nil), envelope.Blob([]byte("a")),
	}
	if !slices.IsSortedFunc(ascending, envelope.Value.Compare) {
		t.Error("the ascending values do not ascend")
	}
}

func sign(n int) int { return min(1, max(-1, n)) }

func TestAppendAllocatesNothing(t *testing.T) {
	text, bad, blob := []byte("Grüße, \"Welt\"\n"), []byte("a\xff"), []byte{0, 255, 1}
	dst := make([]byte, 0, 4096)
	got := testing.AllocsPerRun(100, func() {
		b := envelope.AppendNull(dst)
		b = envelope.AppendInt(b, -123456789)
		b = envelope.AppendReal(b, 3.25e-9)
		b = envelope.AppendText(b, text)
		b = envelope.AppendText(b, bad)
		b = envelope.AppendBlob(b, blob)
		envelope.AppendString(b, "naïve\xff")
	})
	if got != 0 {
		t.Errorf("%v allocations per row, want none", got)
	}
}
