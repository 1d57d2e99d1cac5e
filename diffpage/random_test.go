package diffpage

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
)

// generator writes random SQL against tables it remembers.
type generator struct {
	rnd    *rand.Rand
	src    *source
	tables []*genTable
	made   int
	vacuum int // auto_vacuum mode
	log    []string
}

type genTable struct {
	name string
	kind int
	cols []string // that can be written besides the key
}

// The kinds of tables, by the column definitions of their keys.
var genKeys = []string{
	"id INTEGER PRIMARY KEY",
	"id",
	"id INTEGER PRIMARY KEY AUTOINCREMENT",
	"id INTEGER PRIMARY KEY DESC",
	"id TEXT PRIMARY KEY",
	"id INT PRIMARY KEY",
	"id PRIMARY KEY",
	"id TEXT COLLATE NOCASE PRIMARY KEY",
}

func (g *generator) run(q string) {
	if len(g.log) > 400 {
		g.log = g.log[200:]
	}
	if g.src.try(q) {
		g.log = append(g.log, q)
	}
}

func (g *generator) pick(options ...string) string { return options[g.rnd.IntN(len(options))] }

func (g *generator) create() {
	g.made++
	t := &genTable{name: fmt.Sprintf("t%d", g.made), kind: g.rnd.IntN(len(genKeys))}
	if len(g.tables) > 0 && g.rnd.IntN(3) == 0 {
		t.name = g.tables[g.rnd.IntN(len(g.tables))].name + "x"
	}
	defs := []string{genKeys[t.kind], "a " + g.pick("", "INT", "REAL", "TEXT", "BLOB", "NUMERIC"), "b"}
	t.cols = []string{"a", "b"}
	if g.rnd.IntN(4) == 0 {
		defs = append(defs, "v AS (a+1)", "s AS (b||'s') STORED", "z REAL")
		t.cols = append(t.cols, "z")
	}
	tail := ""
	if t.kind >= 4 && g.rnd.IntN(2) == 0 {
		tail = " WITHOUT ROWID"
		if g.rnd.IntN(3) == 0 {
			defs[0] = "id TEXT"
			defs = append(defs, "PRIMARY KEY(b,id)")
		}
	}
	q := "CREATE TABLE " + t.name + "(" + strings.Join(defs, ",") + ")" + tail
	if !g.src.try(q) {
		return
	}
	g.log = append(g.log, q)
	g.tables = append(g.tables, t)
	if g.rnd.IntN(3) == 0 {
		g.run(fmt.Sprintf("CREATE %s INDEX i%d ON %s(%s)", g.pick("", "UNIQUE"), g.made, t.name, g.pick("a", "b,a")))
	}
}

func (g *generator) value() string {
	switch g.rnd.IntN(9) {
	case 0:
		return "NULL"
	case 1:
		return strconv.Itoa(g.rnd.IntN(300) - 20)
	case 2:
		return fmt.Sprint(g.rnd.Int64() - g.rnd.Int64())
	case 3:
		return fmt.Sprintf("%d.0", g.rnd.IntN(50))
	case 4:
		return fmt.Sprint(g.rnd.NormFloat64())
	case 5:
		return fmt.Sprintf("'%s%d'", g.pick("a", "A", "é", ""), g.rnd.IntN(100))
	case 6:
		return fmt.Sprintf("zeroblob(%d)", g.rnd.IntN(6000))
	}
	return g.long()
}

func (g *generator) long() string {
	n := g.rnd.IntN(60)
	switch g.rnd.IntN(6) {
	case 0:
		n = g.rnd.IntN(1500)
	case 1:
		n = g.rnd.IntN(2000)
	}
	if g.rnd.IntN(2) == 0 {
		return fmt.Sprintf("randomblob(%d)", n)
	}
	return fmt.Sprintf("hex(randomblob(%d))", n/2)
}

func (g *generator) where() string {
	switch g.rnd.IntN(5) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf(" WHERE rowid %% %d = 0", 2+g.rnd.IntN(9))
	case 2:
		return fmt.Sprintf(" WHERE b IN (SELECT b FROM %s LIMIT %d)", g.table().name, 1+g.rnd.IntN(4))
	case 3:
		return fmt.Sprintf(" WHERE id %s %d", g.pick("<", ">", "="), g.rnd.IntN(200))
	}
	return fmt.Sprintf(" WHERE id > 'k%d' AND id < 'k%d'", g.rnd.IntN(99), g.rnd.IntN(99))
}

