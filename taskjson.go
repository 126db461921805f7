package ax

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
	"unicode/utf8"
)

// taskJSON is the stored form of a Task. Its names are a contract: old stores must
// stay readable, so a field may be added, but not renamed.
type taskJSON struct {
	Method string      `json:"method,omitzero"`
	URL    string      `json:"url"`
	Query  url.Values  `json:"query,omitzero"`
	Header http.Header `json:"header,omitzero"`
	Body   []byte      `json:"body,omitempty"`

	JSON json.RawMessage `json:"json,omitzero"`

	Priority Priority `json:"priority,omitzero"`
	Lane     string   `json:"lane,omitzero"`
	Owner    string   `json:"owner,omitzero"`
	Tags     []string `json:"tags,omitzero"`

	AttemptTimeout durationJSON `json:"attempt_timeout,omitzero"`
	QueueTimeout   durationJSON `json:"queue_timeout,omitzero"`
	AgingStep      durationJSON `json:"aging_step,omitzero"`

	Retry          *retryJSON `json:"retry,omitzero"`
	NoRetry        bool       `json:"no_retry,omitzero"`
	NoWait         bool       `json:"no_wait,omitzero"`
	IdempotencyKey string     `json:"idempotency_key,omitzero"`

	DedupeKey    string       `json:"dedupe_key,omitzero"`
	Dedupe       bool         `json:"dedupe,omitzero"`
	NoDedupe     bool         `json:"no_dedupe,omitzero"`
	DedupeWindow durationJSON `json:"dedupe_window,omitzero"`
	Supersede    string       `json:"supersede,omitzero"`
	Cooldown     durationJSON `json:"cooldown,omitzero"`

	Fallback   *fallbackJSON `json:"fallback,omitzero"`
	NoFallback bool          `json:"no_fallback,omitzero"`
	Hedge      *hedgeJSON    `json:"hedge,omitzero"`
	Stream     bool          `json:"stream,omitzero"`
}

type retryJSON struct {
	Max       int          `json:"max,omitzero"`
	BaseDelay durationJSON `json:"base_delay,omitzero"`
	MaxDelay  durationJSON `json:"max_delay,omitzero"`
	Jitter    jitterJSON   `json:"jitter,omitzero"`
	Budget    float64      `json:"budget,omitzero"`
	Unsafe    bool         `json:"unsafe,omitzero"`
}

type fallbackJSON struct {
	Alternate json.RawMessage `json:"alternate,omitzero"`
	Stale     durationJSON    `json:"stale,omitzero"`
}

type hedgeJSON struct {
	After durationJSON `json:"after,omitzero"`
}

// durationJSON is a time.Duration as Go writes it: "1m30s".
type durationJSON time.Duration

func (d durationJSON) MarshalText() ([]byte, error) {
	return []byte(time.Duration(d).String()), nil
}

func (d *durationJSON) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = durationJSON(v)
	return err
}

// jitterJSON is a Jitter by its name.
type jitterJSON Jitter

func (j jitterJSON) MarshalText() ([]byte, error) {
	switch Jitter(j) {
	case FullJitter:
		return []byte("full"), nil
	case EqualJitter:
		return []byte("equal"), nil
	case NoJitter:
		return []byte("none"), nil
	}
	return nil, errors.New("unknown jitter " + strconv.Itoa(int(j)))
}

func (j *jitterJSON) UnmarshalText(b []byte) error {
	switch string(b) {
	case "full":
		*j = jitterJSON(FullJitter)
	case "equal":
		*j = jitterJSON(EqualJitter)
	case "none":
		*j = jitterJSON(NoJitter)
	default:
		return fmt.Errorf("unknown jitter %q: full, equal or none", b)
	}
	return nil
}

