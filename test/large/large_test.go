package main

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	if spec := os.Getenv(childEnv); spec != "" {
		os.Exit(childMain(spec))
	}
	os.Exit(m.Run())
}

// heapLimit is what an exporter with the budgets of the test may hold: the
// largest heap that a collection left. The fixed part, mostly encoders, is
// about two thirds of it; holding one unit would take twice as much.
const heapLimit = 56 << 20

// TestUnitsLargerThanMemory rewrites a whole database in every way there is,
// with budgets far below its size. The program of this package does the same
// at any size.
func TestUnitsLargerThanMemory(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s, err := newScene(t.Context(), t.TempDir(), self, sizes{database: 48 << 20, page: 4096, row: 1100, queue: 8 << 20, unit: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	err = s.play(t.Context(), units, func(r result) error {
		t.Log(r)
		if r.memory.Live > heapLimit {
			t.Errorf("unit %s: %d MiB were live after a collection, the limit is %d MiB", r.unit, r.memory.Live>>20, heapLimit>>20)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestManyCellsFewFiles exports more cells than files may be open.
func TestManyCellsFewFiles(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s, err := newScene(t.Context(), t.TempDir(), self, sizes{page: 4096, row: 1100, queue: 8 << 20, unit: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	m, err := s.crowd(t.Context(), 250, 64)
	if err != nil {
		t.Error(err)
	}
	t.Logf("250 cells under a limit of 64 open files: peak %d MiB", m.Peak>>20)
}
