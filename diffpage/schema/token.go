package schema

import "bytes"

// moduleOf reads the module's name out of a stored CREATE VIRTUAL TABLE text:
// after the table's name and USING.
func moduleOf(sql string) string {
	rest := []byte(sql)
	for range len("CREATE VIRTUAL TABLE name USING") {
		var word string
		var quoted bool
		word, quoted, rest = token(rest)
		switch {
		case word == "" && !quoted:
			return ""
		case isWord(word, quoted, "using"):
			word, _, _ = token(rest)
			return word
		}
	}
	return ""
}

// definedName is the name of the table that a stored text makes, false when
// the text is not CREATE TABLE, a name and a parenthesis, which is how SQLite
// stores every table. IF NOT EXISTS is not stored either, but read.
func definedName(sql string) (string, bool) {
	rest := []byte(sql)
	for _, want := range []string{"create", "table"} {
		var word string
		var quoted bool
		if word, quoted, rest = token(rest); !isWord(word, quoted, want) {
			return "", false
		}
	}
	name, quoted, rest := token(rest)
	next, nextQuoted, rest := token(rest)
	if isWord(name, quoted, "if") && isWord(next, nextQuoted, "not") {
		if next, nextQuoted, rest = token(rest); !isWord(next, nextQuoted, "exists") {
			return "", false
		}
		name, quoted, rest = token(rest)
		next, nextQuoted, _ = token(rest)
	}
	return name, (name != "" || quoted) && isWord(next, nextQuoted, "(")
}

// isWord knows a keyword, given in lower case, from a quoted name that reads
// like it.
func isWord(word string, quoted bool, keyword string) bool {
	return !quoted && equalFold(word, keyword)
}

// token takes the next word, quoted name or other character off an SQL text,
// as SQLite's tokenizer does; a quoted name comes without its quotes. The word
// is empty and not quoted at the end.
func token(sql []byte) (word string, quoted bool, rest []byte) {
	sql = skipBlank(sql)
	if len(sql) == 0 {
		return "", false, nil
	}
	closing := sql[0]
	switch sql[0] {
	case '"', '\'', '`':
	case '[':
		closing = ']'
	default:
		n := bytes.IndexFunc(sql, func(r rune) bool {
			return !(r == '_' || r == '$' || r >= 0x80 || r >= '0' && r <= '9' || r|0x20 >= 'a' && r|0x20 <= 'z')
		})
		if n < 0 {
			n = len(sql)
		}
		n = max(n, 1)
		return string(sql[:n]), false, sql[n:]
	}
	var name []byte
	for i := 1; i < len(sql); i++ {
		if sql[i] != closing {
			name = append(name, sql[i])
			continue
		}
		if closing != ']' && i+1 < len(sql) && sql[i+1] == closing {
			name = append(name, closing)
			i++
			continue
		}
		return string(name), true, sql[i+1:]
	}
	return string(name), true, nil
}

// skipBlank takes off what SQLite passes over between words: blanks, comments
// and the byte order mark.
func skipBlank(sql []byte) []byte {
	for len(sql) > 0 {
		end := 1
		switch {
		case sql[0] == ' ' || sql[0] == '\t' || sql[0] == '\n' || sql[0] == '\f' || sql[0] == '\r':
		case bytes.HasPrefix(sql, []byte("\ufeff")):
			end = len("\ufeff")
		case bytes.HasPrefix(sql, []byte("--")):
			if end = bytes.IndexByte(sql, '\n') + 1; end == 0 {
				return nil
			}
		case bytes.HasPrefix(sql, []byte("/*")):
			if end = bytes.Index(sql[2:], []byte("*/")) + 4; end == 3 {
				return nil
			}
		default:
			return sql
		}
		sql = sql[end:]
	}
	return nil
}
