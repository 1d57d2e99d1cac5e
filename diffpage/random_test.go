package diffpage

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
)

// form is what a database is decided to be before its first table.
type form struct {
	size, vacuum, reserved int
	encoding, secure       string
	// memory is the base's, in bytes, which must not change a thing. 0 is the
	// usual.
	memory int64
	// session has SQLite record every unit too, which makes it write a little
	// differently: a table is never emptied by its root alone.
	session bool
	// folds has a second base follow by units that are several of the first's.
	folds bool
	// lies names a table whose first event is hidden from the oracles, to see
	// what they say.
	lies string
}

func (f form) String() string {
	return fmt.Sprintf("page size %d, %d bytes reserved, auto_vacuum %d, %s, secure_delete %s, memory %d", f.size, f.reserved, f.vacuum, f.encoding, f.secure, f.memory)
}

func randomForm(rnd *rand.Rand) form {
	pick := func(options ...string) string { return options[rnd.IntN(len(options))] }
	f := form{
		size:     []int{512, 512, 512, 1024, 1024, 2048, 4096, 4096, 8192, 16384, 32768, 65536}[rnd.IntN(12)],
		vacuum:   rnd.IntN(3),
		reserved: []int{0, 0, 8, 32}[rnd.IntN(4)],
		encoding: pick("UTF-8", "UTF-8", "UTF-16le", "UTF-16be"),
		secure:   pick("0", "1", "fast"),
	}
	f.session = rnd.IntN(2) == 0
	f.folds = rnd.IntN(2) == 0
	f.memory = []int64{0, 0, 64 << 10, 2000, 1}[rnd.IntN(5)]
	return f
}

// source makes an empty database of the form.
func (f form) source(t testing.TB) *source {
	src := newSource(t,
		fmt.Sprintf("PRAGMA page_size=%d", f.size),
		fmt.Sprintf("PRAGMA auto_vacuum=%d", f.vacuum),
		"PRAGMA encoding='"+f.encoding+"'")
	if f.reserved > 0 {
		image := reservedImage(t, f.size, f.reserved)
		image[59] = map[string]byte{"UTF-8": 1, "UTF-16le": 2, "UTF-16be": 3}[f.encoding]
		src.reopen(image)
		src.exec("PRAGMA journal_mode=DELETE", fmt.Sprintf("PRAGMA auto_vacuum=%d", f.vacuum), "VACUUM", "PRAGMA journal_mode=WAL")
	}
	src.exec("PRAGMA secure_delete=" + f.secure)
	src.replaceRandom()
	f.check(t, src)
	return src
}

