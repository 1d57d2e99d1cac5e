package exporter_test

import (
	"strings"
	"testing"

	"celldexport/internal/celldsim"
)

// Denying Class.kv denies the key-value storage and not an application's
// table of that name, which is exported under another one.
func TestCFG01(t *testing.T) {
	t.Parallel()
	p := newTape(t)
	p.h.settings.Export.DenyTables = append(p.h.settings.Export.DenyTables, tableOf(class, "kv"))
	p.odd = []string{"kv "}
	value, err := celldsim.V8("stored")
	p.must(err)
	p.must(celldsim.PutKV(p.c, "key", value))
	p.unit(`CREATE TABLE kv(a)`, `INSERT INTO kv VALUES('of the application')`)
	p.must(celldsim.PutKV(p.c, "key2", value))
	p.wants(p.unit(`INSERT INTO kv VALUES('too')`), "rows _cf_SQL_kv/1 I")
	p.wantRows("_cf_SQL_kv", `[1] ["of the application"]`, `[2] ["too"]`)
	for _, r := range p.consumer().Records {
		if s := spellBody(r.Body); strings.Contains(s, " kv/") {
			t.Errorf("the storage is denied, and yet: %s", s)
		}
	}
}
