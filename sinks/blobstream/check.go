package blobstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	blobstreampb "celldexport/sinks/blobstream/proto"
	"celldexport/sinks/blobstream/route"
)

// Answer is how one broker answered.
type Answer struct {
	route.Broker
	// Err is why records could not be sent there, nil when they could.
	Err error
}

// checkTime is how long brokers are looked for.
const checkTime = 8 * time.Second

// Check looks the brokers up and calls each of them with a request that holds
// nothing, so that nothing is stored. Whether a broker goes by the id that it
// is listed with does not show in that: the protocol tells ids only by taking
// records or not. The error is why no brokers are found.
func Check(ctx context.Context, cfg Config) ([]Answer, error) {
	cfg = cfg.withDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	found, err := lookUp(ctx, &cfg)
	if err != nil {
		return nil, err
	}
	connections := newPool()
	defer connections.close()
	answers := make([]Answer, len(found))
	var work sync.WaitGroup
	for i, b := range found {
		work.Go(func() { answers[i] = Answer{b, greet(ctx, &cfg, connections, b)} })
	}
	work.Wait()
	return answers, nil
}

// lookUp is the first list of brokers that is not empty.
func lookUp(ctx context.Context, cfg *Config) ([]broker, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	var found []broker
	why := errors.New("no broker is ready")
	cfg.Source.Watch(ctx, func(list []broker) {
		if len(list) > 0 && found == nil {
			found = list
			cancel()
		}
	}, func(err error) {
		if err != nil {
			why = err
		}
	})
	if found == nil {
		return nil, fmt.Errorf("look for brokers: %w", why)
	}
	return found, nil
}

// greet calls one broker.
func greet(ctx context.Context, cfg *Config, connections *pool, b broker) error {
	ctx, cancel := context.WithTimeout(ctx, cfg.RequestTimeout)
	defer cancel()
	response, err := connections.produce(ctx, b.Address, &blobstreampb.ProduceBatchesRequest{})
	switch {
	case status.Code(err) == codes.Unimplemented:
		return fmt.Errorf("it is no blob-stream broker: %w", err)
	case err != nil:
		return err
	case len(response.GetResults()) != 0:
		return errResults
	}
	return nil
}
