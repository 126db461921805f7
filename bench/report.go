package bench

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// report is all that RESULTS.md says.
type report struct {
	date     time.Time
	took     time.Duration
	quick    bool // the numbers say nothing, so no mark is judged
	machine  string
	versions []string
	outcomes []outcome
}

// write renders the report as Markdown.
func (r report) write(w io.Writer) error {
	var b strings.Builder
	b.WriteString("# Results\n\n")
	b.WriteString("Written by `go run -C bench ./cmd/report`; do not edit. What is measured and how: [the package's documentation](doc.go).\n\n")
	fmt.Fprintf(&b, "- %s, in %v\n- %s\n", r.date.UTC().Format("2006-01-02 15:04 MST"), r.took.Round(time.Second), r.machine)
	if len(r.versions) > 0 {
		fmt.Fprintf(&b, "- %s\n", strings.Join(r.versions, ", "))
	}
	if r.quick {
		b.WriteString("\n**A quick run: it shows that all experiments run, its numbers say nothing.**\n")
	}
	b.WriteString("\nIn brackets: the interval of 95 % confidence. A mark is met or missed if the whole interval is on one side of it, otherwise open.\n")
	r.writeMarks(&b)
	r.writeReasons(&b)
	for _, o := range r.outcomes {
		o.write(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeMarks is the table that one wants to see first.
func (r report) writeMarks(b *strings.Builder) {
	b.WriteString("\n## Marks\n\n| | what | measured | mark | |\n|---|---|---|---|---|\n")
	for _, o := range r.outcomes {
		for _, m := range o.marks {
			fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n", o.id, m.what, m.of(o), m.bound(), r.judge(o, m))
		}
	}
}

// writeReasons says of each experiment with a mark that is not met what the time or
// memory goes into.
func (r report) writeReasons(b *strings.Builder) {
	title := "\n## What is short of its mark, and why\n\n"
	for _, o := range r.outcomes {
		short := slices.ContainsFunc(o.marks, func(m mark) bool { return r.judge(o, m) != met })
		if short && o.short != "" {
			fmt.Fprintf(b, "%s- **%s**: %s\n", title, o.id, o.short)
			title = ""
		}
	}
}

func (r report) judge(o outcome, m mark) verdict {
	if r.quick {
		return open
	}
	return m.judge(m.of(o))
}

// counts are how many marks have each verdict.
func (r report) counts() map[verdict]int {
	n := map[verdict]int{}
	for _, o := range r.outcomes {
		for _, m := range o.marks {
			n[r.judge(o, m)]++
		}
	}
	return n
}

// write renders one experiment: a table for each group, the first contestant
// being its yardstick.
func (o outcome) write(b *strings.Builder) {
	fmt.Fprintf(b, "\n## %s. %s\n\n%s %d rounds.\n", o.id, o.title, o.about, o.rounds)
	for _, g := range o.groups {
		fmt.Fprintf(b, "\n### %s: %s\n\n| | ÷ %s |", o.id, g.label, g.contestants[0].name())
		for _, m := range o.columns {
			fmt.Fprintf(b, " %s |", m)
		}
		b.WriteString("\n|---|" + strings.Repeat("---|", len(o.columns)+1) + "\n")
		base := contender{g.label, g.contestants[0].name(), o.columns[0]}
		for _, c := range g.contestants {
			it := contender{g.label, c.name(), o.columns[0]}
			fmt.Fprintf(b, "| %s | %s |", c.name(), ratioOf(it.in(o), base.in(o)))
			for _, m := range o.columns {
				it.metric = m
				fmt.Fprintf(b, " %s |", number(median(it.in(o))))
			}
			b.WriteByte('\n')
		}
	}
	o.writeHow(b)
}

// writeHow says what each contestant is, once.
func (o outcome) writeHow(b *strings.Builder) {
	b.WriteByte('\n')
	seen := map[string]bool{}
	for _, g := range o.groups {
		for _, c := range g.contestants {
			if !seen[c.name()] {
				seen[c.name()] = true
				fmt.Fprintf(b, "- **%s**: %s\n", c.name(), c.how())
			}
		}
	}
}

// String is the median and its interval.
func (e estimate) String() string {
	return fmt.Sprintf("%s [%s, %s]", number(e.mid), number(e.low), number(e.high))
}

// number prints what matters of v: whole numbers from 100 on, else up to three
// decimals.
func number(v float64) string {
	switch abs := math.Abs(v); {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "–"
	case abs >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case abs >= 10:
		return trimmed(v, 1)
	default:
		return trimmed(v, 3)
	}
}

func trimmed(v float64, decimals int) string {
	s := strconv.FormatFloat(v, 'f', decimals, 64)
	s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	if s == "-0" {
		return "0"
	}
	return s
}