func (g *generator) table() *genTable { return g.tables[g.rnd.IntN(len(g.tables))] }

func (g *generator) insert(t *genTable) {
	n := 1
	if g.rnd.IntN(4) == 0 {
		n = 1 + g.rnd.IntN(120)
	}
	key := g.pick("NULL", "abs(random()%300)", "'k'||abs(random()%200)", "'K'||abs(random()%200)", "random()", "abs(random()%40)+0.5")
	cols, vals := []string{"id"}, []string{key}
	for _, c := range t.cols {
		cols, vals = append(cols, c), append(vals, g.value())
	}
	g.run(fmt.Sprintf("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<%d) INSERT OR %s INTO %s(%s) SELECT %s FROM n",
		n, g.pick("REPLACE", "IGNORE"), t.name, strings.Join(cols, ","), strings.Join(vals, ",")))
}

// many makes a table deep: small rows, enough of them for three levels of the
// smaller page sizes.
func (g *generator) many(t *genTable) {
	n := 200 + g.rnd.IntN(400)
	first := g.rnd.IntN(2000)
	g.run(fmt.Sprintf("WITH RECURSIVE n(i) AS (SELECT %d UNION ALL SELECT i+1 FROM n WHERE i<%d) INSERT OR IGNORE INTO %s(id,b) SELECT %s, 'row '||i||hex(zeroblob(40)) FROM n",
		first, first+n, t.name, g.pick("i", "'deep'||i", "NULL")))
}

// scatter changes single rows all over a table.
func (g *generator) scatter(t *genTable) {
	for range 1 + g.rnd.IntN(4) {
		g.run(fmt.Sprintf("UPDATE %s SET b='sc'||random() WHERE rowid=%d", t.name, g.rnd.IntN(2000)))
		g.run(fmt.Sprintf("DELETE FROM %s WHERE id IN (%d,'deep%d')", t.name, g.rnd.IntN(2000), g.rnd.IntN(2000)))
		from := g.rnd.IntN(2000)
		g.run(fmt.Sprintf("DELETE FROM %s WHERE rowid BETWEEN %d AND %d", t.name, from, from+g.rnd.IntN(200)))
	}
}

func (g *generator) alter(t *genTable) {
	switch g.rnd.IntN(6) {
	case 0:
		g.made++
		c := fmt.Sprintf("c%d", g.made)
		if g.src.try(fmt.Sprintf("ALTER TABLE %s ADD COLUMN %s %s DEFAULT %s", t.name, c, g.pick("", "REAL", "TEXT", "INT"), g.pick("NULL", "5", "'it''s'", "1.5", "x'00ff'", "abc", "true", "-7"))) {
			g.log = append(g.log, "ADD COLUMN "+c+" to "+t.name)
			t.cols = append(t.cols, c)
		}
	case 1:
		if n := len(t.cols) - 1; n > 1 {
			if c := t.cols[n]; c != "z" && g.src.try("ALTER TABLE "+t.name+" DROP COLUMN "+c) {
				g.log = append(g.log, "DROP COLUMN "+c+" of "+t.name)
				t.cols = t.cols[:n]
			}
		}
	case 2:
		g.made++
		if name := fmt.Sprintf("r%d", g.made); g.src.try("ALTER TABLE " + t.name + " RENAME TO " + name) {
			g.log = append(g.log, "RENAME "+t.name+" TO "+name)
			t.name = name
		}
	case 3:
		other := g.table()
		if other != t {
			for _, q := range []string{t.name + " RENAME TO swapping", other.name + " RENAME TO " + t.name, "swapping RENAME TO " + other.name} {
				g.run("ALTER TABLE " + q)
			}
			t.name, other.name = other.name, t.name
		}
	case 4:
		g.run("CREATE TABLE copied AS SELECT * FROM " + t.name)
		g.run("DROP TABLE copied")
	case 5:
		g.run("REINDEX")
		g.run("ANALYZE")
	}
}

func (g *generator) drop() {
	i := g.rnd.IntN(len(g.tables))
	g.run("DROP TABLE " + g.tables[i].name)
	g.tables = append(g.tables[:i:i], g.tables[i+1:]...)
}

