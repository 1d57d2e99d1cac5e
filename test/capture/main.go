// Command capture makes examples/node: a small database that the Litestream
// library captured into LTX files, laid out as a celld node and its bucket
// keep them. None of the code that exports changes has a part in it, so the
// example tests that code with files it did not write.
//
//	go run . -script ../../examples/node/script.sql -out ../../examples/node
//	go run . -dump ../../examples/node
//
// The first form replaces the watch and bucket directories below -out. The
// second prints, per captured file, its txid, its timestamp, the size of the
// database after it and the pages it holds.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	script := flag.String("script", "", "SQL script to run, its captures marked by lines that start with --!")
	out := flag.String("out", "", "directory to make the example in")
	dump := flag.String("dump", "", "directory of an example to print")
	flag.Parse()
	if err := run(context.Background(), os.Stdout, *script, *out, *dump); err != nil {
		fmt.Fprintln(os.Stderr, "capture:", err)
		os.Exit(1)
	}
}

// run does what the flags ask for.
func run(ctx context.Context, w io.Writer, script, out, dump string) error {
	switch {
	case dump != "":
		return printExample(w, dump)
	case script != "" && out != "":
		text, err := os.ReadFile(script)
		if err != nil {
			return err
		}
		return makeExample(ctx, string(text), out)
	}
	return fmt.Errorf("give -script and -out, or -dump")
}
