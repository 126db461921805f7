package ax

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"
)

// canonicalJSON returns a form of b that is the same for all texts that differ only in
// white space, in the order of the names in an object, and in how a string is
// escaped. Numbers keep their literal: 1.0 is not 1. Of names that occur twice the
// order is kept, since parsers disagree on which one counts. The form is for hashing
// only. It is false for what is not valid JSON in UTF-8.
func canonicalJSON(b []byte) ([]byte, bool) {
	if !utf8.Valid(b) || !json.Valid(b) {
		return nil, false
	}
	c := canonicalizer{text: b, out: make([]byte, 0, len(b))}
	c.value()
	return c.out, true
}

// canonicalizer copies a text to out, value by value. The text is known to be valid,
// so nothing is checked, and the depth is bounded by encoding/json.
type canonicalizer struct {
	text, out []byte
	pos       int // in text
}

// member is where in out an object's name and value went.
type member struct {
	name       string
	start, end int
}

// next skips white space and returns the byte there.
func (c *canonicalizer) next() byte {
	for strings.IndexByte(" \t\r\n", c.text[c.pos]) >= 0 {
		c.pos++
	}
	return c.text[c.pos]
}

// skip steps over a byte that stands for itself, and over white space before it.
func (c *canonicalizer) skip(b byte) bool {
	if c.next() != b {
		return false
	}
	c.pos++
	return true
}

func (c *canonicalizer) value() {
	switch c.next() {
	case '{':
		c.object()
	case '[':
		c.array()
	case '"':
		c.string()
	default:
		c.literal()
	}
}

func (c *canonicalizer) array() {
	c.skip('[')
	c.out = append(c.out, '[')
	for !c.skip(']') {
		c.value()
		c.skip(',')
	}
	c.out = append(c.out, ']')
}

func (c *canonicalizer) object() {
	c.skip('{')
	c.out = append(c.out, '{')
	var members []member
	for !c.skip('}') {
		m := member{start: len(c.out)}
		c.next()
		m.name = c.string()
		c.skip(':')
		c.value()
		m.end = len(c.out)
		members = append(members, m)
		c.skip(',')
	}
	c.sort(members)
	c.out = append(c.out, '}')
}

// sort brings the members, which end out, in the order of their names.
func (c *canonicalizer) sort(members []member) {
	byName := func(x, y member) int { return strings.Compare(x.name, y.name) }
	if slices.IsSortedFunc(members, byName) {
		return
	}
	start := members[0].start
	was := slices.Clone(c.out[start:])
	slices.SortStableFunc(members, byName)
	c.out = c.out[:start]
	for _, m := range members {
		c.out = append(c.out, was[m.start-start:m.end-start]...)
	}
}

// literal copies a number, true, false or null.
func (c *canonicalizer) literal() {
	start := c.pos
	for c.pos < len(c.text) && strings.IndexByte(" \t\r\n,]}", c.text[c.pos]) < 0 {
		c.pos++
	}
	c.out = append(append(c.out, c.text[start:c.pos]...), ',')
}

// string writes what a string means, or its literal where decoding would lose
// something: lone surrogates all decode to U+FFFD. It returns the meaning.
func (c *canonicalizer) string() string {
	start := c.pos
	for c.pos++; c.text[c.pos] != '"'; c.pos++ {
		if c.text[c.pos] == '\\' {
			c.pos++
		}
	}
	c.pos++
	literal := c.text[start:c.pos]
	s := unquoteJSON(literal)
	if strings.ContainsRune(s, utf8.RuneError) {
		c.out = appendField(append(c.out, '\''), string(literal))
	} else {
		c.out = appendField(append(c.out, '"'), s)
	}
	return s
}

// unquoteJSON decodes a valid string literal.
func unquoteJSON(literal []byte) string {
	if plain := literal[1 : len(literal)-1]; !slices.Contains(plain, '\\') {
		return string(plain)
	}
	var s string
	if err := json.Unmarshal(literal, &s); err != nil {
		panic("ax: a valid JSON string does not decode: " + err.Error())
	}
	return s
}