// MarshalJSON writes the task for a store that outlives the process. The form is one
// object with the fields of Request in snake_case ("attempt_timeout"), those that are
// zero left out: durations as Go writes them ("1m30s"), Priority as a number, the
// body in base64, JSON as it is, Retry.Jitter as "full", "equal" or "none", an
// Alternate as an object of the same form. User info, headers and bodies are written
// as they are: guard the store like the requests. Hold a *Task in what you marshal:
// a Task by value has no methods there, and comes out as {}.
//
// It fails, naming the field, for what has no form: GetBody, Prepare,
// Fallback.Static, Retry.If, text that is not UTF-8, and for a task of TaskFrom a
// body that can be read only once, Trailer, TransferEncoding and Close.
func (t *Task) MarshalJSON() ([]byte, error) {
	if !t.usable() {
		return nil, errZeroTask
	}
	r := t.Request()
	var f faults
	r.checkStorable(&f)
	j := r.stored()
	if p := r.Fallback; p != nil {
		j.Fallback = &fallbackJSON{Stale: durationJSON(p.Stale)}
		if p.Alternate != nil {
			alt, err := p.Alternate.MarshalJSON()
			if err != nil {
				f.add("Request.Fallback.Alternate", "%w", err)
			}
			j.Fallback.Alternate = alt
		}
	}
	if len(f) > 0 {
		return nil, fmt.Errorf("ax: task has no JSON form: %w", errors.Join(f...))
	}
	return json.Marshal(&j)
}

// stored is the stored form of r, but for its Fallback.
func (r *Request) stored() taskJSON {
	j := taskJSON{
		Method: r.Method, URL: r.URL, Query: r.Query, Header: r.Header, Body: r.Body,
		Priority: r.Priority, Lane: r.Lane, Owner: r.Owner, Tags: r.Tags,
		AttemptTimeout: durationJSON(r.AttemptTimeout), QueueTimeout: durationJSON(r.QueueTimeout),
		AgingStep: durationJSON(r.AgingStep),
		NoRetry:   r.NoRetry, NoWait: r.NoWait, IdempotencyKey: r.IdempotencyKey,
		DedupeKey: r.DedupeKey, Dedupe: r.Dedupe, NoDedupe: r.NoDedupe,
		DedupeWindow: durationJSON(r.DedupeWindow), Supersede: r.Supersede, Cooldown: durationJSON(r.Cooldown),
		NoFallback: r.NoFallback, Stream: r.Stream,
	}
	j.JSON, _ = r.JSON.(json.RawMessage)
	if p := r.Retry; p != nil {
		j.Retry = &retryJSON{
			Max: p.Max, BaseDelay: durationJSON(p.BaseDelay), MaxDelay: durationJSON(p.MaxDelay),
			Jitter: jitterJSON(p.Jitter), Budget: p.Budget, Unsafe: p.Unsafe,
		}
	}
	if p := r.Hedge; p != nil {
		j.Hedge = &hedgeJSON{After: durationJSON(p.After)}
	}
	return j
}

// UnmarshalJSON reads what MarshalJSON wrote and checks it as Request.Task does.
// Fields that it does not know are refused. It fills only a Task that is still
// zero, for others may share one that is not.
func (t *Task) UnmarshalJSON(b []byte) error {
	if t.usable() {
		return errors.New("ax: a Task does not change; unmarshal into a new one")
	}
	if string(b) == "null" {
		return nil // as encoding/json has it
	}
	r, err := decodeRequest(b, 0)
	if err != nil {
		return err
	}
	return t.build(&r, nil, "Request")
}

