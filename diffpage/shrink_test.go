package diffpage

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// line is one step of a recorded run: a statement, the end of a unit, a flush
// of the shadow, or the end of several units for the base that takes them as one.
type line struct {
	// sql is empty at the end of a unit.
	sql         string
	flush, fold bool
	// seed is what random() and randomblob() of the statement start from, so
	// that a statement does the same when others before it are gone.
	seed uint64
}

func (l line) String() string {
	switch {
	case l.sql != "":
		return l.sql + ";"
	case l.flush:
		return "-- flush"
	case l.fold:
		return "-- end of several units as one"
	}
	return "-- end of a unit"
}

// replay runs a recorded script on a new database under all oracles.
func replay(t testing.TB, f form, script []line) {
	src := f.source(t)
	follow := f.follower(t, src)
	for _, l := range script {
		switch {
		case l.sql != "":
			src.seeded(l.seed)
			src.try(l.sql)
		case l.flush:
			if err := follow.sh.Flush(); err != nil {
				t.Fatal(err)
			}
		case l.fold:
			follow.fold()
		default:
			if !src.conn.AutocommitEnabled() {
				src.try("COMMIT")
			}
			follow.unit()
		}
		if t.Failed() {
			return
		}
	}
}

// shrink drops parts of a script, halves first and single lines last, as long
// as what is left still fails; until nothing can be dropped or time is up.
func shrink[T any](script []T, limit time.Duration, fails func([]T) bool) []T {
	end := time.Now().Add(limit)
	for size := len(script) / 2; size > 0; {
		dropped := false
		for at := 0; at < len(script); {
			if time.Now().After(end) {
				return script
			}
			shorter := slices.Concat(script[:at], script[min(at+size, len(script)):])
			if fails(shorter) {
				script, dropped = shorter, true
			} else {
				at += size
			}
		}
		if size > 1 || !dropped {
			size /= 2
		}
	}
	return script
}

// complaint makes a failed run readable: its form, the shortest script found
// that still fails, and what it says.
func complaint(t testing.TB, f form, script []line, said []string) string {
	alike := func(got []string) bool {
		return len(got) > 0 && got[0][:min(6, len(got[0]))] == said[0][:min(6, len(said[0]))]
	}
	run := func(script []line) []string { return attempt(t, func(t testing.TB) { replay(t, f, script) }) }
	note := "the recorded script does not fail by itself, its end is"
	if again := run(script); alike(again) {
		note = "shortest script that fails"
		script = shrink(script, 40*time.Second, func(s []line) bool { return alike(run(s)) })
		said = run(script)
	} else {
		script = script[max(0, len(script)-200):]
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%v\n%s:\n", f, note)
	for _, l := range script {
		fmt.Fprintln(&b, l)
	}
	for _, s := range said[:min(5, len(said))] {
		fmt.Fprintln(&b, cut(s))
	}
	return b.String()
}

func TestShrink(t *testing.T) {
	script := make([]int, 300)
	for i := range script {
		script[i] = i
	}
	calls := 0
	got := shrink(script, time.Minute, func(s []int) bool {
		calls++
		return slices.Contains(s, 17) && slices.Contains(s, 18) && slices.Contains(s, 250)
	})
	if !slices.Equal(got, []int{17, 18, 250}) || calls > 300 {
		t.Errorf("%v after %d calls", got, calls)
	}
}

// TestComplaint breaks a run on purpose: the report has the statement to
// blame and not much else.
func TestComplaint(t *testing.T) {
	f := form{size: 512, encoding: "UTF-8", secure: "0", lies: "bad"}
	script := []line{{sql: "CREATE TABLE good(a)"}, {sql: "CREATE TABLE bad(id INTEGER PRIMARY KEY, a)"}, {}}
	for i := range uint64(40) {
		script = append(script, line{sql: "INSERT INTO good VALUES(randomblob(20))", seed: i}, line{})
	}
	script = append(script, line{sql: "INSERT INTO bad VALUES(3, random())", seed: 7}, line{sql: "INSERT INTO good VALUES(1)"}, line{}, line{flush: true})
	said := attempt(t, func(t testing.TB) { replay(t, f, script) })
	if len(said) == 0 {
		t.Fatal("a lost event is not noticed")
	}
	got := complaint(t, f, script, said)
	if !strings.Contains(got, "INSERT INTO bad") || strings.Contains(got, "good") || !strings.Contains(got, "1 of 1 changes missing") {
		t.Errorf("%s", got)
	}
}
