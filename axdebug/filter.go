package axdebug

import (
	"net/url"
	"strings"

	"github.com/axsched/ax"
)

// filter chooses what is shown: lanes, waiting tasks and events by a part of
// their lane's name; events also by kind and by a part of what they tell.
type filter struct {
	Kind string // a kind's name, "problems", "ends", or "" for all
	Lane string // part of a lane's name, without case
	Text string // part of URL, owner or error, without case
}

func filterOf(q url.Values) filter {
	return filter{
		Kind: q.Get("kind"),
		Lane: strings.TrimSpace(q.Get("lane")),
		Text: strings.TrimSpace(q.Get("q")),
	}
}

// Any tells whether anything is filtered out.
func (f filter) Any() bool { return f != filter{} }

func (f filter) lane(name string) bool { return contains(name, f.Lane) }

// wants tells whether events of kind k are shown.
func (f filter) wants(k ax.EventKind) bool {
	switch f.Kind {
	case "":
		return true
	case "problems":
		return toneOf(k) == toneBad || toneOf(k) == toneWarn
	case "ends":
		return k == ax.EventSucceeded || k == ax.EventFailed || k == ax.EventCanceled || k == ax.EventRejected
	}
	return f.Kind == k.String()
}

func (f filter) match(r *record) bool {
	return f.wants(r.kind) && f.lane(r.Lane) &&
		(contains(r.URL, f.Text) || contains(r.Owner, f.Text) || contains(r.Error, f.Text))
}

// contains is strings.Contains without case.
func contains(s, part string) bool {
	return part == "" || strings.Contains(strings.ToLower(s), strings.ToLower(part))
}

// kindNames are the names of all kinds of events. An unknown kind is spelled
// with its number, in parentheses.
func kindNames() []string {
	var names []string
	for k := ax.EventKind(0); ; k++ {
		name := k.String()
		if strings.Contains(name, "(") {
			return names
		}
		names = append(names, name)
	}
}

// tone is how a thing is coloured, beside what its text says.
type tone string

const (
	toneCalm tone = "calm"
	toneGood tone = "good"
	toneWarn tone = "warn"
	toneBad  tone = "bad"
)

func toneOf(k ax.EventKind) tone {
	switch k {
	case ax.EventSucceeded, ax.EventBreakerClosed:
		return toneGood
	case ax.EventFailed, ax.EventRejected, ax.EventBreakerOpened:
		return toneBad
	case ax.EventRetryScheduled, ax.EventOverBudget, ax.EventFellBack, ax.EventLanePaused,
		ax.EventBreakerHalfOpen, ax.EventBreakerRamping:
		return toneWarn
	}
	return toneCalm
}
