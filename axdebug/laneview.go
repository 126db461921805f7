package axdebug

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/axsched/ax"
)

const (
	shownLanes  = 100 // the busiest ones, when there are more
	shownOwners = 50  // likewise
)

type laneRow struct {
	Name                     string
	State                    string
	Tone                     tone
	Left                     *countdown
	Paused                   bool
	Active, Limit            string
	Load                     int // percent of the limit, for the bar; -1 without a limit
	Queued, Parked           string
	Attempts, Failed, FailPc string
	Wait, Service            string
}

type ownerRow struct{ Name, Active, Queued, Started, Over string }

// laneRows are the busiest lanes that f lets through, by name, so that a row
// stays where it is while its numbers change.
func laneRows(st ax.Stats, f filter, now time.Time) (rows []laneRow, hidden string) {
	var found []busyness
	for name, l := range st.Lanes {
		if f.lane(name) {
			found = append(found, busynessOf(name, &l))
		}
	}
	if rest := len(found) - shownLanes; rest > 0 {
		slices.SortFunc(found, busyness.compare)
		found = found[:shownLanes]
		hidden = plural(rest, "quieter lane") + " not shown; filter by name to find them."
	}
	slices.SortFunc(found, func(a, b busyness) int { return strings.Compare(a.name, b.name) })
	for _, b := range found {
		rows = append(rows, laneRowOf(b.name, st.Lanes[b.name], now))
	}
	return rows, hidden
}

// busyness is what decides which lanes are shown: what is in trouble, then what
// has most to do, then what has done most.
type busyness struct {
	name     string
	trouble  bool
	work     int
	attempts uint64
}

func busynessOf(name string, l *ax.LaneStats) busyness {
	return busyness{name, l.Paused || l.Breaker != ax.BreakerClosed, l.Active + l.Queued + l.Parked, l.Attempts}
}

// compare puts the busier first.
func (b busyness) compare(than busyness) int {
	if b.trouble != than.trouble {
		if b.trouble {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(than.work, b.work), cmp.Compare(than.attempts, b.attempts), strings.Compare(b.name, than.name))
}

func laneRowOf(name string, l ax.LaneStats, now time.Time) laneRow {
	row := laneRow{
		Name: name, Paused: l.Paused, Active: number(l.Active), Load: -1,
		Queued: number(l.Queued), Parked: number(l.Parked),
		Attempts: number(l.Attempts), Failed: number(l.Failures), FailPc: percent(l.Failures, l.Attempts),
		Wait: quantiles(l.Wait), Service: quantiles(l.Service),
	}
	if l.MaxConcurrent > 0 && l.MaxConcurrent < math.MaxInt {
		row.Limit = number(l.MaxConcurrent)
		row.Load = min(100, 100*l.Active/l.MaxConcurrent)
	}
	row.State, row.Tone, row.Left = laneState(l, now)
	return row
}

// laneState is the word for what a lane's breaker, or a pause, does to it.
func laneState(l ax.LaneStats, now time.Time) (word string, t tone, left *countdown) {
	switch {
	case l.Breaker == ax.BreakerOpen:
		if !l.BreakerUntil.IsZero() {
			left = until(l.BreakerUntil, now)
		}
		return "open", toneBad, left
	case l.Paused:
		if !l.PausedUntil.IsZero() {
			left = until(l.PausedUntil, now)
		}
		return "paused", toneWarn, left
	case l.Breaker != ax.BreakerClosed:
		return l.Breaker.String(), toneWarn, nil
	}
	return "closed", toneGood, nil
}

// ownerRows are the owners with a budget by name, the busiest if they are many.
func ownerRows(st ax.Stats) (rows []ownerRow, hidden string) {
	names := slices.Collect(maps.Keys(st.Owners))
	slices.SortFunc(names, func(a, b string) int {
		x, y := st.Owners[a], st.Owners[b]
		return cmp.Or(cmp.Compare(y.Active+y.Queued, x.Active+x.Queued), cmp.Compare(y.Over, x.Over), strings.Compare(a, b))
	})
	if rest := len(names) - shownOwners; rest > 0 {
		names = names[:shownOwners]
		hidden = plural(rest, "quieter owner") + " not shown."
	}
	slices.Sort(names)
	for _, name := range names {
		o := st.Owners[name]
		rows = append(rows, ownerRow{spelled(name), number(o.Active), number(o.Queued), number(o.Started), number(o.Over)})
	}
	return rows, hidden
}
