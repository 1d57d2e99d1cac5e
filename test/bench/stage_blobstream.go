package main

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"celldexport/envelope"
	"celldexport/sinks"
	"celldexport/sinks/blobstream"
	"celldexport/sinks/blobstream/discover"
	blobstreampb "celldexport/sinks/blobstream/proto"
	"celldexport/sinks/blobstream/route"
)

// brokerRecords is how many records one operation of a stage with a broker
// sends.
const brokerRecords = 100_000

// blobstreamStage has the blob-stream sink send records to a broker in
// another process; the floor sends the same payloads in batches of the
// sink's size, one after the other, and has the requests made beforehand: it
// writes no JSON, chooses no partition and keeps account of nothing.
func blobstreamStage(ctx context.Context, b *bench) (lines []Line, err error) {
	at, err := startBroker(ctx, "blobstream")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, at.close()) }()
	records, _ := someRecords(brokerRecords)
	sink, err := newBlobstreamSink(at.address)
	if err != nil {
		return nil, err
	}
	connection, err := grpc.NewClient("passthrough:///"+at.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("connect to the broker: %w", err)
	}
	defer connection.Close()
	batches, sent := blobstreamBatches(records)
	c := sinkContest{
		stage: "blobstream", floor: "bare ProduceBatches loop, requests made beforehand", ours: "blob-stream sink", records: records, bytes: sent, waits: true,
		on:   fmt.Sprintf("%d records, %s, 4 partitions, broker in another process", brokerRecords, size(int64(sent))),
		bare: bareBatches(ctx, blobstreampb.NewBrokerServiceClient(connection), batches),
		sink: sink,
	}
	return c.run(ctx, b.effort)
}

// newBlobstreamSink sends to one broker.
func newBlobstreamSink(address string) (sinks.Sink, error) {
	return blobstream.New(blobstream.Config{
		Shape:  route.Shape{Topic: benchTopic, Partitions: 4, Writers: 1},
		Source: discover.Static{{ID: "a", Address: address}},
	})
}

// blobstreamBatches are the records as payloads, a MiB a batch.
func blobstreamBatches(records []envelope.Encoded) (batches []*blobstreampb.ProduceBatchRequest, sent int) {
	var last *blobstreampb.ProduceBatchRequest
	filled := 0
	for i := range records {
		if last == nil || filled >= 1<<20 {
			last, filled = &blobstreampb.ProduceBatchRequest{Topic: benchTopic}, 0
			batches = append(batches, last)
		}
		payload := records[i].AppendJSON(nil)
		last.Records = append(last.Records, &blobstreampb.Record{Payload: payload, EventTsMs: records[i].CommittedAt})
		filled += len(payload)
		sent += len(payload)
	}
	return batches, sent
}

func bareBatches(ctx context.Context, client blobstreampb.BrokerServiceClient, batches []*blobstreampb.ProduceBatchRequest) func() error {
	return func() error {
		for _, batch := range batches {
			request := &blobstreampb.ProduceBatchesRequest{Batches: []*blobstreampb.ProduceBatchRequest{batch}}
			answer, err := client.ProduceBatches(ctx, request)
			if err != nil {
				return fmt.Errorf("send a batch: %w", err)
			}
			if len(answer.Results) != 1 {
				return fmt.Errorf("send a batch: %d results", len(answer.Results))
			}
		}
		return nil
	}
}
