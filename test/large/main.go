// Command large exports units that rewrite a whole database, each by an
// exporter in a process of its own, and shows the peak of that process's
// memory. What arrives in the bucket is held against the database by sums over
// rows, so that neither side of the comparison has to fit into memory.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"
)

func main() {
	if spec := os.Getenv(childEnv); spec != "" {
		os.Exit(childMain(spec))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "large:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	set := flag.NewFlagSet("large", flag.ContinueOnError)
	size := set.Int64("mib", 2048, "size of the database in MiB")
	queue := set.Int64("queue-mib", 64, "queue_bytes of the exporter in MiB")
	over := set.Int64("over-mib", 192, "fail when the peak passes queue_bytes by more than this, in MiB")
	dir := set.String("dir", "", "work below this directory, which needs eight times the database's size (default: a temporary one)")
	pageSize := set.Int64("page-size", 4096, "page size of the database in bytes")
	row := set.Int64("row-bytes", 1100, "about what a row takes in the database, in bytes")
	profile := set.String("profile", "", "write heap profiles of the exporter to this file, the last one when most was live")
	cells := set.Int("cells", 0, "export so many small cells instead, under a limit of 256 open files")
	only := set.String("units", "", "only these units after the first, comma-separated: "+strings.Join(unitNames(), " "))
	if err := set.Parse(args); err != nil {
		return err
	}
	work, err := os.MkdirTemp(*dir, "large-")
	if err != nil {
		return fmt.Errorf("make a directory to work in: %w", err)
	}
	defer os.RemoveAll(work)
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	s, err := newScene(ctx, work, self, sizes{
		database: *size << 20, page: *pageSize, row: *row, queue: *queue << 20, unit: 4 << 20, softLimit: (*queue + 128) << 20,
	})
	if err != nil {
		return err
	}
	defer s.close()
	s.profile = *profile
	if *cells > 0 {
		began := time.Now()
		m, err := s.crowd(ctx, *cells, 256)
		if err == nil {
			fmt.Printf("%d cells: peak %d MiB, live %d MiB, %v\n", *cells, m.Peak>>20, m.Live>>20, time.Since(began).Round(time.Second))
		}
		return err
	}
	return s.play(ctx, chosen(*only), func(r result) error {
		fmt.Println(r)
		if limit := (*queue + *over) << 20; r.memory.Peak > limit {
			return fmt.Errorf("unit %s: the exporter took %d MiB, the limit is %d MiB", r.unit, r.memory.Peak>>20, limit>>20)
		}
		return nil
	})
}
