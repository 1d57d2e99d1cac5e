package schema

import (
	"testing"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// affinities has every rule of SQLite (datatype3 3.1), each pair of rules in
// both orders of their words, and what only looks like a rule.
var affinities = map[string]Affinity{
	"INT": IntegerAffinity, "INTEGER": IntegerAffinity, "tinyint": IntegerAffinity, "BIG InT": IntegerAffinity, "INT2(5)": IntegerAffinity,
	// INT wins over everything, wherever it stands.
	"CHARINT": IntegerAffinity, "INTCHAR": IntegerAffinity, "CLOBINT": IntegerAffinity, "INT CLOB": IntegerAffinity, "TEXTINT": IntegerAffinity, "INT TEXT": IntegerAffinity,
	"BLOBINT": IntegerAffinity, "INT BLOB": IntegerAffinity, "REALINT": IntegerAffinity, "INT REAL": IntegerAffinity,
	"FLOATING POINT": IntegerAffinity, "POINT FLOAT": IntegerAffinity, "DOUBINT": IntegerAffinity, "INT DOUBLE": IntegerAffinity,
	// Then the three words of a text.
	"CHARACTER(20)": TextAffinity, "VARCHAR(255)": TextAffinity, "nChar": TextAffinity, "CLOB": TextAffinity, "my clob": TextAffinity, "TEXT": TextAffinity, "teXt": TextAffinity,
	"CHARBLOB": TextAffinity, "BLOBCHAR": TextAffinity, "CHAR REAL": TextAffinity, "REAL CHAR": TextAffinity, "FLOAT CHAR": TextAffinity, "DOUBLE CHAR": TextAffinity,
	"CLOB BLOB": TextAffinity, "BLOB CLOB": TextAffinity, "REAL CLOB": TextAffinity, "FLOA CLOB": TextAffinity, "DOUB CLOB": TextAffinity,
	"TEXTBLOB": TextAffinity, "BLOB TEXT": TextAffinity, "REAL TEXT": TextAffinity, "FLOAT TEXT": TextAffinity, "DOUBLE TEXT": TextAffinity,
	// Then BLOB, or nothing at all.
	"BLOB": None, "longbloB": None, "": None, "BLOB REAL": None, "REAL BLOB": None, "FLOAT BLOB": None, "DOUBLE BLOB": None, "BLOBFLOA": None, "BLOBDOUB": None,
	// Then the three words of a float.
	"REAL": RealAffinity, "unREAListic": RealAffinity, "DOUBLE": RealAffinity, "Double Precision": RealAffinity, "DOUB": RealAffinity, "FLOAT": RealAffinity, "floa": RealAffinity,
	// And numbers are whatever is left.
	"NUMERIC": Numeric, "DECIMAL(10,5)": Numeric, "BOOLEAN": Numeric, "DATE": Numeric, "DATETIME": Numeric, "STRING": Numeric, "ANY": Numeric, "JSON": Numeric,
	"CHA R": Numeric, "CLO": Numeric, "TEX": Numeric, "BLO": Numeric, "REA L": Numeric, "FLO": Numeric, "DOU": Numeric, "IN T": Numeric,
	// Only the letters of ASCII have two cases: neither the dotless i nor the
	// dotted one is an I, and no other sign a K or an S.
	"real ınt": RealAffinity, "doub İNT": RealAffinity, "ınt": Numeric, "İNT": Numeric, "ＩＮＴ": Numeric, "ſtring": Numeric,
}

// TestAffinities holds the rules against the table above, and the table
// against SQLite: a cast says what a type is.
func TestAffinities(t *testing.T) {
	conn, err := openMemory(UTF8)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}()
	for typ, want := range affinities {
		if got := affinityOf(typ, false); got != want {
			t.Errorf("%q is %v, want %v", typ, got, want)
		}
		if got := sqliteAffinity(t, conn, typ); got != want {
			t.Errorf("%q is %v to SQLite, %v in the table of this test", typ, got, want)
		}
	}
	for typ, want := range map[string]Affinity{"ANY": None, "any": None, "INT": IntegerAffinity, "INTEGER": IntegerAffinity, "REAL": RealAffinity, "TEXT": TextAffinity, "BLOB": None} {
		if got := affinityOf(typ, true); got != want {
			t.Errorf("%q of a strict table is %v, want %v", typ, got, want)
		}
	}
}

// sqliteAffinity finds out what a column of the type makes of texts and
// numbers.
func sqliteAffinity(t *testing.T, conn *sqlite.Conn, typ string) (a Affinity) {
	t.Helper()
	for _, sql := range []string{"DROP TABLE IF EXISTS a", "CREATE TABLE a(c " + quote(typ) + ", d " + quote(typ) + ", e " + quote(typ) + ")", "INSERT INTO a VALUES('1', 1, 1.5)"} {
		if typ == "" && sql[0] == 'C' {
			sql = "CREATE TABLE a(c, d, e)"
		}
		if err := sqlitex.ExecuteTransient(conn, sql, nil); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	err := sqlitex.ExecuteTransient(conn, "SELECT typeof(c)||typeof(d)||typeof(e), CAST(1.5 AS "+quote(typ)+") FROM a", &sqlitex.ExecOptions{ResultFunc: func(st *sqlite.Stmt) error {
		switch st.ColumnText(0) {
		case "integerintegerreal":
			// Numeric and integer differ in casts alone.
			if a = Numeric; st.ColumnType(1) == sqlite.TypeInteger {
				a = IntegerAffinity
			}
		case "realrealreal":
			a = RealAffinity
		case "texttexttext":
			a = TextAffinity
		case "textintegerreal":
			a = None
		default:
			t.Fatalf("%q makes %s of a text and two numbers", typ, st.ColumnText(0))
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return a
}
