package envelope

import "fmt"

// member is a field whose value is not read yet.
type member struct {
	name string
	raw  []byte
}

// readMembers reads an object without its values.
func readMembers(s *scanner) ([]member, error) {
	var list []member
	err := s.object(func(name string) error {
		raw, err := s.raw()
		list = append(list, member{name, raw})
		return err
	})
	return list, err
}

// fields reads the known fields of an object and leaves the others. It stops
// at the first error, which it keeps.
type fields struct {
	members []member
	err     error
}

// required reads a field that must be there.
func (f *fields) required(name string, read func(*scanner) error) {
	if !f.optional(name, read) && f.err == nil {
		f.err = fmt.Errorf("field %q is missing", name)
	}
}

// optional reads a field if it is there and reports whether it was.
func (f *fields) optional(name string, read func(*scanner) error) bool {
	found := false
	for i := range f.members {
		if f.members[i].name != name {
			continue
		}
		if f.err != nil {
			return true
		}
		if found {
			f.err = fmt.Errorf("field %q comes twice", name)
			return true
		}
		found = true
		s := &scanner{buf: f.members[i].raw}
		err := read(s)
		if err == nil {
			err = s.end()
		}
		if err != nil {
			f.err = fmt.Errorf("field %q: %w", name, err)
		}
	}
	return found
}

// decodeBody reads the body of a kind from a record's fields.
func decodeBody(kind Kind, members []member) (Body, error) {
	f := &fields{members: members}
	var body Body
	switch kind {
	case KindRows:
		b := &Rows{}
		b.read(f)
		body = b
	case KindSnapshot:
		b := &SnapshotRows{}
		f.required("snapshot_id", str(&b.SnapshotID))
		b.Rows.read(f)
		body = b
	case KindSnapshotEnd:
		body = readSnapshotEnd(f)
	case KindSchema:
		body = readSchema(f)
	case KindLink:
		body = readLink(f)
	case KindRecovered:
		b := &Recovered{}
		f.required("session", str(&b.Session))
		f.required("head", position(&b.Head))
		f.optional("loss", flag(&b.Loss))
		f.optional("cells", num(&b.Cells))
		body = b
	case KindDeleted:
		body = readDeleted(f)
	case KindWatermark:
		body = readWatermark(f)
	case KindBulk:
		b := &Bulk{}
		f.required("tables", tables(&b.Tables))
		body = b
	case KindGap:
		b := &Gap{}
		f.required("from", position(&b.From))
		f.required("to", position(&b.To))
		f.required("reason", str(&b.Reason))
		body = b
	default:
		return nil, fmt.Errorf("unknown kind %q", kind)
	}
	return body, f.err
}

func (b *Rows) read(f *fields) {
	f.required("table", str(&b.Table))
	f.required("generation", num(&b.Generation))
	f.required("columns", strs(&b.Columns))
	f.required("key_columns", strs(&b.KeyColumns))
	f.required("rows", func(s *scanner) error {
		b.Changes = []RowChange{}
		return s.array(func(i int) error {
			c, err := readChange(s, len(b.KeyColumns), len(b.Columns))
			if err != nil {
				return fmt.Errorf("change %d: %w", i, err)
			}
			b.Changes = append(b.Changes, c)
			return nil
		})
	})
}

// readChange reads ["op",[key],[row]].
func readChange(s *scanner, keyLen, rowLen int) (c RowChange, err error) {
	n := 0
	err = s.array(func(i int) (err error) {
		n++
		switch i {
		case 0:
			if err = str(&c.Op)(s); err == nil && c.Op != Insert && c.Op != Update && c.Op != Delete {
				err = s.fail("unknown op %q", c.Op)
			}
		case 1:
			c.Key, err = readValues(s, keyLen)
		case 2:
			c.Row, err = readValues(s, rowLen)
		default:
			err = s.fail("it has more than three elements")
		}
		return err
	})
	if err == nil && n != 3 {
		err = s.fail("it has %d elements, want three", n)
	}
	return c, err
}

func readSnapshotEnd(f *fields) Body {
	b := &SnapshotEnd{}
	f.required("snapshot_id", str(&b.SnapshotID))
	f.required("scope", func(s *scanner) error {
		err := str(&b.Scope)(s)
		if err == nil && b.Scope != ScopeStream && b.Scope != ScopeTables {
			err = s.fail("unknown scope %q", b.Scope)
		}
		return err
	})
	f.required("tables", tables(&b.Tables))
	f.required("records", num(&b.Records))
	return b
}

func readSchema(f *fields) Body {
	b := &Schema{}
	f.required("table", str(&b.Table))
	f.required("generation", num(&b.Generation))
	f.required("sql", str(&b.SQL))
	f.required("columns", func(s *scanner) error {
		b.Columns = []ColumnDef{}
		return s.array(func(int) error {
			c, err := readColumnDef(s)
			b.Columns = append(b.Columns, c)
			return err
		})
	})
	f.optional("dropped", flag(&b.Dropped))
	f.optional("renamed_from", func(s *scanner) (err error) { b.RenamedFrom, err = readStringOrNull(s); return })
	f.optional("unsupported", flag(&b.Unsupported))
	return b
}

func readColumnDef(s *scanner) (c ColumnDef, err error) {
	list, err := readMembers(s)
	if err != nil {
		return c, err
	}
	f := &fields{members: list}
	f.required("name", str(&c.Name))
	f.required("type", str(&c.Type))
	f.optional("pk", num(&c.PrimaryKey))
	f.optional("not_null", flag(&c.NotNull))
	f.optional("generated", flag(&c.Generated))
	return c, f.err
}

func readLink(f *fields) Body {
	b := &Link{}
	f.required("start_txid", num(&b.StartTXID))
	f.required("prev_epoch", numOrNull(&b.PrevEpoch))
	f.required("prev_txid", numOrNull(&b.PrevTXID))
	f.required("mode", func(s *scanner) error {
		err := str(&b.Mode)(s)
		switch b.Mode {
		case ModeFresh, ModeClone, ModePaged, ModeResume:
			return err
		}
		if err == nil {
			err = s.fail("unknown mode %q", b.Mode)
		}
		return err
	})
	return b
}

func readDeleted(f *fields) Body {
	b := &Deleted{}
	f.optional("target_facet", func(s *scanner) error {
		p, err := readStringOrNull(s)
		if err == nil && p != nil {
			// An empty path would turn a facet's end into the root's.
			if b.TargetFacet = *p; *p == "" {
				err = s.fail("the facet path is empty")
			}
		}
		return err
	})
	f.optional("target_incarnation", numOrNull(&b.TargetIncarnation))
	f.optional("subtree", flag(&b.Subtree))
	f.optional("through_incarnation", numOrNull(&b.ThroughIncarnation))
	return b
}

func readWatermark(f *fields) Body {
	b := &Watermark{}
	f.required("from", func(s *scanner) error {
		if null, err := s.null(); null || err != nil {
			return err
		}
		b.From = &Position{}
		return position(b.From)(s)
	})
	f.required("through", position(&b.Through))
	f.required("commits", num(&b.Commits))
	f.required("records", num(&b.Records))
	return b
}