// recreate drops a table and makes one of the same name and text in one go.
func (g *generator) recreate(t *genTable) {
	g.run("CREATE TABLE old AS SELECT sql FROM sqlite_schema WHERE name='" + t.name + "'")
	sql := ""
	if err := g.src.query("SELECT sql FROM old", func(v string) { sql = v }); err != nil || sql == "" {
		return
	}
	g.run("DROP TABLE " + t.name)
	g.run(sql)
	g.run("DROP TABLE old")
}

func (g *generator) op() {
	if len(g.tables) == 0 || len(g.tables) < 5 && g.rnd.IntN(12) == 0 {
		g.create()
		return
	}
	t := g.table()
	switch n := g.rnd.IntN(46); {
	case n < 16:
		g.insert(t)
	case n < 22:
		c := t.cols[g.rnd.IntN(len(t.cols))]
		v := g.value()
		if g.rnd.IntN(4) == 0 {
			v = "substr(" + c + ",1,max(0,length(" + c + ")-2))||'zz'"
		}
		g.run("UPDATE OR IGNORE " + t.name + " SET " + c + "=" + v + g.where())
	case n < 26:
		g.run("DELETE FROM " + t.name + g.where())
	case n < 28:
		g.run("UPDATE OR REPLACE " + t.name + " SET id=id+" + strconv.Itoa(g.rnd.IntN(5)) + g.where())
	case n < 29:
		g.run("UPDATE OR REPLACE " + t.name + " SET rowid=rowid*2")
	case n < 30:
		g.run("UPDATE " + t.name + " SET b=b")
	case n < 34:
		g.alter(t)
	case n < 35:
		g.drop()
	case n < 36:
		g.recreate(t)
	case n < 37:
		g.run("SAVEPOINT sp")
		g.insert(t)
		g.run("UPDATE " + t.name + " SET a=a+1")
		g.run(g.pick("ROLLBACK TO sp", "RELEASE sp"))
		g.run("RELEASE sp")
	case n < 38:
		g.run("INSERT OR IGNORE INTO " + g.table().name + "(id,b) SELECT id,b FROM " + t.name)
	case n < 41:
		g.many(t)
	case n < 45:
		g.scatter(t)
	case n < 46 && g.rnd.IntN(2) == 0:
		g.run("PRAGMA incremental_vacuum(" + strconv.Itoa(g.rnd.IntN(9)) + ")")
	default:
		g.run("VACUUM")
	}
}

// TestRandom follows databases of all forms through random statements and
// compares every unit with dumps and with an owner map made from scratch.
// EXPORTD_SOAK_UNITS sets how many units, EXPORTD_SEED the first seed.
func TestRandom(t *testing.T) {
	units, seed := 500, rand.Uint64N(1<<32)
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
	events := 0
	for done := 0; done < units && !t.Failed(); seed++ {
		n := min(25, units-done)
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { events += randomRun(t, seed, n) })
		done += n
	}
	t.Logf("%d units, %d row events", units, events)
}

func randomRun(t *testing.T, seed uint64, units int) int {
	rnd := rand.New(rand.NewPCG(seed, 1))
	g := &generator{rnd: rnd, vacuum: rnd.IntN(3)}
	size := []int{512, 512, 1024, 1024, 4096, 4096, 16384, 65536}[rnd.IntN(8)]
	g.src = newSource(t,
		fmt.Sprintf("PRAGMA page_size=%d", size),
		fmt.Sprintf("PRAGMA auto_vacuum=%d", g.vacuum),
		"PRAGMA encoding='"+g.pick("UTF-8", "UTF-8", "UTF-16le", "UTF-16be")+"'",
		"PRAGMA secure_delete="+g.pick("0", "1", "fast"))
	f := newFollower(t, g.src)
	for range units {
		if g.rnd.IntN(2) == 0 {
			g.run("BEGIN")
		}
		for range 1 + g.rnd.IntN(6) {
			g.op()
		}
		g.run("COMMIT")
		f.step()
		if g.rnd.IntN(3) == 0 {
			if err := f.sh.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d, page size %d, auto_vacuum %d; last statements:\n%s", seed, size, g.vacuum, strings.Join(g.log, "\n"))
		}
	}
	return f.events
}
