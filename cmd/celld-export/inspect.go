package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"celldexport/audit"
	"celldexport/cmd/internal/cli"
	"celldexport/envelope"
)

// inspectOptions are the flags of inspect.
type inspectOptions struct {
	fleet
	audit.Inspection
	summary bool
}

func (a *app) inspectCommand() *cobra.Command {
	var o inspectOptions
	c := &cobra.Command{
		Use:   "inspect [--node NODE [--hour YYYY/MM/DD[/HH]]] [FILTERS] | --file PATH...",
		Short: "Print exported records as JSON lines",
		Long: `inspect prints the records of the bucket sink's objects, one JSON object a
line, with the object's key as "object". It reads from the bucket, in the order
of keys, or from files. With --summary it prints one line for each stream
instead: how many records of which kind, and the first and last position.
When no record is found it says so on stderr and exits 0.
` + exitHelp,
		Example: `  celld-export inspect --bucket s3://fleet --node node-a --hour 2026/11/30/02 --cell Cart:5f0c --summary
  celld-export inspect --file a.parquet --file b.parquet --kind rows`,
		Args: cli.AtMost(0),
		RunE: func(c *cobra.Command, _ []string) error { return a.inspect(c.Context(), &o) },
	}
	flags := c.Flags()
	o.add(flags)
	flags.StringVar(&o.Node, "node", "", "only what this node wrote")
	flags.StringVar(&o.Hour, "hour", "", "only this day or hour in UTC, YYYY/MM/DD or YYYY/MM/DD/HH; needs --node")
	flags.StringVar(&o.After, "after", "", "start behind this object's key")
	flags.IntVar(&o.Objects, "objects", 100, "read at most this many objects")
	flags.StringArrayVar(&o.Files, "file", nil, "read this Parquet file instead of the bucket; may be repeated")
	flags.StringVar(&o.Cell, "cell", "", "only this cell with its facets, or only this facet's scope")
	flags.StringVar(&o.Kind, "kind", "", "only records of this kind")
	flags.StringVar(&o.Origin, "origin", "", "only records of this origin: live, snapshot or repair")
	flags.BoolVar(&o.summary, "summary", false, "print one line for each stream")
	return c
}

func (a *app) inspect(ctx context.Context, o *inspectOptions) error {
	inspector := &audit.Inspector{Decode: a.decode}
	if len(o.Files) == 0 {
		settings, err := o.settings(a.environ)
		if err != nil {
			return err
		}
		address := settings.ExportBucket()
		if address == "" {
			return cli.Usage("inspect: no bucket: give --bucket, --export-bucket or CELLD_BUCKET, or --file")
		}
		if inspector.Store, err = a.open(ctx, settings, address); err != nil {
			return fmt.Errorf("open %s: %w", address, err)
		}
	}
	out := bufio.NewWriterSize(a.stdout, 1<<16)
	done, err := a.print(ctx, inspector, o, out)
	if flushErr := out.Flush(); err == nil && flushErr != nil {
		err = fmt.Errorf("print: %w", flushErr)
	}
	switch {
	case errors.Is(err, audit.ErrUsage):
		return cli.Usage("inspect: %w", err)
	case err != nil && done.Last != "" && len(o.Files) == 0 && !o.summary:
		return fmt.Errorf("inspect: %w; resume with --after %s", err, done.Last)
	case err != nil:
		return fmt.Errorf("inspect: %w", err)
	}
	if done.Records == 0 {
		fmt.Fprintf(a.stderr, "no record found; objects read: %d\n", done.Objects)
	}
	if done.More {
		fmt.Fprintln(a.stderr, "more objects follow; resume with --after "+done.Last)
	}
	return nil
}

// print writes records, or a summary of them. A summary of what was read
// before an error is not printed: it would look complete.
func (a *app) print(ctx context.Context, inspector *audit.Inspector, o *inspectOptions, out *bufio.Writer) (audit.Inspected, error) {
	var summary audit.Summary
	var line []byte
	done, err := inspector.Run(ctx, o.Inspection, func(object string, r *envelope.Encoded) error {
		if o.summary {
			summary.Add(r)
			return nil
		}
		line = append(audit.AppendLine(line[:0], object, r), '\n')
		_, err := out.Write(line)
		return err
	})
	if err != nil || !o.summary {
		return done, err
	}
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	for _, stream := range summary.Streams() {
		if err := encoder.Encode(stream); err != nil {
			return done, fmt.Errorf("print the summary: %w", err)
		}
	}
	return done, nil
}
