package kafkaprops

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// plain is a number that librdkafka and everybody else read in the same way.
// It reads with C's strtol, which takes a leading zero for base 8, stops at
// the first sign that does not belong to a number, and cuts what is left down
// to 32 bits.
var plain = regexp.MustCompile(`^(-?(0|[1-9][0-9]*)|0[xX][0-9a-fA-F]+)$`)

// fraction is such a number for a property with a fraction.
var fraction = regexp.MustCompile(`^(0|[1-9][0-9]*)(\.[0-9]+)?$`)

// Number reads a whole number as librdkafka does: decimal, or hexadecimal with
// 0x before it. What librdkafka would read as another number than is written
// is none.
func Number(value string) (n int64, ok bool) {
	if !plain.MatchString(value) {
		return 0, false
	}
	n, err := strconv.ParseInt(value, 0, 64)
	return n, err == nil && n >= math.MinInt32 && n <= math.MaxInt32
}

// truth reads a truth value as librdkafka does.
func truth(value string) (is, ok bool) {
	switch strings.ToLower(value) {
	case "true", "t", "1":
		return true, true
	case "false", "f", "0":
		return false, true
	}
	return false, false
}

// refuse says why librdkafka would not take a value, or would take it for
// another one than is written; "" when neither is so.
func (p property) refuse(value string) (reason, allowed string) {
	switch p.kind {
	case boolean:
		if _, ok := truth(value); !ok {
			return fmt.Sprintf("%q is neither true nor false", value), "true, false"
		}
	case integer:
		if n, ok := Number(value); !ok || n < p.least || n > p.most {
			return fmt.Sprintf("%q is not such a number", value), fmt.Sprintf("%d to %d, in decimal digits or hexadecimal with 0x", p.least, p.most)
		}
	case number:
		n, err := strconv.ParseFloat(value, 64)
		if !fraction.MatchString(value) || err != nil || n > float64(p.most) {
			return fmt.Sprintf("%q is not such a number", value), fmt.Sprintf("%d to %d, in decimal digits", p.least, p.most)
		}
	case enum:
		if !oneOf(p.words, value) {
			return fmt.Sprintf("%q is none of its values", value), strings.ReplaceAll(p.words, " ", ", ")
		}
	case flags:
		for one := range strings.SplitSeq(value, ",") {
			if one = strings.TrimLeft(strings.TrimSpace(one), "+-"); one != "" && !oneOf(p.words, one) {
				return fmt.Sprintf("%q is none of its values", one), strings.ReplaceAll(p.words, " ", ", ")
			}
		}
	}
	return "", ""
}

// oneOf reports whether a value is among words, in upper or lower case.
func oneOf(words, value string) bool {
	for word := range strings.FieldsSeq(words) {
		if strings.EqualFold(word, value) {
			return true
		}
	}
	return false
}

// Normal is the spelling that librdkafka itself has for a value of the
// property: numbers in decimal digits, true and false, and words in its own letters.
// Anything else is returned as it is.
func Normal(name, value string) string {
	p, canonical, _ := find(name)
	switch {
	case canonical == "acks" && strings.EqualFold(value, "all"):
		return "-1"
	case canonical == "sasl.mechanism":
		return strings.ToUpper(value) // it takes no other
	}
	switch p.kind {
	case boolean:
		if is, ok := truth(value); ok {
			return strconv.FormatBool(is)
		}
	case integer:
		if n, ok := Number(value); ok {
			return strconv.FormatInt(n, 10)
		}
	case enum:
		for word := range strings.FieldsSeq(p.words) {
			if strings.EqualFold(word, value) {
				return word
			}
		}
	}
	return value
}
