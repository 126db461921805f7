package axasynq

import (
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/axsched/ax"
)

// preparer makes the requests of one stored task fit to be tried again: with
// Idempotency-Keys that come from its id alone, so that every process gives the same
// ones on every try, and with a bound of their waits.
type preparer struct {
	id           string            // "" = none, and no keys
	queueTimeout time.Duration     // for those without; 0 = none
	depth        int               // 0 = the task, 1 = its alternate, …
	by           map[string]string // the keys so far, by the requests that have them
}

// task is t prepared, and so are its alternates.
func (p preparer) task(t *ax.Task) (*ax.Task, error) {
	r := t.Request()
	changed := p.id != "" && p.request(&r)
	if r.Supersede != "" { // Enqueue refuses it; an older one stored it
		r.Supersede, changed = "", true
	}
	if r.QueueTimeout == 0 && p.queueTimeout > 0 {
		r.QueueTimeout, changed = p.queueTimeout, true
	}
	if r.Fallback != nil && r.Fallback.Alternate != nil {
		p.depth++
		alternate, err := p.task(r.Fallback.Alternate)
		if err != nil {
			return nil, err
		}
		changed = changed || alternate != r.Fallback.Alternate
		r.Fallback.Alternate = alternate
	}
	if !changed {
		return t, nil
	}
	return r.Task()
}

// request gives r a key unless it has its own.
func (p preparer) request(r *ax.Request) (changed bool) {
	same := sameness(*r)
	key := ownKey(r)
	if changed = key == ""; changed {
		key = p.by[same]
		switch {
		case key != "":
		case p.depth == 0:
			key = p.id
		default:
			key = p.id + "-" + strconv.Itoa(p.depth)
		}
		maps.DeleteFunc(r.Header, func(name string, _ []string) bool { return isKeyHeader(name) })
		r.IdempotencyKey = key
	}
	if p.by[same] == "" {
		p.by[same] = key
	}
	return changed
}

// sameness tells requests apart by what they do: method, URL, headers and body.
func sameness(r ax.Request) string {
	same, err := ax.Request{
		Method: r.Method, URL: r.URL, Query: r.Query, Header: r.Header, Body: r.Body, JSON: r.JSON, Dedupe: true,
	}.Task()
	if err != nil {
		return ""
	}
	return same.Key() // which leaves the Idempotency-Key out
}

// ownKey is the Idempotency-Key that r brings along; "" = none.
func ownKey(r *ax.Request) string {
	if r.IdempotencyKey != "" {
		return r.IdempotencyKey
	}
	for name, values := range r.Header {
		if isKeyHeader(name) && len(values) > 0 && strings.TrimSpace(values[0]) != "" {
			return values[0]
		}
	}
	return ""
}

func isKeyHeader(name string) bool { return http.CanonicalHeaderKey(name) == "Idempotency-Key" }