// decodeRequest reads a task that is the depth-th alternate of another.
func decodeRequest(b []byte, depth int) (Request, error) {
	if depth > maxAlternates {
		return Request{}, fmt.Errorf("ax: task JSON: more than %d alternates in a chain", maxAlternates)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	var j taskJSON
	if err := dec.Decode(&j); err != nil {
		return Request{}, fmt.Errorf("ax: task JSON: %w", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return Request{}, errors.New("ax: task JSON: more than one value")
	}
	r := j.request()
	if j.Fallback == nil {
		return r, nil
	}
	r.Fallback = &Fallback{Stale: time.Duration(j.Fallback.Stale)}
	if alt := j.Fallback.Alternate; alt != nil && string(alt) != "null" {
		a, err := decodeRequest(alt, depth+1)
		if err == nil {
			r.Fallback.Alternate, err = a.Task()
		}
		if err != nil {
			return Request{}, fmt.Errorf("Request.Fallback.Alternate: %w", err)
		}
	}
	return r, nil
}

// request is the Request that j describes, but for its Fallback.
func (j *taskJSON) request() Request {
	r := Request{
		Method: j.Method, URL: j.URL, Query: j.Query, Header: j.Header, Body: j.Body,
		Priority: j.Priority, Lane: j.Lane, Owner: j.Owner, Tags: j.Tags,
		AttemptTimeout: time.Duration(j.AttemptTimeout), QueueTimeout: time.Duration(j.QueueTimeout),
		AgingStep: time.Duration(j.AgingStep),
		NoRetry:   j.NoRetry, NoWait: j.NoWait, IdempotencyKey: j.IdempotencyKey,
		DedupeKey: j.DedupeKey, Dedupe: j.Dedupe, NoDedupe: j.NoDedupe,
		DedupeWindow: time.Duration(j.DedupeWindow), Supersede: j.Supersede, Cooldown: time.Duration(j.Cooldown),
		NoFallback: j.NoFallback, Stream: j.Stream,
	}
	if j.JSON != nil {
		r.JSON = j.JSON
	}
	if p := j.Retry; p != nil {
		r.Retry = &Retry{
			Max: p.Max, BaseDelay: time.Duration(p.BaseDelay), MaxDelay: time.Duration(p.MaxDelay),
			Jitter: Jitter(p.Jitter), Budget: p.Budget, Unsafe: p.Unsafe,
		}
	}
	if p := j.Hedge; p != nil {
		r.Hedge = &Hedge{After: time.Duration(p.After)}
	}
	return r
}

// checkStorable names all that has no JSON form.
func (r *Request) checkStorable(f *faults) {
	w := r.wire
	if w == nil {
		w = new(wire)
	}
	for _, c := range [...]struct {
		field string
		set   bool
	}{
		{"Request.GetBody", r.GetBody != nil},
		{"Request.Prepare", r.Prepare != nil},
		{"Request.Retry.If", r.Retry != nil && r.Retry.If != nil},
		{"Request.Fallback.Static", r.Fallback != nil && r.Fallback.Static != nil},
		{"http.Request.Body", w.body != nil},
		{"http.Request.URL", w.u != nil},
		{"http.Request.Trailer", len(w.trailer) > 0},
		{"http.Request.TransferEncoding", w.transferEncoding != nil},
		{"http.Request.Close", w.close},
	} {
		if c.set {
			f.add(c.field, "cannot be written as JSON")
		}
	}
	r.checkUTF8(f)
}

// checkUTF8 names the texts that encoding/json would change: it replaces what is not
// UTF-8.
func (r *Request) checkUTF8(f *faults) {
	bad := func(field, s string) {
		if !utf8.ValidString(s) {
			f.add(field, "is not UTF-8 and cannot be written as JSON")
		}
	}
	bad("Request.URL", r.URL)
	bad("Request.Lane", r.Lane)
	bad("Request.Owner", r.Owner)
	bad("Request.IdempotencyKey", r.IdempotencyKey)
	bad("Request.DedupeKey", r.DedupeKey)
	bad("Request.Supersede", r.Supersede)
	for i, tag := range r.Tags {
		bad("Request.Tags["+strconv.Itoa(i)+"]", tag)
	}
	for name, values := range r.Header {
		for _, v := range values {
			bad("Request.Header["+name+"]", v)
		}
	}
	for name, values := range r.Query {
		bad("Request.Query", name)
		for _, v := range values {
			bad("Request.Query", v)
		}
	}
}
