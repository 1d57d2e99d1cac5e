package main

import (
	"context"
	"strings"

	"github.com/spf13/pflag"

	"celldexport/internal/config"
	"celldexport/internal/objstore"
)

// fleet holds the flags that every verb has: where the fleet's objects are.
type fleet struct {
	bucket, endpoint, region, exportBucket string
}

func (f *fleet) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.bucket, "bucket", "", "fleet bucket, s3://NAME[/PREFIX] or file:///DIR (variable CELLD_BUCKET)")
	flags.StringVar(&f.endpoint, "endpoint", "", "object store's address (variable S3_ENDPOINT)")
	flags.StringVar(&f.region, "region", "", "object store's region (variable AWS_REGION)")
	flags.StringVar(&f.exportBucket, "export-bucket", "", "bucket of the exported objects, when it is another (variable CELLD_EXPORT_BUCKET)")
}

// settings reads the environment as a node does, with the flags over it. It
// leaves out whether the export is on: what only a running exporter needs,
// its directories for one, is not asked for here.
func (f *fleet) settings(environ []string) (*config.Settings, error) {
	var rest []string
	for _, one := range environ {
		if !strings.HasPrefix(one, "CELLD_EXPORT=") {
			rest = append(rest, one)
		}
	}
	settings, _, err := config.Load("", rest,
		config.Flag{Name: "--bucket", Key: "bucket", Value: f.bucket},
		config.Flag{Name: "--endpoint", Key: "endpoint", Value: f.endpoint},
		config.Flag{Name: "--region", Key: "region", Value: f.region},
		config.Flag{Name: "--export-bucket", Key: "export.bucket", Value: f.exportBucket})
	return settings, err
}

// openStore opens a bucket, with retries of what may pass.
func openStore(ctx context.Context, settings *config.Settings, address string) (objstore.Store, error) {
	store, err := objstore.Open(ctx, objstore.Config{URL: address, Endpoint: settings.Endpoint, Region: settings.Region})
	if err != nil {
		return nil, err
	}
	return objstore.WithRetry(store, objstore.RetryPolicy{}), nil
}
