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
}

type genTable struct {
	name string
	cols []string // that can be written besides the key
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

func (g *generator) create() {
	g.made++
	kind := g.rnd.IntN(len(genKeys))
	t := &genTable{name: fmt.Sprintf("t%d", g.made), cols: []string{"a", "b"}}
	if len(g.tables) > 0 && g.rnd.IntN(3) == 0 {
		t.name = g.table().name + "x"
	}
	defs := []string{genKeys[kind], "a " + g.pick("", "INT", "REAL", "TEXT", "BLOB", "NUMERIC"), "b"}
	if g.rnd.IntN(4) == 0 {
		defs = append(defs, "v AS (a+1)", "s AS (b||'s') STORED", "z REAL")
		t.cols = append(t.cols, "z")
	}
	tail := ""
	if kind >= 4 {
		tail = g.pick("", " WITHOUT ROWID")
		if g.rnd.IntN(3) == 0 {
			defs[0] = "id " + g.pick("TEXT", "")
			defs = append(defs, "PRIMARY KEY("+g.pick(genComposites...)+")")
		}
	}
	body := "(" + strings.Join(defs, ",") + ")" + tail
	if !g.run("CREATE TABLE " + t.name + body) {
		return
	}
	g.tables = append(g.tables, t)
	switch g.rnd.IntN(6) {
	case 0, 1:
		g.run(fmt.Sprintf("CREATE %s INDEX i%d ON %s(%s)", g.pick("", "UNIQUE"), g.made, t.name, g.pick("a", "b,a", "b DESC")))
	case 2: // two of a kind can swap their trees
		twin := &genTable{name: t.name + "twin", cols: append([]string(nil), t.cols...)}
		if g.run("CREATE TABLE " + twin.name + body) {
			g.tables = append(g.tables, twin)
			g.insert(twin)
		}
	}
}

// swap exchanges the roots of two tables of one text, as somebody with
// writable_schema might. Those with indexes would be corrupt by it.
func (g *generator) swap() {
	var pair []string
	err := g.src.query(`SELECT a.name||' '||b.rootpage||' '||b.name||' '||a.rootpage FROM sqlite_schema a, sqlite_schema b WHERE a.type='table' AND b.type='table' AND a.name<b.name
		AND substr(a.sql,instr(a.sql,'('))=substr(b.sql,instr(b.sql,'(')) AND a.rootpage>0 AND b.rootpage>0
		AND NOT EXISTS (SELECT 1 FROM sqlite_schema i WHERE i.type='index' AND i.tbl_name IN (a.name,b.name))`,
		func(v string) { pair = append(pair, v) })
	if err != nil || len(pair) == 0 || !g.src.conn.AutocommitEnabled() {
		return
	}
	word := strings.Fields(g.pick(pair...))
	g.run("PRAGMA writable_schema=ON")
	g.run(fmt.Sprintf("UPDATE sqlite_schema SET rootpage=CASE name WHEN '%s' THEN %s ELSE %s END WHERE name IN ('%[1]s','%[4]s')", word[0], word[1], word[3], word[2]))
	g.run("PRAGMA writable_schema=RESET")
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
	g.made++
	switch g.rnd.IntN(8) {
	case 0, 1:
		c := fmt.Sprintf("c%d", g.made)
		if g.run(fmt.Sprintf("ALTER TABLE %s ADD COLUMN %s %s DEFAULT %s", t.name, c, g.pick("", "REAL", "TEXT", "INT"), g.pick("NULL", "5", "'it''s'", "1.5", "x'00ff'", "abc", "true", "-7"))) {
			t.cols = append(t.cols, c)
		}
	case 2:
		if n := len(t.cols) - 1; n > 1 {
			if c := t.cols[n]; c != "z" && g.run("ALTER TABLE "+t.name+" DROP COLUMN "+c) {
				t.cols = t.cols[:n]
			}
		}
	case 3:
		if name := fmt.Sprintf("r%d", g.made); g.run("ALTER TABLE " + t.name + " RENAME TO " + name) {
			t.name = name
		}
	case 4:
		if other := g.table(); other != t {
			for _, q := range []string{t.name + " RENAME TO swapping", other.name + " RENAME TO " + t.name, "swapping RENAME TO " + other.name} {
				g.run("ALTER TABLE " + q)
			}
			t.name, other.name = other.name, t.name
		}
	case 5:
		if n := len(t.cols) - 1; n > 1 && t.cols[n] != "z" {
			if c := fmt.Sprintf("n%d", g.made); g.run("ALTER TABLE " + t.name + " RENAME COLUMN " + t.cols[n] + " TO " + c) {
				t.cols[n] = c
			}
		}
	case 6:
		g.run("CREATE TABLE copied AS SELECT * FROM " + t.name)
		g.run("DROP TABLE copied")
	case 7:
		g.run("REINDEX")
		g.run("ANALYZE")
	}
}

func (g *generator) drop() {
	i := g.rnd.IntN(len(g.tables))
	g.run("DROP TABLE " + g.tables[i].name)
	g.tables = append(g.tables[:i:i], g.tables[i+1:]...)
}

// recreate drops a table and makes one of the same name and text in one go,
// with its rows or without.
func (g *generator) recreate(t *genTable) {
	sql := ""
	if err := g.src.query("SELECT sql FROM sqlite_schema WHERE name='"+t.name+"'", func(v string) { sql = v }); err != nil || sql == "" {
		return
	}
	cols := strings.Join(append([]string{"id"}, t.cols...), ",")
	g.run("CREATE TABLE old AS SELECT " + cols + " FROM " + t.name)
	g.run("DROP TABLE " + t.name)
	if g.run(sql) && g.rnd.IntN(2) == 0 {
		g.run("INSERT OR IGNORE INTO " + t.name + "(" + cols + ") SELECT " + cols + " FROM old")
	}
	g.run("DROP TABLE old")
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
	switch n := g.rnd.IntN(48); {
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
	default:
		g.run("VACUUM")
	}
}
