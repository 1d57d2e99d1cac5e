package brokertest

import (
	"math/rand/v2"
	"slices"
	"testing"

	"celldexport/sinks/blobstream/route"
)

// TestPlanVectors holds the fake's own plan to the published values.
func TestPlanVectors(t *testing.T) {
	for text, want := range map[string]uint64{
		"celld-changes\xff\x00\x00\x00\x00broker-a\xff":           0xfa3f02387a34c1d6,
		"celld-changes\xff\x00\x00\x00\x00broker-b\xff":           0xa746ff3e4b57b1a1,
		"telemetry\xff\x00\xf1\x53\x65\x00\x00\x00\x00node-a\xff": 0xf1549ab3a2ab4f1a,
		"topic/blob\xffnode-a\xff":                                0x3d935b8f317bf19c,
	} {
		if got := sip13([]byte(text)); got != want {
			t.Errorf("hash of %q is %x, want %x", text, got, want)
		}
	}
	topic := []Topic{{"celld-changes", 8, 2}}
	for writer, want := range map[uint32]string{0: "acbbacab", 1: "bcabcacb"} {
		plan := owners(topic, writer, []string{"broker-c", "broker-b", "broker-a"})["celld-changes"]
		got := ""
		for vp := range uint32(8) {
			got += plan[writer*8+vp][len("broker-"):]
		}
		if got != want {
			t.Errorf("writer %d: %s, want %s", writer, got, want)
		}
	}
}

// TestPlansAgree holds the two writings of the plan to one another.
func TestPlansAgree(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 9))
	for range 40 {
		var ids []string
		var brokers []route.Broker
		for n := range 1 + r.IntN(7) {
			id := string(rune('a'+r.IntN(26))) + string(rune('0'+n))
			ids = append(ids, id)
			brokers = append(brokers, route.Broker{ID: id, Address: id + ":1"})
		}
		shape := route.Shape{Topic: "t", Partitions: 1 + r.Uint32N(60), Writers: 3, Writer: r.Uint32N(3)}
		theirs := owners([]Topic{{"t", shape.Partitions, 3}}, shape.Writer, ids)["t"]
		ours := route.NewPlan(shape, brokers)
		if len(theirs) != int(shape.Partitions) {
			t.Fatalf("%d of %d partitions have an owner", len(theirs), shape.Partitions)
		}
		for vp, want := range theirs {
			if got, ok := ours.Owner(vp); !ok || got.ID != want {
				t.Fatalf("partition %d of %+v over %v: %v, the broker says %s", vp, shape, slices.Sorted(slices.Values(ids)), got, want)
			}
		}
	}
}
