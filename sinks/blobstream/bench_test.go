package blobstream

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"celldexport/sinks/blobstream/discover"
	blobstreampb "celldexport/sinks/blobstream/proto"
)

// takesAll is a broker that stores nothing and is always content.
type takesAll struct {
	blobstreampb.UnimplementedBrokerServiceServer
}

func (takesAll) ProduceBatches(_ context.Context, r *blobstreampb.ProduceBatchesRequest) (*blobstreampb.ProduceBatchesResponse, error) {
	return allStored(r), nil
}

// BenchmarkProduce compares the sink with a bare loop that sends the same
// records to the same broker in batches of the same size.
func BenchmarkProduce(b *testing.B) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(16 << 20))
	blobstreampb.RegisterBrokerServiceServer(server, takesAll{})
	go server.Serve(listener)
	defer server.Stop()
	address := listener.Addr().String()
	text := strings.Repeat("x", 120)
	entry := func(i int) *given {
		return &given{seq: uint64(i + 1), stream: cell(i % 64), texts: []string{text}}
	}
	b.Run("sink", func(b *testing.B) {
		l := newLine()
		for i := range b.N {
			l.entries = append(l.entries, entry(i))
		}
		l.flush = true
		s, err := New(Config{Shape: testShape, Source: discover.Static{{ID: "a", Address: address}}})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		b.ResetTimer()
		ctx, cancel := context.WithCancel(b.Context())
		l.done = func() { cancel() }
		l.until = uint64(b.N)
		if err := s.Run(ctx, l); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
		st := s.Stats()
		b.SetBytes(st.Bytes / int64(b.N))
		b.ReportMetric(float64(st.Requests), "requests")
		b.ReportMetric(float64(st.Retries), "retries")
	})
	b.Run("bare", func(b *testing.B) {
		p := newPool()
		defer p.close()
		b.ReportAllocs()
		b.ResetTimer()
		size := int64(0)
		for sent := 0; sent < b.N; {
			batch := &blobstreampb.ProduceBatchRequest{Topic: testShape.Topic}
			bytes := 0
			for ; sent < b.N && bytes < 1<<20; sent++ {
				for rec := range entry(sent).Records() {
					payload := rec.AppendJSON(nil)
					bytes += len(payload)
					batch.Records = append(batch.Records, &blobstreampb.Record{Payload: payload, EventTsMs: rec.CommittedAt})
				}
			}
			size += int64(bytes)
			r, err := p.produce(b.Context(), address, &blobstreampb.ProduceBatchesRequest{Batches: []*blobstreampb.ProduceBatchRequest{batch}})
			if err != nil || len(r.Results) != 1 {
				b.Fatal(fmt.Errorf("%w, %v", err, r))
			}
		}
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
		b.SetBytes(size / int64(b.N))
	})
}
