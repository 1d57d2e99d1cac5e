package envelope

import (
	"encoding/base64"
	"math"
	"strconv"
	"strings"
)

// uint reads an unsigned integer of the given size in bits.
func (s *scanner) uint(bits int) (uint64, error) {
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

// int reads a signed 64-bit integer.
func (s *scanner) int() (int64, error) {
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

// boolean reads true or false.
func (s *scanner) boolean() (bool, error) {
	w, err := s.word()
	if err == nil && w == "null" {
		err = s.fail("want true or false")
	}
	return w == "true", err
}

// strOrNull reads a string, or nil for null.
func (s *scanner) strOrNull() (*string, error) {
	if null, err := s.null(); null || err != nil {
		return nil, err
	}
	v, err := s.str()
	return &v, err
}

// uintOrNull reads an unsigned 64-bit integer, or nil for null.
func (s *scanner) uintOrNull() (*uint64, error) {
	if null, err := s.null(); null || err != nil {
		return nil, err
	}
	v, err := s.uint(64)
	return &v, err
}

// strings reads an array of strings.
func (s *scanner) strings() ([]string, error) {
	list := []string{}
	err := s.array(func(int) error {
		v, err := s.str()
		list = append(list, v)
		return err
	})
	return list, err
}

// values reads an array of SQL values.
func (s *scanner) values(room int) ([]Value, error) {
	list := make([]Value, 0, room)
	err := s.array(func(int) error {
		v, err := s.value()
		list = append(list, v)
		return err
	})
	return list, err
}

// value reads one SQL value.
func (s *scanner) value() (Value, error) {
	c, err := s.next()
	if err != nil {
		return Value{}, err
	}
	switch {
	case c == '"':
		str, err := s.str()
		return Value{class: ClassText, str: str}, err
	case c == '{':
		return s.tagged()
	case c == 'n':
		_, err := s.null()
		return Value{}, err
	case c == '-' || c >= '0' && c <= '9':
		return s.numeric()
	default:
		return Value{}, s.fail("no SQL value starts with %q", c)
	}
}

// numeric reads a number: an INTEGER unless it has a fraction or exponent.
func (s *scanner) numeric() (Value, error) {
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

// tagged reads {"$blob":...} or {"$real":...}.
func (s *scanner) tagged() (Value, error) {
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
		v, err = s.tag(name, str)
		return err
	})
	if err == nil && members == 0 {
		err = s.fail("a value object has no field")
	}
	return v, err
}

// tag is the value of one of the two value objects.
func (s *scanner) tag(name, payload string) (Value, error) {
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
