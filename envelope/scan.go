package envelope

import (
	"errors"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth is how deep arrays and objects may nest in a record, the record
// itself included. Readers of other implementations stop there too.
const maxDepth = 127

// scanner reads JSON strictly (RFC 8259): what encoding/json mends silently,
// such as bad UTF-8, lone surrogates and repeated names, must be an error in
// a record.
type scanner struct {
	buf   []byte
	pos   int
	depth int
}

// fail is an error at the scanner's place.
func (s *scanner) fail(format string, args ...any) error {
	return fmt.Errorf("byte %d: %s", s.pos, fmt.Sprintf(format, args...))
}

var errEnd = errors.New("it ends too early")

// next skips white space and returns the byte that a token starts with.
func (s *scanner) next() (byte, error) {
	for ; s.pos < len(s.buf); s.pos++ {
		switch c := s.buf[s.pos]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c, nil
		}
	}
	return 0, errEnd
}

// end demands that only white space is left.
func (s *scanner) end() error {
	if _, err := s.next(); err == nil {
		return s.fail("data after the end")
	}
	return nil
}

// open enters an array or object.
func (s *scanner) open(c byte) error {
	got, err := s.next()
	if err != nil {
		return err
	}
	if got != c {
		return s.fail("want %q, found %q", c, got)
	}
	if s.depth++; s.depth > maxDepth {
		return s.fail("nested more than %d deep", maxDepth)
	}
	s.pos++
	return nil
}

// more steps to the next element of an array or object that ends with end: it
// reports false, and leaves, when there is none.
func (s *scanner) more(first bool, end byte) (bool, error) {
	c, err := s.next()
	switch {
	case err != nil:
		return false, err
	case c == end:
		s.pos++
		s.depth--
		return false, nil
	case first:
		return true, nil
	case c != ',':
		return false, s.fail("want a comma or %q, found %q", end, c)
	}
	s.pos++
	if c, err = s.next(); err == nil && c == end {
		return false, s.fail("comma before %q", end)
	}
	return true, err
}

// array calls element before each element of an array, which it must read.
func (s *scanner) array(element func(i int) error) error {
	if err := s.open('['); err != nil {
		return err
	}
	for i := 0; ; i++ {
		more, err := s.more(i == 0, ']')
		if err != nil || !more {
			return err
		}
		if err := element(i); err != nil {
			return err
		}
	}
}

// object calls member before the value of each member, which it must read.
func (s *scanner) object(member func(name string) error) error {
	if err := s.open('{'); err != nil {
		return err
	}
	for first := true; ; first = false {
		more, err := s.more(first, '}')
		if err != nil || !more {
			return err
		}
		name, err := s.str()
		if err != nil {
			return err
		}
		c, err := s.next()
		if err != nil {
			return err
		}
		if c != ':' {
			return s.fail("want a colon after %q, found %q", name, c)
		}
		s.pos++
		if err := member(name); err != nil {
			return err
		}
	}
}

// raw skips one value, checking that it is well formed, and returns it.
func (s *scanner) raw() ([]byte, error) {
	c, err := s.next()
	if err != nil {
		return nil, err
	}
	start := s.pos
	switch c {
	case '{':
		err = s.object(func(string) error { _, err := s.raw(); return err })
	case '[':
		err = s.array(func(int) error { _, err := s.raw(); return err })
	case '"':
		err = s.skipString()
	case 't', 'f', 'n':
		_, err = s.word()
	default:
		_, _, err = s.number()
	}
	return s.buf[start:s.pos], err
}

// word reads true, false or null.
func (s *scanner) word() (string, error) {
	if _, err := s.next(); err != nil {
		return "", err
	}
	for _, w := range [...]string{"null", "true", "false"} {
		if rest := s.buf[s.pos:]; len(rest) >= len(w) && string(rest[:len(w)]) == w {
			s.pos += len(w)
			return w, nil
		}
	}
	return "", s.fail("want true, false or null")
}

// null reads a null if one comes next.
func (s *scanner) null() (bool, error) {
	c, err := s.next()
	if err != nil || c != 'n' {
		return false, err
	}
	w, err := s.word()
	return w == "null", err
}

