package ltxfile

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzDecode holds any input to three properties: a refused file is refused
// as corrupt; a file that is accepted is accepted by the library too, with the
// same pages; and written again in either form it reads as the same content.
func FuzzDecode(f *testing.F) {
	rng := rand.New(rand.NewPCG(25, 26))
	for _, form := range []Form{Frame, Block} {
		img := randomImage(rng, 512, 3, true)
		file, _ := write(f, snapshot(512, 3), form, rolling(img), img)
		f.Add(file)
		file, _ = write(f, increment(512, 9), form, 0, randomImage(rng, 512, 9, false))
		f.Add(file)
	}
	marker, _ := write(f, increment(4096, 70000), Frame, 0, image{})
	f.Add(marker)
	golden, err := os.ReadFile(filepath.Join("..", "..", "..", "shared", "fixtures", "golden-ltx", FileName(2, 2)))
	if err == nil {
		f.Add(golden)
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		info, img, err := read(file)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("refused, but not as corrupt: %v", err)
			}
			return
		}
		lh := ltxHeader(info.Header)
		if lh.Validate() == nil { // it has rules about the log that are none of ours
			_, trailer, want, err := oracle(file)
			if err != nil {
				t.Fatalf("the library refuses what we accept: %v", err)
			}
			if diff := cmp.Diff(want, img); diff != "" || uint64(trailer.FileChecksum) != info.Checksum {
				t.Fatalf("the library reads something else: %s", diff)
			}
		}
		post := info.PostApply
		if info.NoChecksum() {
			post = 0
		}
		for _, form := range []Form{Frame, Block} {
			again, sum := write(t, info.Header, form, post, img)
			got, gotImg, err := read(again)
			if err != nil || got.Header != info.Header || got.Checksum != sum || !cmp.Equal(gotImg, img) {
				t.Fatalf("written again it reads differently: %v", err)
			}
		}
	})
}
