package route

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"celldexport/envelope"
)

// TestKeyHash holds the hash to the values that the brokers' own tests state,
// the last but for the topic's partitions.
func TestKeyHash(t *testing.T) {
	stream := envelope.Stream{Script: "app", Class: "Counter", Cell: "c", Incarnation: 7}
	cases := []struct {
		key  string
		want uint64
		of   uint32
		at   uint32
	}{
		{"", 0xbd60acb658c79e45, 0, 0},
		{"a", 0xbeb9a6bbf61b58b4, 0, 0},
		{"telemetry", 0x082f9fc92c2bb490, 0, 0},
		{"partition-key-177", 0x2555fd88a87d0004, 17, 9},
		{"\x00\x01\x02\x03\xff", 0xcd619664a1386abe, 17, 11},
		{string(stream.Key()), 0x81ace0a0813fd94d, 64, 13},
	}
	for _, c := range cases {
		if got := KeyHash([]byte(c.key)); got != c.want {
			t.Errorf("hash of %q is %x, want %x", c.key, got, c.want)
		}
		if c.of == 0 {
			continue
		}
		for writer := range uint32(3) {
			s := Shape{Topic: "t", Partitions: c.of, Writers: 3, Writer: writer}
			if got := s.Partition([]byte(c.key)); got != c.at+writer*c.of {
				t.Errorf("partition of %q for writer %d is %d, want %d", c.key, writer, got, c.at+writer*c.of)
			}
		}
	}
}

// TestSipPieces: however a text is cut, its hash is the same.
func TestSipPieces(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for size := range 70 {
		text := make([]byte, size)
		for i := range text {
			text[i] = byte(r.Uint32())
		}
		whole := newSip()
		whole.write(text)
		want := whole.sum()
		pieces := newSip()
		for rest := text; len(rest) > 0; {
			n := 1 + r.IntN(len(rest))
			if r.IntN(2) == 0 {
				pieces.text(string(rest[:n]))
			} else {
				pieces.write(rest[:n])
			}
			rest = rest[n:]
		}
		if got := pieces.sum(); got != want {
			t.Fatalf("%d bytes in pieces hash to %x, whole to %x", size, got, want)
		}
	}
}

func TestScore(t *testing.T) {
	for node, want := range map[string]uint64{"broker-a": 0xfa3f02387a34c1d6, "broker-b": 0xa746ff3e4b57b1a1, "broker-c": 0xf08d69723e9ab61f} {
		if got := score("celld-changes", 0, node); got != want {
			t.Errorf("score of %s is %x, want %x", node, got, want)
		}
	}
}

func TestPlan(t *testing.T) {
	brokers := []Broker{{"broker-c", "c:1"}, {"broker-a", "a:1"}, {"broker-b", "b:1"}, {"broker-a", "z:1"}}
	for writer, want := range map[uint32]string{0: "acbbacab", 1: "bcabcacb"} {
		s := Shape{Topic: "celld-changes", Partitions: 8, Writers: 2, Writer: writer}
		p := NewPlan(s, brokers)
		var got strings.Builder
		for i := range s.Partitions {
			b, ok := p.Owner(writer*8 + i)
			if !ok || b.Address != b.ID[7:]+":1" {
				t.Fatalf("owner of %d is %v, %v", writer*8+i, b, ok)
			}
			got.WriteString(b.ID[7:])
		}
		if got.String() != want {
			t.Errorf("writer %d: %s, want %s", writer, got.String(), want)
		}
		for _, foreign := range []uint32{(1 - writer) * 8, 16, 1 << 31} {
			if b, ok := p.Owner(foreign); ok {
				t.Errorf("writer %d: partition %d is owned by %v", writer, foreign, b)
			}
		}
	}
	if _, ok := NewPlan(Shape{Topic: "t", Partitions: 4, Writers: 1}, nil).Owner(0); ok {
		t.Error("no brokers, and yet an owner")
	}
}

// TestPlanIsFair: every broker has as many partitions as the others, give or
// take one, and nobody else's plan would differ.
func TestPlanIsFair(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 30 {
		var brokers []Broker
		for n := range 1 + r.IntN(9) {
			brokers = append(brokers, Broker{ID: string(rune('a' + n)), Address: "h:1"})
		}
		s := Shape{Topic: "t", Partitions: 1 + r.Uint32N(200), Writers: 4, Writer: r.Uint32N(4)}
		p := NewPlan(s, brokers)
		r.Shuffle(len(brokers), func(i, j int) { brokers[i], brokers[j] = brokers[j], brokers[i] })
		other := NewPlan(s, brokers)
		load := map[string]uint32{}
		for i := range s.Partitions {
			b, _ := p.Owner(s.first() + i)
			if o, _ := other.Owner(s.first() + i); o != b {
				t.Fatalf("partition %d: %v or %v", i, b, o)
			}
			load[b.ID]++
		}
		for _, b := range brokers {
			if least := s.Partitions / uint32(len(brokers)); load[b.ID] < least || load[b.ID] > least+1 {
				t.Fatalf("%d partitions over %d brokers: %v", s.Partitions, len(brokers), load)
			}
		}
	}
}

func TestShapeCheck(t *testing.T) {
	good := Shape{Topic: "t", Partitions: 64, Writers: 2, Writer: 1}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*Shape){
		"no topic":      func(s *Shape) { s.Topic = "" },
		"no partitions": func(s *Shape) { s.Partitions = 0 },
		"too many":      func(s *Shape) { s.Partitions = MaxPartitions + 1 },
		"writer 2 of 2": func(s *Shape) { s.Writer = 2 },
		"writer 0 of 0": func(s *Shape) { s.Writer, s.Writers = 0, 0 },
		"32 bits":       func(s *Shape) { s.Partitions, s.Writers = MaxPartitions, 1<<12 },
	} {
		s := good
		change(&s)
		if s.Check() == nil {
			t.Errorf("%s: %+v is accepted", name, s)
		}
	}
}

func BenchmarkPartition(b *testing.B) {
	s := Shape{Topic: "t", Partitions: 64, Writers: 1}
	key := bytes.Repeat([]byte("k"), 60)
	b.ReportAllocs()
	for b.Loop() {
		s.Partition(key)
	}
}