// number reads a number and reports whether it has a fraction or an exponent.
// One that is too large for a double is an error.
func (s *scanner) number() (tok []byte, real bool, err error) {
	if _, err := s.next(); err != nil {
		return nil, false, err
	}
	start := s.pos
	s.take('-')
	if !s.take('0') && s.digits() == 0 {
		s.pos = start
		return nil, false, s.fail("want a value, found %q", s.buf[s.pos])
	}
	if s.take('.') {
		real = true
		if s.digits() == 0 {
			return nil, false, s.fail("want digits after the point")
		}
	}
	if s.take('e') || s.take('E') {
		real = true
		if !s.take('+') {
			s.take('-')
		}
		if s.digits() == 0 {
			return nil, false, s.fail("want digits in the exponent")
		}
	}
	tok = s.buf[start:s.pos]
	if real || len(tok) > 300 {
		if _, err := strconv.ParseFloat(string(tok), 64); err != nil {
			return nil, false, s.fail("number %.40s is out of range", tok)
		}
	}
	return tok, real, nil
}

// take consumes c if it comes next.
func (s *scanner) take(c byte) bool {
	if s.pos < len(s.buf) && s.buf[s.pos] == c {
		s.pos++
		return true
	}
	return false
}

// digits consumes decimal digits and counts them.
func (s *scanner) digits() int {
	start := s.pos
	for s.pos < len(s.buf) && s.buf[s.pos] >= '0' && s.buf[s.pos] <= '9' {
		s.pos++
	}
	return s.pos - start
}

// skipString passes over a string, checking it.
func (s *scanner) skipString() error {
	_, err := s.quoted(nil, false)
	return err
}

// str reads a string.
func (s *scanner) str() (string, error) {
	c, err := s.next()
	if err != nil {
		return "", err
	}
	if c != '"' {
		return "", s.fail("want a string, found %q", c)
	}
	start := s.pos + 1
	// Most strings have no escape and are taken as they stand.
	for i := start; i < len(s.buf); i++ {
		c := s.buf[i]
		if c == '"' {
			s.pos = i + 1
			return string(s.buf[start:i]), nil
		}
		if c == '\\' || c < 0x20 || c >= utf8.RuneSelf {
			break
		}
	}
	b, err := s.quoted(nil, true)
	return string(b), err
}

// quoted reads the string that starts here and, when keep is set, appends
// what it says to dst.
func (s *scanner) quoted(dst []byte, keep bool) ([]byte, error) {
	s.pos++
	for s.pos < len(s.buf) {
		c := s.buf[s.pos]
		size := 1
		switch {
		case c == '"':
			s.pos++
			return dst, nil
		case c == '\\':
			r, err := s.escape()
			if err != nil {
				return nil, err
			}
			if keep {
				dst = utf8.AppendRune(dst, r)
			}
			continue
		case c < 0x20:
			return nil, s.fail("control character %#02x in a string", c)
		case c >= utf8.RuneSelf:
			var r rune
			if r, size = utf8.DecodeRune(s.buf[s.pos:]); r == utf8.RuneError && size == 1 {
				return nil, s.fail("string is not UTF-8")
			}
		}
		if keep {
			dst = append(dst, s.buf[s.pos:s.pos+size]...)
		}
		s.pos += size
	}
	return nil, errEnd
}

// escape reads one escape, or the two of a surrogate pair.
func (s *scanner) escape() (rune, error) {
	s.pos++ // the backslash
	if s.pos >= len(s.buf) {
		return 0, errEnd
	}
	c := s.buf[s.pos]
	s.pos++
	switch c {
	case '"', '\\', '/':
		return rune(c), nil
	case 'b':
		return '\b', nil
	case 'f':
		return '\f', nil
	case 'n':
		return '\n', nil
	case 'r':
		return '\r', nil
	case 't':
		return '\t', nil
	case 'u':
	default:
		return 0, s.fail("unknown escape \\%c", c)
	}
	r, err := s.hex4()
	if err != nil || !utf16.IsSurrogate(r) {
		return r, err
	}
	if !s.take('\\') || !s.take('u') {
		return 0, s.fail("lone surrogate \\u%04x", r)
	}
	low, err := s.hex4()
	if err != nil {
		return 0, err
	}
	pair := utf16.DecodeRune(r, low)
	if pair == utf8.RuneError {
		return 0, s.fail("lone surrogate \\u%04x", r)
	}
	return pair, nil
}

// hex4 reads the four hexadecimal digits of an escape.
func (s *scanner) hex4() (rune, error) {
	if len(s.buf)-s.pos < 4 {
		return 0, errEnd
	}
	var r rune
	for _, c := range s.buf[s.pos : s.pos+4] {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, s.fail("want four hexadecimal digits")
		}
	}
	s.pos += 4
	return r, nil
}
