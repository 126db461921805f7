package axasynq

import (
	"maps"
	"net/http"
	"strconv"
	"strings"

	"github.com/axsched/ax"
)

// keyed gives the requests of one stored task their Idempotency-Keys, from its id
// alone: every process gives the same ones, on every try.
type keyed struct {
	id    string
	depth int               // 0 = the task, 1 = its alternate, …
	by    map[string]string // the keys so far, by the requests that have them
}

// task is t with a key, and so are its alternates.
func (k keyed) task(t *ax.Task) (*ax.Task, error) {
	r := t.Request()
	changed := k.request(&r) || r.Supersede != ""
	r.Supersede = "" // Enqueue refuses it; an older one stored it
	if r.Fallback != nil && r.Fallback.Alternate != nil {
		k.depth++
		alternate, err := k.task(r.Fallback.Alternate)
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
func (k keyed) request(r *ax.Request) (changed bool) {
	same := sameness(*r)
	key := ownKey(r)
	if changed = key == ""; changed {
		key = k.by[same]
		switch {
		case key != "":
		case k.depth == 0:
			key = k.id
		default:
			key = k.id + "-" + strconv.Itoa(k.depth)
		}
		maps.DeleteFunc(r.Header, func(name string, _ []string) bool { return isKeyHeader(name) })
		r.IdempotencyKey = key
	}
	if k.by[same] == "" {
		k.by[same] = key
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
