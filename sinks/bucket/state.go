package bucket

import (
	"encoding/json"
	"fmt"
)

// State is what the sink keeps across restarts, saved before each PUT: the
// newest object and what is in it. As long as that is not acknowledged the
// object is written again, under the same name and with the same records.
type State struct {
	// Key is the object's name.
	Key string `json:"key"`
	// First is where it begins: Records of the entry are in objects before.
	First Mark `json:"first"`
	// Last is where it ends: after Records of the entry, 0 for all of them.
	Last Mark `json:"last"`
	// From is the time in the name of the first object that holds records of
	// the entry that First is in, when that is not this one.
	From int64 `json:"from,omitempty"`
}

// places are the times in the names of the first object that holds records of
// the object's entries, and of the object itself.
func (s State) places() (first, last int64) {
	name, _ := ParseName(s.Key)
	if s.First.Records == 0 {
		return name.Micros, name.Micros
	}
	return s.From, name.Micros
}

// next is From of the object that follows.
func (s State) next() int64 {
	first, last := s.places()
	switch {
	case s.Last.Records == 0:
		return 0
	case s.Last.Entry == s.First.Entry:
		return first
	default:
		return last
	}
}

// Mark is a place between two records of the spool.
type Mark struct {
	// Entry is a number in the spool.
	Entry uint64 `json:"entry"`
	// Records is a number of the entry's records, fragments counted one by
	// one.
	Records int64 `json:"records,omitempty"`
}

// DecodeState reads what the sink saved in its queue; nil is the zero State.
func DecodeState(b []byte) (State, error) {
	var s State
	if b == nil {
		return s, nil
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return s, fmt.Errorf("state of the bucket sink: %w", err)
	}
	if _, ok := ParseName(s.Key); !ok {
		return s, fmt.Errorf("state of the bucket sink: %q is no object name", s.Key)
	}
	return s, nil
}

func (s State) encode() ([]byte, error) {
	b, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("state of the bucket sink: %w", err)
	}
	return b, nil
}
