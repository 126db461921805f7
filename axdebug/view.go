package axdebug

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/axsched/ax"
)

// view is all that the page says, as text: the templates only arrange it.
type view struct {
	Title   string
	Clock   string
	Control bool
	Filter  filter
	Kinds   []string

	Tiles        []tile
	Notices      []notice
	Charts       []panel
	Lanes        []laneRow
	NoLanes      string // why the list is empty
	HiddenLanes  string // how many more there are
	Owners       []ownerRow
	HiddenOwners string // likewise
	Queue        queueView
	Advice       []adviceRow
	DryRun       []tile
	Events       []eventRow
	Since        string // of the events
}

// tile is one number with what belongs to it.
type tile struct{ Key, Name, Value, Note string }

// notice is a thing that a reader should know first.
type notice struct {
	Key  string
	Tone tone
	Text string
	Left *countdown
}

// countdown is a span of time that the page counts down by itself.
type countdown struct {
	Text string
	Ms   int64
}

type adviceRow struct{ Lane, Field, Current, Suggested, Why string }

func (h *handler) view(f filter) view {
	now := time.Now()
	st := h.s.Stats()
	waiting := h.s.Waiting(soughtOldest)
	v := view{
		Title: h.opts.Title, Clock: now.Format(time.TimeOnly), Control: h.opts.Control,
		Filter: f, Kinds: kindNames(),
		Tiles: tiles(st, waiting, now), Notices: notices(st, now),
		DryRun: dryRunTiles(st.Would),
		Queue:  queueOf(waiting, f, st.Queued+st.Parked, now),
	}
	v.Lanes, v.HiddenLanes = laneRows(st, f, now)
	v.Owners, v.HiddenOwners = ownerRows(st)
	if len(v.Lanes) == 0 {
		v.NoLanes = "No lane yet: each appears with its first task."
		if f.Lane != "" && len(st.Lanes) > 0 {
			v.NoLanes = "No lane's name contains “" + f.Lane + "”."
		}
	}
	for _, a := range h.s.Advice() {
		if f.lane(a.Lane) {
			v.Advice = append(v.Advice, adviceRow{cmp.Or(a.Lane, "scheduler"), a.Field, setting(a.Current), setting(a.Suggested), a.Why})
		}
	}
	for _, r := range h.rec.latest(f) {
		v.Events = append(v.Events, eventRowOf(r))
	}
	points, since := h.rec.history(now)
	v.Charts, v.Since = panels(points, now), since.Format(time.TimeOnly)
	return v
}

func tiles(st ax.Stats, waiting []ax.Waiter, now time.Time) []tile {
	oldest := "nobody waits"
	if len(waiting) > 0 {
		w := slices.MinFunc(waiting, func(a, b ax.Waiter) int { return a.Since.Compare(b.Since) })
		oldest = "longest wait " + took(now.Sub(w.Since))
	}
	finished := st.Succeeded + st.Failed + st.Canceled + st.Rejected
	return []tile{
		{"active", "Active", number(st.Active), number(st.Attempts) + " attempts so far"},
		{"queued", "Queued", number(st.Queued), oldest},
		{"parked", "Parked", number(st.Parked), "in backoff, over budget, or held by a breaker or a pause"},
		{"finished", "Finished", number(finished), fmt.Sprintf("%s\u00a0succeeded · %s\u00a0failed · %s\u00a0canceled · %s\u00a0rejected",
			number(st.Succeeded), number(st.Failed), number(st.Canceled), number(st.Rejected))},
		{"dedupe", "Dedupe hits", percent(st.Coalesced+st.WindowHits, st.Submitted), fmt.Sprintf("%s joined a flight · %s from the window · %s kept, %s",
			number(st.Coalesced), number(st.WindowHits), plural(st.DedupeEntries, "answer"), size(st.DedupeBytes))},
		{"retries", "Retries", number(st.Retries), percent(st.Retries, st.Attempts) + " of attempts · " + number(st.Fallbacks) + " answered by a fallback"},
	}
}

// dryRunTiles are what limits would have done; none if they would not have.
func dryRunTiles(w ax.WouldStats) []tile {
	if w.Queued+w.Rejected+w.Superseded+w.Cooled+w.Held == 0 {
		return nil
	}
	return []tile{
		{"would-queued", "Would have waited", number(w.Queued), "half of them for " + took(w.Wait.P50) + ", p99 " + took(w.Wait.P99)},
		{"would-rejected", "Would have been refused", number(w.Rejected), ""},
		{"would-held", "Would have been held", number(w.Held), "by a pause or an open breaker"},
		{"would-superseded", "Would have been superseded", number(w.Superseded), ""},
		{"would-cooled", "Would have been cooled down", number(w.Cooled), ""},
	}
}

// notices lists the lanes whose breaker or pause holds something back.
func notices(st ax.Stats, now time.Time) []notice {
	var all []notice
	var held []string
	for name, l := range st.Lanes {
		if l.Paused || l.Breaker != ax.BreakerClosed {
			held = append(held, name)
		}
	}
	slices.Sort(held)
	for _, name := range held {
		l := st.Lanes[name]
		if l.Paused {
			all = append(all, pauseNotice(name, l, now))
		}
		if l.Breaker != ax.BreakerClosed {
			all = append(all, breakerNotice(name, l, now))
		}
	}
	const most = 8
	if rest := len(all) - most; rest > 0 {
		all = append(all[:most], notice{Key: "more", Tone: toneWarn, Text: "and " + number(rest) + " more."})
	}
	return all
}

func pauseNotice(name string, l ax.LaneStats, now time.Time) notice {
	n := notice{Key: "pause-" + name, Tone: toneWarn, Text: "Lane " + name + " is paused until it is resumed."}
	if !l.PausedUntil.IsZero() {
		n.Text, n.Left = "Lane "+name+" is paused, for another ", until(l.PausedUntil, now)
	}
	return n
}

func breakerNotice(name string, l ax.LaneStats, now time.Time) notice {
	n := notice{Key: "breaker-" + name, Tone: toneWarn}
	switch l.Breaker {
	case ax.BreakerOpen:
		n.Tone = toneBad
		n.Text = "The breaker of lane " + name + " is open until it is closed by hand."
		if !l.BreakerUntil.IsZero() {
			n.Text, n.Left = "The breaker of lane "+name+" is open and probes in ", until(l.BreakerUntil, now)
		}
	case ax.BreakerHalfOpen:
		n.Text = "The breaker of lane " + name + " is probing."
	default:
		n.Text = "Lane " + name + " is on its way back to its full limits."
	}
	return n
}

func until(t, now time.Time) *countdown {
	left := max(0, t.Sub(now))
	return &countdown{Text: took(max(left, time.Millisecond)), Ms: left.Milliseconds()}
}
