package diffpage

import (
	"fmt"
	"slices"
	"strings"
)

// genKinds are what a long random run has to have met.
var genKinds = []string{
	"strict", "partial index", "expression index", "trigger", "view", "insert through a view",
	"generated column", "not null default", "references", "collate", "check",
	"set not null", "drop not null", "add constraint", "drop constraint",
}

func (g *generator) create() {
	g.made++
	kind := g.rnd.IntN(len(genKeys))
	t := &genTable{name: fmt.Sprintf("t%d", g.made), cols: []string{"a", "b"}, types: make(map[string]string), strict: g.rnd.IntN(6) == 0}
	if len(g.tables) > 0 && g.rnd.IntN(3) == 0 {
		t.name = g.table().name + "x"
	}
	defs := []string{genKeys[kind], "a " + g.pick("", "INT", "REAL", "TEXT", "BLOB", "NUMERIC"), "b"}
	if g.rnd.IntN(4) == 0 {
		defs = append(defs, "v AS (a+1)", "s AS (b||'s') STORED", "z REAL")
		t.cols = append(t.cols, "z")
	}
	var options []string
	if kind >= 4 {
		if g.rnd.IntN(3) == 0 {
			defs[0] = "id " + g.pick("TEXT", "")
			defs = append(defs, "PRIMARY KEY("+g.pick(genComposites...)+")")
		}
		if g.rnd.IntN(2) == 0 {
			t.rowless = true
			options = append(options, "WITHOUT ROWID")
		}
	}
	if t.strict {
		options = append(options, "STRICT")
		for i := range defs {
			defs[i] = t.strictly(defs[i])
		}
	}
	body := "(" + strings.Join(defs, ",") + ") " + strings.Join(options, ",")
	if !g.run("CREATE TABLE " + t.name + body) {
		return
	}
	if t.strict {
		g.done["strict"]++
	}
	g.tables = append(g.tables, t)
	switch g.rnd.IntN(6) {
	case 0, 1:
		g.index(t)
	case 2: // two of a kind can swap their trees
		twin := *t
		twin.name, twin.cols = t.name+"twin", slices.Clone(t.cols)
		if g.run("CREATE TABLE " + twin.name + body) {
			g.tables = append(g.tables, &twin)
			g.insert(&twin)
		}
	}
}

// strictly gives the definition of a column the type that a STRICT table wants
// of every one, and notes it where it is not ANY.
func (t *genTable) strictly(def string) string {
	word := strings.Fields(def)
	if strings.HasPrefix(def, "PRIMARY") {
		return def
	}
	typ := ""
	if len(word) > 1 {
		typ = word[1]
	}
	switch typ {
	case "INTEGER", "INT", "REAL", "TEXT", "BLOB":
		if def != genKeys[0] && def != genKeys[2] { // these take NULL for the next one
			t.types[word[0]] = typ
		}
		return def
	case "NUMERIC":
		word = slices.Delete(word, 1, 2)
	}
	return strings.Join(slices.Insert(word, 1, "ANY"), " ")
}

func (g *generator) index(t *genTable) {
	start := fmt.Sprintf("CREATE %s INDEX i%d ON %s", g.pick("", "", "UNIQUE"), g.made, t.name)
	switch g.rnd.IntN(4) {
	case 0:
		g.rare("partial index", start+g.pick("(a) WHERE b IS NOT NULL", "(b) WHERE a>5", "(b,a) WHERE typeof(b)='text'"))
	case 1:
		g.rare("expression index", start+g.pick("(length(b))", "(b,a+1)", "(substr(b,1,3) DESC) WHERE a IS NOT NULL"))
	default:
		g.run(start + g.pick("(a)", "(b,a)", "(b DESC)"))
	}
}

// attach adds what hangs on a table, or takes one of these away.
func (g *generator) attach(t *genTable) {
	g.made++
	switch n := g.rnd.IntN(6); {
	case n == 0:
		g.index(t)
	case n == 1 && len(g.extras) > 0, len(g.extras) > 5:
		i := g.rnd.IntN(len(g.extras))
		g.run("DROP " + g.extras[i])
		g.extras = slices.Delete(g.extras, i, i+1)
	case n == 2:
		g.view(t)
	default:
		g.trigger(t)
	}
}

// trigger has writes to a table write to another. Only some fire, and they look
// rows up, or one statement would write for long.
func (g *generator) trigger(t *genTable) {
	other, event, row := g.table(), g.pick("INSERT", "UPDATE", "UPDATE OF b", "DELETE"), "new."
	if event == "DELETE" {
		row = "old."
	}
	where := " WHERE rowid=abs(random()%500)"
	if other.rowless {
		where = " WHERE id=" + row + "id"
	}
	body := g.pick(
		"INSERT OR IGNORE INTO "+other.name+"(id,b) VALUES("+other.fit("id", row+"id")+","+row+"b)",
		"UPDATE OR IGNORE "+other.name+" SET b="+row+"a"+where,
		"DELETE FROM "+other.name+where,
		"UPDATE OR REPLACE "+other.name+" SET b='by trigger'"+where+"; DELETE FROM "+other.name+" WHERE b='sc'",
	)
	name := fmt.Sprintf("tr%d", g.made)
	if g.rare("trigger", fmt.Sprintf("CREATE TRIGGER %s %s %s ON %s WHEN random()%%4=0 BEGIN %s; END", name, g.pick("BEFORE", "AFTER"), event, t.name, body)) {
		g.extras = append(g.extras, "TRIGGER "+name)
	}
}

