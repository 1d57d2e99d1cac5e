package brokertest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	blobstreampb "celldexport/sinks/blobstream/proto"
)

// service is a broker's protocol.
type service struct {
	blobstreampb.UnimplementedBrokerServiceServer
	broker *Broker
}

// ProduceBatches stores the batches of a request, at the same time.
func (s *service) ProduceBatches(ctx context.Context, request *blobstreampb.ProduceBatchesRequest) (*blobstreampb.ProduceBatchesResponse, error) {
	fault := None
	if ask := s.broker.fleet.opt.Fault; ask != nil {
		fault = ask(s.broker.id, request)
	}
	if fault == DropBefore {
		return nil, status.Error(codes.Unavailable, "dropped before it was stored")
	}
	response := &blobstreampb.ProduceBatchesResponse{Results: make([]*blobstreampb.ProduceBatchResponse, len(request.Batches))}
	var work sync.WaitGroup
	for i, b := range request.Batches {
		work.Go(func() {
			if code := rejection(fault, i); code != blobstreampb.ProduceStatus_PRODUCE_STATUS_OK {
				response.Results[i] = &blobstreampb.ProduceBatchResponse{Status: code, ErrorMessage: "as told"}
			} else {
				response.Results[i] = s.accept(b)
			}
		})
	}
	work.Wait()
	switch fault {
	case LoseAnswer:
		return nil, status.Error(codes.Unavailable, "the answer was lost")
	case Hang:
		<-ctx.Done()
		return nil, ctx.Err()
	case TooFew:
		response.Results = response.Results[:len(response.Results)-1]
	}
	return response, nil
}

// rejection is the status that a fault gives batch i.
func rejection(fault Fault, i int) blobstreampb.ProduceStatus {
	switch {
	case fault == Overloaded, fault == Partly && i%2 == 1:
		return blobstreampb.ProduceStatus_PRODUCE_STATUS_OVERLOADED
	case fault == Unknown:
		return blobstreampb.ProduceStatus_PRODUCE_STATUS_UNKNOWN_TOPIC
	case fault == Bad:
		return blobstreampb.ProduceStatus_PRODUCE_STATUS_BAD_REQUEST
	}
	return blobstreampb.ProduceStatus_PRODUCE_STATUS_OK
}

// accept stores one batch: it gets its offsets at once and is durable after
// the next flush.
func (s *service) accept(b *blobstreampb.ProduceBatchRequest) *blobstreampb.ProduceBatchResponse {
	f := s.broker.fleet
	code, why := f.admit(s.broker.id, b)
	if code == blobstreampb.ProduceStatus_PRODUCE_STATUS_OK {
		if err := f.store.append(b, f.opt.FlushDelay); err != nil {
			code, why = blobstreampb.ProduceStatus_PRODUCE_STATUS_OVERLOADED, err.Error()
		}
	}
	return &blobstreampb.ProduceBatchResponse{Status: code, ErrorMessage: why}
}

// ProduceBatch stores one batch.
func (s *service) ProduceBatch(_ context.Context, request *blobstreampb.ProduceBatchRequest) (*blobstreampb.ProduceBatchResponse, error) {
	return s.accept(request), nil
}

// maxRows is how many rows a window may have in one answer.
const maxRows = 10_000

// ReadMetadataWindow tells what was stored in a window.
func (s *service) ReadMetadataWindow(_ context.Context, r *blobstreampb.ReadMetadataWindowRequest) (*blobstreampb.ReadMetadataWindowResponse, error) {
	fail := func(code blobstreampb.MetadataReadFailureStatus, why string) (*blobstreampb.ReadMetadataWindowResponse, error) {
		return &blobstreampb.ReadMetadataWindowResponse{Result: &blobstreampb.ReadMetadataWindowResponse_Failure{
			Failure: &blobstreampb.MetadataReadFailure{Status: code, ErrorMessage: why},
		}}, nil
	}
	bounds, err := coverage(r)
	if err != nil {
		return fail(blobstreampb.MetadataReadFailureStatus_METADATA_READ_FAILURE_STATUS_BAD_REQUEST, err.Error())
	}
	success := &blobstreampb.MetadataReadSuccess{
		ObservedAtUnixMs: time.Now().UnixMilli(), Generation: 1,
		Segments: s.broker.fleet.store.window(r.Topic, r.WindowStartUnixSeconds, bounds),
	}
	if len(success.Segments) > maxRows || (r.MaxResponseBytes > 0 && uint64(proto.Size(success)) > r.MaxResponseBytes) {
		return fail(blobstreampb.MetadataReadFailureStatus_METADATA_READ_FAILURE_STATUS_OVERLOADED, "the window is too large for one answer")
	}
	return &blobstreampb.ReadMetadataWindowResponse{Result: &blobstreampb.ReadMetadataWindowResponse_Success{Success: success}}, nil
}

// maxCoverage is how many partitions one request may ask for.
const maxCoverage = 1024

// coverage is the partitions asked for and the lowest id of each.
func coverage(r *blobstreampb.ReadMetadataWindowRequest) (map[uint32]uint64, error) {
	bounds := map[uint32]uint64{}
	asked := 0
	switch c := r.Coverage.(type) {
	case *blobstreampb.ReadMetadataWindowRequest_Tail:
		for _, b := range c.Tail.PartitionBounds {
			asked++
			bounds[b.VirtualPartitionId] = b.MinSnowflake
		}
	case *blobstreampb.ReadMetadataWindowRequest_FullRecovery:
		for _, vp := range c.FullRecovery.VirtualPartitionIds {
			asked++
			bounds[vp] = 0
		}
	}
	if asked == 0 || asked > maxCoverage || asked != len(bounds) || r.WindowStartUnixSeconds%windowSeconds != 0 {
		return nil, fmt.Errorf("%d partitions of %d asked for, window at %d", len(bounds), asked, r.WindowStartUnixSeconds)
	}
	return bounds, nil
}

// ReadBlobRanges reads pieces of an object.
func (s *service) ReadBlobRanges(_ context.Context, r *blobstreampb.ReadBlobRangesRequest) (*blobstreampb.ReadBlobRangesResponse, error) {
	fail := func(code blobstreampb.BlobReadFailureStatus) (*blobstreampb.ReadBlobRangesResponse, error) {
		return &blobstreampb.ReadBlobRangesResponse{Result: &blobstreampb.ReadBlobRangesResponse_Failure{
			Failure: &blobstreampb.BlobReadFailure{Status: code, ErrorMessage: r.BlobKey},
		}}, nil
	}
	blob, ok := s.broker.fleet.store.blob(r.BlobKey)
	if !ok {
		return fail(blobstreampb.BlobReadFailureStatus_BLOB_READ_FAILURE_STATUS_NOT_FOUND)
	}
	success := &blobstreampb.BlobReadSuccess{}
	for _, g := range r.Ranges {
		if g.Start > g.End || g.End > uint64(len(blob)) {
			return fail(blobstreampb.BlobReadFailureStatus_BLOB_READ_FAILURE_STATUS_BAD_REQUEST)
		}
		success.Ranges = append(success.Ranges, &blobstreampb.BlobRangeResult{Payload: blob[g.Start:g.End]})
	}
	return &blobstreampb.ReadBlobRangesResponse{Result: &blobstreampb.ReadBlobRangesResponse_Success{Success: success}}, nil
}
