package ltxfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/superfly/ltx"
)

// BenchmarkDecode compares Decode with the library's decoder over the same
// file of 1000 pages of 4 KiB: rows of text with a third of the page free.
func BenchmarkDecode(b *testing.B) {
	rng := rand.New(rand.NewPCG(27, 28))
	img := image{Data: map[uint32]string{}}
	const pages, size = 1000, 4096
	for pgno := uint32(1); pgno <= pages; pgno++ {
		page := make([]byte, size)
		for at := 8; at < size*2/3; {
			at += copy(page[at:], fmt.Sprintf("row %d of customer %d: %x;", rng.IntN(1000), rng.IntN(50), rng.Uint32()))
		}
		img.Numbers = append(img.Numbers, pgno)
		img.Data[pgno] = string(page)
	}
	for _, name := range []string{"frame", "block"} {
		file, _ := write(b, increment(size, pages), forms()[name], 0, img)
		r := bytes.NewReader(file)
		b.Run(name+"/ours", func(b *testing.B) {
			b.SetBytes(pages * size)
			b.ReportAllocs()
			for b.Loop() {
				r.Reset(file)
				if _, err := Decode(r, int64(len(file)), func(uint32, []byte) error { return nil }); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/library", func(b *testing.B) {
			b.SetBytes(pages * size)
			b.ReportAllocs()
			data := make([]byte, size)
			for b.Loop() {
				r.Reset(file)
				libraryDecode(b, r, data)
			}
		})
	}
}

func libraryDecode(b *testing.B, r io.Reader, data []byte) {
	dec := ltx.NewDecoder(r)
	dec.SetRetainPageIndex(false)
	if err := dec.DecodeHeader(); err != nil {
		b.Fatal(err)
	}
	for {
		var h ltx.PageHeader
		err := dec.DecodePage(&h, data)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	if err := dec.Close(); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkWrite(b *testing.B) {
	img := randomImage(rand.New(rand.NewPCG(29, 30)), 4096, 1000, true)
	pages := make([][]byte, 0, len(img.Numbers))
	for _, n := range img.Numbers {
		pages = append(pages, []byte(img.Data[n]))
	}
	for _, name := range []string{"frame", "block"} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(pages)) * 4096)
			b.ReportAllocs()
			for b.Loop() {
				w, err := NewWriter(io.Discard, increment(4096, 1000), forms()[name])
				if err != nil {
					b.Fatal(err)
				}
				for i, p := range pages {
					if err := w.WritePage(img.Numbers[i], p); err != nil {
						b.Fatal(err)
					}
				}
				if _, err := w.Close(0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
