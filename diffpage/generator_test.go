package diffpage

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// generator writes random SQL against tables it remembers, and records it.
type generator struct {
	rnd    *rand.Rand
	src    *source
	size   int // of a page
	tables []*genTable
	made   int
	script []line
	// extras are triggers and views, as DROP names them.
	extras []string
	// done counts the rarer statements that SQLite took.
	done map[string]int
}

type genTable struct {
	name string
	cols []string // that can be written besides the key
	// types are those of columns that take nothing else, by name.
	types map[string]string
	// rowless says that the table is WITHOUT ROWID.
	rowless, strict bool
	checks          []string // names of its constraints
}

// The kinds of tables, by the column definitions of their keys; those from
// the fifth on may be WITHOUT ROWID.
var genKeys = []string{
	"id INTEGER PRIMARY KEY",
	"id",
	"id INTEGER PRIMARY KEY AUTOINCREMENT",
	"id INTEGER PRIMARY KEY DESC",
	"id TEXT PRIMARY KEY",
	"id INT PRIMARY KEY",
	"id PRIMARY KEY",
	"id TEXT COLLATE NOCASE PRIMARY KEY",
	"id PRIMARY KEY DESC",
	"id BLOB COLLATE RTRIM PRIMARY KEY",
}

// Keys of several columns, for a first column without one.
var genComposites = []string{"b,id", "id DESC,b", "b COLLATE NOCASE DESC,id COLLATE RTRIM", "a,id,a,b", "id,a DESC"}

func (g *generator) run(q string) bool {
	l := line{sql: q, seed: g.rnd.Uint64()}
	g.script = append(g.script, l)
	g.src.seeded(l.seed)
	return g.src.try(q)
}

func (g *generator) pick(options ...string) string { return options[g.rnd.IntN(len(options))] }

// rare runs a statement of a kind that is to be met in every long run.
func (g *generator) rare(kind, q string) bool {
	ok := g.run(q)
	if ok {
		g.done[kind]++
	}
	return ok
}

// fit is a value as a column takes it.
func (t *genTable) fit(col, value string) string {
	if typ := t.types[col]; typ != "" {
		return "CAST(" + value + " AS " + typ + ")"
	}
	return value
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
	switch g.rnd.IntN(12) {
	case 0, 1:
		n = g.rnd.IntN(1500)
	case 2, 3:
		n = g.rnd.IntN(2000)
	case 4: // many overflow pages
		n = g.rnd.IntN(min(g.size*25, 100_000))
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
	key := g.pick("NULL", "abs(random()%300)", "'k'||abs(random()%200)", "'K'||abs(random()%200)", "random()", "abs(random()%40)+0.5",
		"CASE i%5 WHEN 0 THEN NULL WHEN 1 THEN i WHEN 2 THEN i||'' WHEN 3 THEN i+0.0 ELSE CAST(i AS BLOB) END", "'k'||i||'  '")
	cols, vals := []string{"id"}, []string{t.fit("id", key)}
	for _, c := range t.cols {
		cols, vals = append(cols, c), append(vals, t.fit(c, g.value()))
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

// savepoint writes under nested savepoints of which some are taken back.
func (g *generator) savepoint(t *genTable) {
	g.run("SAVEPOINT sp")
	g.insert(t)
	if g.rnd.IntN(2) == 0 {
		g.run("SAVEPOINT inner")
		g.run("DELETE FROM " + t.name + g.where())
		g.many(g.table())
		g.run(g.pick("ROLLBACK TO inner", "RELEASE inner"))
	}
	g.run("UPDATE OR IGNORE " + t.name + " SET a=a+1")
	g.run(g.pick("ROLLBACK TO sp", "RELEASE sp"))
	g.run("RELEASE sp")
}

func (g *generator) op() {
	if len(g.tables) == 0 || len(g.tables) < 5 && g.rnd.IntN(12) == 0 {
		g.create()
		return
	}
	t := g.table()
	switch n := g.rnd.IntN(52); {
	case n < 16:
		g.insert(t)
	case n < 22:
		c := t.cols[g.rnd.IntN(len(t.cols))]
		v := g.value()
		if g.rnd.IntN(4) == 0 {
			v = "substr(" + c + ",1,max(0,length(" + c + ")-2))||'zz'"
		}
		g.run("UPDATE OR IGNORE " + t.name + " SET " + c + "=" + t.fit(c, v) + g.where())
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
		g.savepoint(t)
	case n < 38:
		g.run("INSERT OR IGNORE INTO " + g.table().name + "(id,b) SELECT id,b FROM " + t.name)
	case n < 41:
		g.many(t)
	case n < 45:
		g.scatter(t)
	case n < 46:
		g.swap()
	case n < 47:
		g.run("PRAGMA incremental_vacuum(" + strconv.Itoa(g.rnd.IntN(9)) + ")")
	case n < 49:
		g.constrain(t)
	case n < 51:
		g.attach(t)
	default:
		g.run("VACUUM")
	}
}