// check makes sure that the database is of the form.
func (f form) check(t testing.TB, src *source) {
	for pragma, want := range map[string]string{"page_size": strconv.Itoa(f.size), "auto_vacuum": strconv.Itoa(f.vacuum), "encoding": f.encoding} {
		if err := src.query("PRAGMA "+pragma, func(got string) {
			if got != want {
				t.Errorf("%s is %s, want %s", pragma, got, want)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// follower is a base behind the source, with a replica behind it.
func (f form) follower(t testing.TB, src *source) *follower {
	follow := newFollower(t, src)
	if f.memory > 0 {
		WithMemory(f.memory)(follow.base)
	}
	follow.lies = f.lies
	follow.replica = newReplica(t, f.encoding)
	if f.session {
		follow.session = newRecorder(t, src)
	}
	if f.folds {
		follow.slow = newFollower(t, src)
		follow.slow.replica = newReplica(t, f.encoding)
	}
	return follow
}

// score is what the units of many runs came to.
type score struct {
	units, events, changes, replayed, sessions atomic.Int64
	tables, rowids, blind                      atomic.Int64 // of sessions
	folds, folded                              atomic.Int64 // units that were several, events of theirs
	mu                                         sync.Mutex
	done                                       map[string]int
}

func (s *score) add(follow *follower, done map[string]int) {
	s.events.Add(int64(follow.events))
	s.changes.Add(int64(follow.changes))
	s.replayed.Add(int64(follow.replica.applied))
	if r := follow.session; r != nil {
		s.sessions.Add(int64(r.units))
		s.tables.Add(int64(r.tables))
		s.rowids.Add(int64(r.rowids))
		s.blind.Add(int64(r.blind))
	}
	if slow := follow.slow; slow != nil {
		s.folds.Add(int64(slow.folds))
		s.folded.Add(int64(slow.events))
		s.events.Add(int64(slow.events))
		s.changes.Add(int64(slow.changes))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for kind, n := range done {
		s.done[kind] += n
	}
}

// TestRandom follows databases of all forms through random statements. Every
// unit is held against dumps, an owner map made from scratch, a replica that
// gets the events alone, and where it can be one, a session of SQLite. Several
// units as one have to lead where they lead one by one.
// EXPORTD_SOAK_UNITS sets how many units, EXPORTD_SEED the first seed. A run
// that fails is made as short as it can be.
func TestRandom(t *testing.T) {
	units, seed := 3000, rand.Uint64N(1<<32)
	if testing.Short() {
		units = 300
	}
	if v := os.Getenv("EXPORTD_SOAK_UNITS"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			t.Fatal(err)
		}
		units = n
	}
	if v := os.Getenv("EXPORTD_SEED"); v != "" {
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = n
	}
	total := &score{done: make(map[string]int)}
	t.Run("seeds", func(t *testing.T) {
		for done := 0; done < units; seed++ {
			seed, n := seed, min(25, units-done)
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				randomRun(t, seed, n, total)
			})
			done += n
		}
	})
	events, changes := total.events.Load(), total.changes.Load()
	t.Logf("%d units, %d row events, %d true net changes: %.3f; %d events replayed; %d folds of several units, %d events of theirs",
		total.units.Load(), events, changes, float64(events)/float64(changes), total.replayed.Load(), total.folds.Load(), total.folded.Load())
	t.Logf("sessions: %d units, %d changed tables, %d of them without a declared key; %d units that a session could not tell; statements %v",
		total.sessions.Load(), total.tables.Load(), total.rowids.Load(), total.blind.Load(), total.done)
	if events != changes || total.replayed.Load() == 0 || units >= 300 && total.sessions.Load() == 0 ||
		units >= 3000 && (total.tables.Load() == 0 || total.rowids.Load() == 0 || total.folded.Load() == 0) {
		t.Error("the oracles did not see what they are to see")
	}
	for _, kind := range genKinds {
		if units >= 3000 && total.done[kind] == 0 {
			t.Errorf("%d units without a %s", units, kind)
		}
	}
}

func randomRun(t *testing.T, seed uint64, units int, total *score) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	f := randomForm(rnd)
	g := &generator{rnd: rnd, size: f.size, done: make(map[string]int)}
	said := attempt(t, func(t testing.TB) {
		g.src = f.source(t)
		follow := f.follower(t, g.src)
		for n := range units {
			g.unit()
			follow.unit()
			total.units.Add(1)
			if g.rnd.IntN(3) == 0 {
				g.script = append(g.script, line{flush: true})
				if err := follow.sh.Flush(); err != nil {
					t.Fatal(err)
				}
			}
			if follow.slow != nil && (g.rnd.IntN(4) == 0 || n == units-1) {
				g.script = append(g.script, line{fold: true})
				follow.fold()
			}
			if t.Failed() {
				return
			}
		}
		total.add(follow, g.done)
	})
	if len(said) > 0 {
		t.Errorf("EXPORTD_SEED=%d: %s", seed, complaint(t, f, g.script, said))
	}
}

// unit runs the statements of one unit: one transaction or several.
func (g *generator) unit() {
	if g.rnd.IntN(2) == 0 {
		g.run("BEGIN")
	}
	for range 1 + g.rnd.IntN(6) {
		g.op()
	}
	if !g.src.conn.AutocommitEnabled() {
		g.run("COMMIT")
	}
	g.script = append(g.script, line{})
}
