package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"
)

// table prints one line for each second of the script.
func table(out io.Writer, naive, gated *contestant) {
	fmt.Fprintln(out, "              |  naive          |  ax")
	fmt.Fprintln(out, "  s  backend  |  sent  failures |  sent  failures  stale  breaker")
	for s := range seconds {
		from := time.Duration(s) * time.Second
		fmt.Fprintf(out, " %2d  %-8s | %5d  %8d | %5d  %8d  %5d  %s\n", s, phase(from),
			naive.between(from, from+time.Second), naive.saw[failures][s],
			gated.between(from, from+time.Second), gated.saw[failures][s], gated.saw[stale][s], gated.states[s])
	}
}

func phase(at time.Duration) string {
	switch {
	case at < healthy:
		return "healthy"
	case at < healthy+failing:
		return "60 % bad"
	case at < healthy+failing+dead:
		return "dead"
	}
	return "back"
}

const (
	width, height = 760, 320
	left, top     = 56, 48
	plotW, plotH  = width - left - 16, height - top - 44
	naiveColor    = "#c2410c"
	gatedColor    = "#0f766e"
	muted         = "#57606a"
)

// drawing is the chart: requests a second that each backend saw.
func drawing(naive, gated *contestant) []byte {
	var b bytes.Buffer
	ceiling := 1
	for s := range seconds {
		ceiling = max(ceiling, perSecond(naive, s), perSecond(gated, s))
	}
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="system-ui,sans-serif" font-size="13">`+"\n", width, height)
	fmt.Fprintf(&b, `<title>Requests a second that the backend saw during an outage</title>`+"\n")
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", width, height)
	band(&b, healthy, healthy+failing, "60 % errors", "#fff1e5")
	band(&b, healthy+failing, healthy+failing+dead, "dead", "#ffe2e0")
	for i := range 5 {
		n := ceiling * i / 4
		fmt.Fprintf(&b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#d0d7de"/><text x="%d" y="%.1f" text-anchor="end" fill="%s">%d</text>`+"\n",
			left, left+plotW, y(n, ceiling), y(n, ceiling), left-8, y(n, ceiling)+4, muted, n)
	}
	for s := 0; s <= seconds; s++ {
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle" fill="%s">%d</text>`+"\n", x(time.Duration(s)*time.Second), top+plotH+18, muted, s)
	}
	line(&b, naive, ceiling, naiveColor)
	line(&b, gated, ceiling, gatedColor)
	fmt.Fprintf(&b, `<text x="%d" y="20"><tspan font-weight="600">Requests a second at the backend</tspan><tspan dx="16" fill="%s">naive client, 3 retries</tspan><tspan dx="16" fill="%s">ax</tspan></text>`+"\n",
		left, naiveColor, gatedColor)
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle" fill="%s">seconds</text>`+"\n</svg>\n", left+plotW/2, height-8, muted)
	return b.Bytes()
}

func band(b *bytes.Buffer, from, to time.Duration, name, fill string) {
	fmt.Fprintf(b, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/><text x="%.1f" y="%d" text-anchor="middle" fill="%s">%s</text>`+"\n",
		x(from), top, x(to)-x(from), plotH, fill, (x(from)+x(to))/2, top-6, muted, name)
}

func line(b *bytes.Buffer, c *contestant, ceiling int, color string) {
	points := make([]string, seconds)
	for s := range seconds {
		points[s] = fmt.Sprintf("%.1f,%.1f", x(time.Duration(s)*time.Second+time.Second/2), y(perSecond(c, s), ceiling))
	}
	fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2.5" stroke-linejoin="round"/>`+"\n", strings.Join(points, " "), color)
}

func perSecond(c *contestant, s int) int {
	from := time.Duration(s) * time.Second
	return c.between(from, from+time.Second)
}

func x(at time.Duration) float64 {
	return left + plotW*at.Seconds()/float64(seconds)
}

func y(n, ceiling int) float64 {
	return top + plotH - float64(plotH)*float64(n)/float64(ceiling)
}
