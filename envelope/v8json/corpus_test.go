package v8json_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"celldexport/envelope/v8json"
)

// corpusLine is one stored value and what JavaScript says of it.
type corpusLine struct {
	Hex    string
	JSON   *string
	Size   int
	SHA256 string
}

// checkCorpus decodes every line and returns how many there were, and how
// many of them decode.
func checkCorpus(t *testing.T, r io.Reader) (lines, decoded int) {
	t.Helper()
	decoder := new(v8json.Decoder)
	scan := bufio.NewScanner(r)
	scan.Buffer(nil, 64<<20)
	for scan.Scan() {
		lines++
		var line corpusLine
		if err := json.Unmarshal(scan.Bytes(), &line); err != nil {
			t.Fatalf("line %d: %v", lines, err)
		}
		stored, err := hex.DecodeString(line.Hex)
		if err != nil {
			t.Fatalf("line %d: %v", lines, err)
		}
		got, ok := decoder.Append(nil, stored)
		if ok {
			decoded++
		}
		if want, same := line.judge(got, ok); !same {
			t.Errorf("line %d: %s\n got %v %.300s\nwant %.300s", lines, line.Hex[:min(len(line.Hex), 600)], ok, got, want)
		}
	}
	if err := scan.Err(); err != nil {
		t.Fatal(err)
	}
	return lines, decoded
}

func (l *corpusLine) judge(got []byte, ok bool) (want string, same bool) {
	switch {
	case l.JSON != nil:
		return *l.JSON, ok && string(got) == *l.JSON
	case l.SHA256 != "":
		return fmt.Sprintf("%d bytes, SHA-256 %s", l.Size, l.SHA256), ok && fmt.Sprintf("%x", sha256.Sum256(got)) == l.SHA256
	}
	return "not decodable", !ok
}

// TestCorpus holds the decoder to what node said when the corpus was made
// (test/v8corpus).
func TestCorpus(t *testing.T) {
	files, err := filepath.Glob("testdata/*.jsonl")
	if err != nil || len(files) < 2 {
		t.Fatalf("corpus files %v, %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			f, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if lines, decoded := checkCorpus(t, f); lines < 100 || decoded < 50 {
				t.Errorf("%d of %d lines decode", decoded, lines)
			}
		})
	}
}

// TestNode holds the decoder to node itself: thousands of random values, and
// of values with bytes changed, most of which V8 refuses. What it refuses by a
// SyntaxError is left out by the generator, and was so in the corpus: a pattern
// of a regular expression that is none, which this decoder does not judge.
func TestNode(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is not on PATH: random values are not compared with V8, only those of the checked-in corpus")
	}
	seed, count := "7", "3000"
	if s := os.Getenv("V8_SEED"); s != "" {
		seed = s
	}
	if s := os.Getenv("V8_COUNT"); s != "" {
		count = s
	}
	for _, mode := range []string{"random", "broken"} {
		t.Run(mode, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), node, "../../test/v8corpus/generate.js", mode, seed, count)
			var stderr strings.Builder
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v: %s", err, stderr.String())
			}
			lines, decoded := checkCorpus(t, bytes.NewReader(out))
			t.Logf("%d values, %d decode", lines, decoded)
			if lines < 1000 || decoded < lines/10 {
				t.Errorf("%d of %d values decode: too few to say anything", decoded, lines)
			}
		})
	}
}