// view makes a view of a table that takes rows for it.
func (g *generator) view(t *genTable) {
	name := fmt.Sprintf("vw%d", g.made)
	if !g.rare("view", "CREATE VIEW "+name+" AS SELECT id, b FROM "+t.name+" WHERE b IS NOT NULL") {
		return
	}
	g.extras = append(g.extras, "VIEW "+name)
	g.run(fmt.Sprintf("CREATE TRIGGER tr%d INSTEAD OF INSERT ON %s BEGIN INSERT OR REPLACE INTO %s(id,b) VALUES(%s,new.b); END", g.made, name, t.name, t.fit("id", "new.id")))
	g.rare("insert through a view", "INSERT INTO "+name+"(id,b) VALUES("+g.pick("7", "'k7'", "abs(random()%99)")+","+g.value()+")")
}

// detach drops all triggers and views: one that names what is gone lets no
// table be altered.
func (g *generator) detach() {
	for _, x := range g.extras {
		g.run("DROP " + x)
	}
	g.extras = nil
}

// change runs an ALTER TABLE, once more without triggers and views if these
// are in its way.
func (g *generator) change(kind, q string) bool {
	ok := g.run(q)
	if !ok && len(g.extras) > 0 {
		g.detach()
		ok = g.run(q)
	}
	if ok && kind != "" {
		g.done[kind]++
	}
	return ok
}

func (g *generator) addColumn(t *genTable) {
	c := fmt.Sprintf("c%d", g.made)
	typ, start := g.pick("", "REAL", "TEXT", "INT"), "ALTER TABLE "+t.name+" ADD COLUMN "+c+" "
	if t.strict {
		typ = "ANY"
	}
	kind, rest := "", " DEFAULT "+g.pick("NULL", "5", "'it''s'", "1.5", "x'00ff'", "abc", "true", "-7")
	switch g.rnd.IntN(10) {
	case 0:
		g.change("generated column", start+typ+" AS ("+g.pick("a+1", "length(b)", "b||id")+")")
		return
	case 1, 2:
		kind, rest = "not null default", " NOT NULL DEFAULT "+g.pick("7", "'seven'", "0.5", "x''")
	case 3:
		kind, rest = "references", " REFERENCES "+g.table().name+"(id)"
	case 4:
		kind, rest = "collate", " COLLATE NOCASE DEFAULT 'x'"
	case 5:
		kind, rest = "check", rest+" CHECK("+c+" IS NOT 5)"
	}
	if g.change(kind, start+typ+rest) {
		t.cols = append(t.cols, c)
	}
}

// constrain adds and takes away constraints, which writes no row.
func (g *generator) constrain(t *genTable) {
	g.made++
	start, c := "ALTER TABLE "+t.name+" ", t.cols[g.rnd.IntN(len(t.cols))]
	switch g.rnd.IntN(5) {
	case 0:
		g.change("set not null", start+"ALTER COLUMN "+c+" SET NOT NULL")
	case 1:
		g.run("DELETE FROM " + t.name + " WHERE " + c + " IS NULL")
		g.change("set not null", start+"ALTER COLUMN "+c+" SET NOT NULL")
	case 2:
		g.change("drop not null", start+"ALTER COLUMN "+c+" DROP NOT NULL")
	case 3:
		if name := fmt.Sprintf("k%d", g.made); g.change("add constraint", start+"ADD CONSTRAINT "+name+" CHECK("+c+g.pick(" IS NOT 17", "<>'a1'", " NOT IN (1,2,3)")+")") {
			t.checks = append(t.checks, name)
			if g.rnd.IntN(3) == 0 {
				g.unconstrain(t)
			}
		}
	default:
		g.unconstrain(t)
	}
}

func (g *generator) unconstrain(t *genTable) {
	if n := len(t.checks) - 1; n >= 0 && g.change("drop constraint", "ALTER TABLE "+t.name+" DROP CONSTRAINT "+t.checks[n]) {
		t.checks = t.checks[:n]
	}
}

func (g *generator) alter(t *genTable) {
	g.made++
	switch g.rnd.IntN(8) {
	case 0, 1:
		g.addColumn(t)
	case 2:
		if n := len(t.cols) - 1; n > 1 {
			if c := t.cols[n]; c != "z" && g.change("", "ALTER TABLE "+t.name+" DROP COLUMN "+c) {
				t.cols = t.cols[:n]
			}
		}
	case 3:
		if name := fmt.Sprintf("r%d", g.made); g.change("", "ALTER TABLE "+t.name+" RENAME TO "+name) {
			t.name = name
		}
	case 4:
		if other := g.table(); other != t && g.change("", "ALTER TABLE "+t.name+" RENAME TO swapping") {
			for _, q := range []string{other.name + " RENAME TO " + t.name, "swapping RENAME TO " + other.name} {
				g.change("", "ALTER TABLE "+q)
			}
			t.name, other.name = other.name, t.name
		}
	case 5:
		if n := len(t.cols) - 1; n > 1 && t.cols[n] != "z" {
			if c := fmt.Sprintf("n%d", g.made); g.change("", "ALTER TABLE "+t.name+" RENAME COLUMN "+t.cols[n]+" TO "+c) {
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
