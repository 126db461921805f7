package bench

import "fmt"

// mark is a bound that a number of ax has to keep.
type mark struct {
	what    string
	of      func(outcome) estimate
	limit   float64
	atLeast bool // limit is the least, not the greatest
}

// verdict is how a mark and an estimate go together.
type verdict string

const (
	met    verdict = "met"
	missed verdict = "MISSED"
	open   verdict = "open" // the limit lies within the interval
)

func (m mark) judge(e estimate) verdict {
	low, high, limit := e.low, e.high, m.limit
	if m.atLeast {
		low, high, limit = -high, -low, -limit
	}
	switch {
	case high <= limit:
		return met
	case low > limit:
		return missed
	}
	return open
}

// bound is the mark in words.
func (m mark) bound() string {
	if m.atLeast {
		return "≥ " + number(m.limit)
	}
	return "≤ " + number(m.limit)
}

// contender names a reading: a metric of a contestant in a group.
type contender struct {
	group, name string
	metric      metric
}

func (c contender) in(o outcome) []float64 { return o.results[c.group][c.name].of(c.metric) }

// atMost bounds c itself.
func atMost(limit float64, c contender) mark {
	return mark{
		what:  fmt.Sprintf("%s, %s: %s", c.group, c.name, c.metric),
		of:    func(o outcome) estimate { return estimateOf(c.in(o)) },
		limit: limit,
	}
}

// atLeast bounds c itself from below.
func atLeast(limit float64, c contender) mark {
	m := atMost(limit, c)
	m.atLeast = true
	return m
}

// ratioAtMost bounds c by a multiple of the same metric of base, which competes
// in the same group.
func ratioAtMost(limit float64, c contender, base string) mark {
	b := contender{c.group, base, c.metric}
	return mark{
		what:  fmt.Sprintf("%s, %s: %s ÷ %s", c.group, c.name, c.metric, base),
		of:    func(o outcome) estimate { return ratioOf(c.in(o), b.in(o)) },
		limit: limit,
	}
}

// ratioAtLeast is ratioAtMost from below.
func ratioAtLeast(limit float64, c contender, base string) mark {
	m := ratioAtMost(limit, c, base)
	m.atLeast = true
	return m
}

// beyondAtMost bounds what c has more of than base.
func beyondAtMost(limit float64, c contender, base string) mark {
	b := contender{c.group, base, c.metric}
	return mark{
		what:  fmt.Sprintf("%s, %s: %s beyond %s", c.group, c.name, c.metric, base),
		of:    func(o outcome) estimate { return differenceOf(c.in(o), b.in(o)) },
		limit: limit,
	}
}
