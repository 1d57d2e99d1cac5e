package envelope

import (
	"encoding/base64"
	"math"
	"strconv"
	"strings"
)

// readUint reads an unsigned integer of the given size in bits.
func readUint(s *scanner, bits int) (uint64, error) {
	tok, real, err := s.number()
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(string(tok), 10, bits)
	if real || err != nil {
		return 0, s.fail("%.40s is no unsigned %d-bit integer", tok, bits)
	}
	return n, nil
}

// readInt reads a signed 64-bit integer.
func readInt(s *scanner) (int64, error) {
	tok, real, err := s.number()
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(string(tok), 10, 64)
	if real || err != nil {
		return 0, s.fail("%.40s is no signed 64-bit integer", tok)
	}
	return n, nil
}

// readBool reads true or false.
func readBool(s *scanner) (bool, error) {
	w, err := s.word()
	if err == nil && w == "null" {
		err = s.fail("want true or false")
	}
	return w == "true", err
}

// readStringOrNull reads a string, or nil for null.
func readStringOrNull(s *scanner) (*string, error) {
	if null, err := s.null(); null || err != nil {
		return nil, err
	}
	v, err := s.str()
	return &v, err
}

// readUintOrNull reads an unsigned 64-bit integer, or nil for null.
func readUintOrNull(s *scanner) (*uint64, error) {
	if null, err := s.null(); null || err != nil {
		return nil, err
	}
	v, err := readUint(s, 64)
	return &v, err
}

// readStrings reads an array of strings.
func readStrings(s *scanner) ([]string, error) {
	list := []string{}
	err := s.array(func(int) error {
		v, err := s.str()
		list = append(list, v)
		return err
	})
	return list, err
}

// readValues reads an array of SQL values.
func readValues(s *scanner, room int) ([]Value, error) {
	list := make([]Value, 0, room)
	err := s.array(func(int) error {
		v, err := readValue(s)
		list = append(list, v)
		return err
	})
	return list, err
}

// readValue reads one SQL value.
func readValue(s *scanner) (Value, error) {
	c, err := s.next()
	if err != nil {
		return Value{}, err
	}
	switch {
	case c == '"':
		str, err := s.str()
		return Value{class: ClassText, str: str}, err
	case c == '{':
		return readTagged(s)
	case c == 'n':
		_, err := s.null()
		return Value{}, err
	case c == '-' || c >= '0' && c <= '9':
		return readNumber(s)
	default:
		return Value{}, s.fail("no SQL value starts with %q", c)
	}
}

// readNumber reads a number: an INTEGER unless it has a fraction or exponent.
func readNumber(s *scanner) (Value, error) {
	tok, real, err := s.number()
	if err != nil {
		return Value{}, err
	}
	if real {
		f, err := strconv.ParseFloat(string(tok), 64)
		if err != nil {
			return Value{}, s.fail("%.40s is no real", tok)
		}
		return Value{class: ClassReal, num: math.Float64bits(f)}, nil
	}
	i, err := strconv.ParseInt(string(tok), 10, 64)
	if err != nil {
		return Value{}, s.fail("%.40s is no signed 64-bit integer", tok)
	}
	return Int(i), nil
}

// readTagged reads {"$blob":...} or {"$real":...}.
func readTagged(s *scanner) (Value, error) {
	var v Value
	members := 0
	err := s.object(func(name string) error {
		if members++; members > 1 {
			return s.fail("a value object has more than one field")
		}
		if name != "$blob" && name != "$real" {
			return s.fail("%q is no value object", name)
		}
		str, err := s.str()
		if err != nil {
			return err
		}
		v, err = taggedValue(s, name, str)
		return err
	})
	if err == nil && members == 0 {
		err = s.fail("a value object has no field")
	}
	return v, err
}

// taggedValue is the value of one of the two value objects.
func taggedValue(s *scanner, name, payload string) (Value, error) {
	if name == "$real" {
		switch payload {
		case "inf":
			return Real(math.Inf(1)), nil
		case "-inf":
			return Real(math.Inf(-1)), nil
		}
		return Value{}, s.fail("%q is no infinite real", payload)
	}
	// The decoder would skip line breaks, and without Strict trailing bits.
	if strings.ContainsAny(payload, "\r\n") {
		return Value{}, s.fail("line break in base64")
	}
	b, err := base64.StdEncoding.Strict().DecodeString(payload)
	if err != nil {
		return Value{}, s.fail("blob: %v", err)
	}
	return Blob(b), nil
}
