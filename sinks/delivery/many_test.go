package delivery

import (
	"context"
	"testing"

	"celldexport/sinks"
)

// BenchmarkAcknowledge is one acknowledgement of 10,000 streams with one unit
// each, and the watermarks of all of them.
func BenchmarkAcknowledge(b *testing.B) {
	const streams = 10000
	dir := b.TempDir()
	s := openSpool(b, dir+"/spool", Options{})
	e, err := New(Config{Spool: s, Dir: dir, Sinks: []sinks.Sink{&fakeSink{name: "bucket"}}})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	o := e.outlets[0]
	txid := uint64(0)
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		txid++
		for n := range streams {
			u := unit(n, txid)
			mustAdd(b, s, u, rowsRecord(u, "t"))
		}
		syncSpool(b, s)
		b.StartTimer()
		if err := o.post(s.Last()); err != nil {
			b.Fatal(err)
		}
		if n, err := e.certifier.certify(context.Background(), certifying{all: true}); n != streams || err != nil {
			b.Fatal(n, err)
		}
		if err := o.post(s.Last()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(streams*b.N)/b.Elapsed().Seconds(), "streams/s")
}
