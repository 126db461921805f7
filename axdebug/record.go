package axdebug

import (
	"time"

	"github.com/axsched/ax"
)

// record is what is kept of an event: text that may be shown, and nothing that
// holds on to a task, its body or its context.
type record struct {
	N       uint64    `json:"n"` // order of recording, from 1
	Time    time.Time `json:"time"`
	Kind    string    `json:"kind"`
	Seq     uint64    `json:"seq,omitempty"`
	Lane    string    `json:"lane,omitempty"`
	Owner   string    `json:"owner,omitempty"`
	Method  string    `json:"method,omitempty"`
	URL     string    `json:"url,omitempty"`
	Attempt int       `json:"attempt,omitempty"`
	Waited  seconds   `json:"waited_seconds,omitempty"`
	Took    seconds   `json:"took_seconds,omitempty"`
	Delay   seconds   `json:"delay_seconds,omitempty"`
	Status  int       `json:"status,omitempty"`
	Source  string    `json:"source,omitempty"`
	Error   string    `json:"error,omitempty"`

	kind ax.EventKind
}

// maxURL bounds the URL that is kept of an event, in bytes.
const maxURL = 400

func recordOf(e ax.Event) record {
	r := record{
		Time: e.Time, Kind: e.Kind.String(), Seq: e.Seq, Lane: spelled(e.Lane), Owner: spelled(e.Owner), Attempt: e.Attempt,
		Waited: seconds(e.Waited), Took: seconds(e.Took), Delay: seconds(e.Delay), Status: e.Status,
		Error: errorText(e.Err, e.Task), kind: e.Kind,
	}
	if e.Seq == 0 && e.Lane == "" {
		r.Lane = "all lanes" // Pause and Resume of everything
	}
	if e.Task != nil {
		r.Method, r.URL = e.Task.Method(), clip(redactURL(e.Task.URL()), maxURL)
	}
	if e.Kind == ax.EventSucceeded || e.Kind == ax.EventFellBack {
		r.Source = e.Source.String()
	}
	return r
}

// ring keeps the latest of what is put into it.
type ring[T any] struct {
	items []T // len = cap once it is full
	next  int // where the next one goes, when it is full
	size  int // of items, when it is full
}

func (r *ring[T]) put(v T) (pushedOut bool) {
	if len(r.items) < r.size {
		r.items = append(r.items, v)
		return false
	}
	r.items[r.next] = v
	r.next = (r.next + 1) % r.size
	return true
}

// each yields the items, oldest first.
func (r *ring[T]) each(yield func(T) bool) {
	for i := range r.items {
		if !yield(r.items[(r.next+i)%len(r.items)]) {
			return
		}
	}
}
