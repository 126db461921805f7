package axdebug

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// panel is one drawing of the chart: lines over the last five minutes on one
// scale. Its coordinates are seconds across and percent of the scale down.
type panel struct {
	Key, Title  string
	Top, Middle string // of the scale
	End         int64  // the last second drawn, in Unix time
	Lines       []line
	Summary     string // for those who do not see it
	Empty       bool   // nothing has been watched yet
}

type line struct {
	Name   string
	Now    string
	Points string // of a polyline
	Values string // one a second up to End, for the read-out
}

// panels draws points: what stands, and what happened each second.
func panels(points []second, now time.Time) []panel {
	type reading struct {
		name string
		of   func(second) int
	}
	draw := func(key, title string, readings ...reading) panel {
		p := panel{Key: key, Title: title, End: now.Unix() - 1, Empty: len(points) == 0}
		top := 0
		for _, r := range readings {
			for _, s := range points {
				top = max(top, r.of(s))
			}
		}
		top = niceTop(top)
		p.Top, p.Middle = number(top), strings.TrimSuffix(strconv.FormatFloat(float64(top)/2, 'f', 1, 64), ".0")
		var told []string
		for _, r := range readings {
			l := lineOf(r.name, points, top, r.of)
			p.Lines = append(p.Lines, l)
			told = append(told, fmt.Sprintf("%s %s", r.name, l.Now))
		}
		p.Summary = fmt.Sprintf("%s over the last five minutes. Latest: %s. Scale 0 to %s.", title, strings.Join(told, ", "), p.Top)
		return p
	}
	return []panel{
		draw("tasks", "Tasks at once",
			reading{"active", func(s second) int { return s.active }},
			reading{"queued", func(s second) int { return s.queued }},
			reading{"parked", func(s second) int { return s.parked }}),
		draw("attempts", "Attempts per second",
			reading{"started", func(s second) int { return s.started }},
			reading{"failed", func(s second) int { return s.failed }}),
	}
}

// lineOf draws one reading, the newest second at the right edge.
func lineOf(name string, points []second, top int, of func(second) int) line {
	var xy, values strings.Builder
	first := chartSpan - len(points)
	for i, s := range points {
		n := of(s)
		fmt.Fprintf(&xy, "%d,%s ", first+i, strconv.FormatFloat(100-100*float64(n)/float64(top), 'f', -1, 32))
		values.WriteString(strconv.Itoa(n) + " ")
	}
	l := line{Name: name, Now: "–", Points: strings.TrimSpace(xy.String()), Values: strings.TrimSpace(values.String())}
	if len(points) > 0 {
		l.Now = number(of(points[len(points)-1]))
	}
	return l
}

// niceTop is the smallest of 4, 10, 20, 50, 100, 200 … that is not below n.
func niceTop(n int) int {
	if n <= 4 {
		return 4
	}
	for scale := 1; scale < math.MaxInt/100; scale *= 10 {
		for _, step := range []int{1, 2, 5} {
			if t := 10 * step * scale; n <= t {
				return t
			}
		}
	}
	return n
}
