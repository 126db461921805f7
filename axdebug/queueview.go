package axdebug

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/axsched/ax"
)

const (
	shownNext    = 12   // of the queue, best rank first
	shownOldest  = 5    // of the queue, longest wait first
	soughtOldest = 1024 // best-ranked waiters among which the oldest are sought
)

// queueView is the queue by rank, and who has waited longest.
type queueView struct {
	Next, Oldest []waiterRow
	Note         string
}

type waiterRow struct {
	Place                          int // in the order of ranks, 1 = next
	Seq                            uint64
	Method, URL                    string
	Lane, Owner, Priority          string
	Waited, Urgent, Attempt, State string
	Tone                           tone // of State
}

// queueOf shows of the best-ranked waiters those that f lets through. waits is
// how many wait in all, those in backoff too.
func queueOf(waiting []ax.Waiter, f filter, waits int, now time.Time) queueView {
	var rows []waiterRow
	var since []time.Time
	for i, w := range waiting {
		if f.lane(w.Lane) {
			rows = append(rows, waiterRowOf(i+1, w, now))
			since = append(since, w.Since)
		}
	}
	q := queueView{Next: rows[:min(len(rows), shownNext)]}
	byAge := make([]int, len(rows))
	for i := range byAge {
		byAge[i] = i
	}
	slices.SortStableFunc(byAge, func(a, b int) int { return since[a].Compare(since[b]) })
	if len(rows) > shownNext { // else all of them are to be seen above
		for _, i := range byAge[:shownOldest] {
			q.Oldest = append(q.Oldest, rows[i])
		}
	}
	if more := waits - len(q.Next); more > 0 && f.Lane == "" {
		q.Note = fmt.Sprintf("%s of %s that wait.", number(len(q.Next)), number(waits))
	}
	return q
}

func waiterRowOf(place int, w ax.Waiter, now time.Time) waiterRow {
	row := waiterRow{
		Place: place, Seq: w.Seq, Method: w.Method, URL: clip(w.URL, maxURL),
		Lane: w.Lane, Owner: spelled(w.Owner), Priority: priorityName(w.Priority),
		Waited: took(now.Sub(w.Since)), Urgent: urgency(w.Rank, now), Attempt: "first", State: "queued", Tone: toneCalm,
	}
	if w.Attempts > 0 {
		row.Attempt = "retry " + strconv.Itoa(w.Attempts)
	}
	if w.Parked {
		row.State, row.Tone = "parked", toneWarn
	}
	if what, _, ok := strings.Cut(w.For, ": "); ok {
		row.State += " for " + what
	}
	return row
}

// urgency tells when aging has made a task urgent. With StrictPriority a rank is
// no time of day, and nothing is told.
func urgency(rank, now time.Time) string {
	left := rank.Sub(now)
	switch {
	case left.Abs() > 48*time.Hour:
		return "–"
	case left > 0:
		return "in " + took(left)
	}
	return "since " + took(max(-left, time.Millisecond))
}

func priorityName(p ax.Priority) string {
	switch p {
	case ax.Low:
		return "low"
	case ax.Normal:
		return "normal"
	case ax.Important:
		return "important"
	case ax.Urgent:
		return "urgent"
	}
	return strconv.Itoa(int(p))
}

// eventRow is one event on the page.
type eventRow struct {
	N           uint64
	Clock       string
	Kind        string
	Tone        tone
	Seq         uint64
	Method, URL string
	Lane, Owner string
	Detail      string
	Machine     string // the time as machines read it
}

func eventRowOf(r record) eventRow {
	return eventRow{
		N: r.N, Clock: r.Time.Format("15:04:05.000"), Machine: r.Time.Format(time.RFC3339Nano),
		Kind: strings.ReplaceAll(r.Kind, "-", " "), Tone: toneOf(r.kind), Seq: r.Seq,
		Method: r.Method, URL: r.URL, Lane: r.Lane, Owner: r.Owner, Detail: detail(r),
	}
}

// detail says in a few words what an event carries beyond its task.
func detail(r record) string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if r.Status > 0 {
		add("%d", r.Status)
	}
	if r.Source != "" && r.Source != ax.FromNetwork.String() {
		add("from %s", r.Source)
	}
	if r.Attempt > 1 || r.Attempt == 1 && r.kind == ax.EventRetryScheduled {
		add("attempt %d", r.Attempt)
	}
	if r.Waited > 0 {
		add("waited %s", took(time.Duration(r.Waited)))
	}
	if r.Took > 0 {
		add("took %s", took(time.Duration(r.Took)))
	}
	if r.Delay > 0 {
		add("for %s", took(time.Duration(r.Delay)))
	}
	if r.Error != "" {
		parts = append(parts, r.Error)
	}
	return strings.Join(parts, " · ")
}
