package main

import (
	"context"
	"time"

	"celldexport/internal/config"
	"celldexport/internal/objstore"
)

// connectTimeout bounds one try of a bucket, brokersTimeout that of all
// brokers.
const (
	connectTimeout = 30 * time.Second
	brokersTimeout = 10 * time.Second
)

// connect lists the first object of a bucket.
func connect(ctx context.Context, settings *config.Settings, bucket string) error {
	ctx, stop := context.WithTimeout(ctx, connectTimeout)
	defer stop()
	store, err := objstore.Open(ctx, objstore.Config{URL: bucket, Endpoint: settings.Endpoint, Region: settings.Region})
	if err != nil {
		return err
	}
	for _, err := range store.List(ctx, "", "") {
		return err
	}
	return nil
}
