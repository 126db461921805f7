package ax

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// faults collects what is wrong with a request, so that all of it can be told at
// once. Its texts must not hold user info, query values or header values.
type faults []error

func (f *faults) add(field, format string, args ...any) {
	*f = append(*f, fmt.Errorf("%s: %w", field, fmt.Errorf(format, args...)))
}

// err is nil without faults.
func (f faults) err() error {
	if len(f) == 0 {
		return nil
	}
	return fmt.Errorf("ax: invalid request: %w", errors.Join(f...))
}

// parseURL parses the URL. Errors are stripped of all that they quote, for that may
// be a part of a password.
func (r *Request) parseURL(f *faults) *url.URL {
	if r.URL == "" {
		f.add("Request.URL", "empty; it must be absolute, like https://host/path")
		return nil
	}
	if w := r.wire; w != nil && w.u != nil && w.u.String() == r.URL {
		u := *w.u
		return &u
	}
	u, err := url.Parse(r.URL)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err
		}
		why, _, _ := strings.Cut(err.Error(), `"`)
		f.add("Request.URL", "does not parse: %s", strings.TrimRight(why, " :"))
		return nil
	}
	u.Host = strings.TrimSuffix(u.Host, ":") // an empty port, which http.NewRequest drops as well
	return u
}

// mergeQuery adds Query behind what u has.
func (r *Request) mergeQuery(u *url.URL) {
	q := r.Query.Encode()
	if u.RawQuery != "" && q != "" {
		q = "&" + q
	}
	u.RawQuery += q
}

// checkURL wants a scheme and a host, nothing more: whether the scheme can be
// sent is for the executor to say.
func checkURL(f *faults, at string, u *url.URL) {
	switch {
	case u.Scheme == "":
		f.add(at+".URL", "no scheme; it must be absolute, like https://host/path")
	case u.Hostname() == "":
		f.add(at+".URL", "no host; it must be absolute, like https://host/path")
	}
}

// headerFacts are the entries of a header that mean something to ax.
type headerFacts struct {
	host, contentType, idempotencyKey string
	rewrite                           bool // the header is not sent as it stands
}

// checkHeader validates names and values and collects the facts. at is the path
// of the struct that has the header.
func (r *Request) checkHeader(f *faults, at string) headerFacts {
	var facts headerFacts
	var found faults
	for name, values := range r.Header {
		if !isToken(name) {
			found.add(at+".Header", "%q is not a header name", name)
			continue
		}
		if !slices.ContainsFunc(values, func(v string) bool { return !isFieldValue(v) }) {
			facts.see(&found, at, name, values)
			continue
		}
		found.add(at+".Header", "%s: a value holds a control character", name)
	}
	slices.SortFunc(found, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	*f = append(*f, found...)
	return r.checkIdempotencyKey(f, facts)
}

// see takes down one entry, whose name and values are well formed.
func (h *headerFacts) see(f *faults, at, name string, values []string) {
	if len(values) == 0 {
		return
	}
	switch http.CanonicalHeaderKey(name) {
	case "Host":
		if len(values) > 1 || h.host != "" || !isHost(values[0]) {
			f.add(at+".Header", "%s: must be one host[:port]", name)
		}
		h.host = values[0]
	case "Content-Type":
		h.contentType = values[0]
	case "Idempotency-Key":
		h.idempotencyKey = values[0]
	}
}

func (r *Request) checkIdempotencyKey(f *faults, facts headerFacts) headerFacts {
	facts.rewrite = facts.host != "" || r.JSON != nil && facts.contentType == ""
	if r.IdempotencyKey == "" {
		return facts
	}
	if !isFieldValue(r.IdempotencyKey) {
		f.add("Request.IdempotencyKey", "holds a control character")
	}
	switch facts.idempotencyKey {
	case r.IdempotencyKey:
	case "":
		facts.rewrite = true
		facts.idempotencyKey = r.IdempotencyKey
	default:
		f.add("Request.IdempotencyKey", "differs from the Idempotency-Key header")
	}
	return facts
}

// checkBody allows one source of a body, and returns the bytes of Body or JSON.
func (r *Request) checkBody(f *faults) []byte {
	set := make([]string, 0, 3)
	if r.Body != nil {
		set = append(set, "Request.Body")
	}
	if r.JSON != nil {
		set = append(set, "Request.JSON")
	}
	if r.GetBody != nil {
		set = append(set, "Request.GetBody")
	}
	if len(set) > 1 {
		f.add(set[0], "excludes %s", strings.Join(set[1:], " and "))
	}
	if r.ContentLength < 0 {
		f.add("Request.ContentLength", "%d is negative", r.ContentLength)
	}
	if r.ContentLength > 0 && r.GetBody == nil && !r.oneShot() {
		f.add("Request.ContentLength", "needs GetBody; other bodies are measured")
	}
	if r.JSON == nil {
		return slices.Clone(r.Body)
	}
	b, err := json.Marshal(r.JSON)
	if err != nil {
		f.add("Request.JSON", "%w", err)
	}
	return b
}

// oneShot says whether the body can be read only once.
func (r *Request) oneShot() bool { return r.wire != nil && r.wire.body != nil }

// derivable says whether a key can be derived, and if not, why.
func (r *Request) derivable() (why string, ok bool) {
	switch {
	case r.GetBody != nil:
		return "body from GetBody cannot be compared; set DedupeKey", false
	case r.oneShot():
		return "body that is read once cannot be compared; set DedupeKey", false
	case r.Prepare != nil:
		return "what Prepare does is not known beforehand; set DedupeKey", false
	}
	return "", true
}

// checkScheduling is about the fields that are not sent.
func (r *Request) checkScheduling(f *faults) {
	for _, d := range [...]struct {
		field string
		d     time.Duration
	}{
		{"Request.AttemptTimeout", r.AttemptTimeout},
		{"Request.QueueTimeout", r.QueueTimeout},
		{"Request.AgingStep", r.AgingStep},
		{"Request.DedupeWindow", r.DedupeWindow},
		{"Request.Cooldown", r.Cooldown},
	} {
		if d.d < 0 {
			f.add(d.field, "%v is negative", d.d)
		}
	}
	if r.Dedupe && r.NoDedupe {
		f.add("Request.Dedupe", "contradicts NoDedupe")
	}
	if why, ok := r.derivable(); !ok && r.DedupeKey == "" {
		if r.Dedupe {
			f.add("Request.Dedupe", "%s", why)
		}
		if r.Cooldown > 0 {
			f.add("Request.Cooldown", "%s", why)
		}
	}
	r.checkPolicies(f)
}

func (r *Request) checkPolicies(f *faults) {
	if r.Retry != nil {
		if r.NoRetry {
			f.add("Request.Retry", "contradicts NoRetry")
		}
		*f = append(*f, r.Retry.validate("Request.Retry")...)
	}
	if r.Hedge != nil {
		*f = append(*f, r.Hedge.validate("Request.Hedge")...)
	}
	if r.Fallback == nil {
		return
	}
	if r.NoFallback {
		f.add("Request.Fallback", "contradicts NoFallback")
	}
	*f = append(*f, r.Fallback.validate("Request.Fallback")...)
	if alt := r.Fallback.Alternate; alt != nil {
		if !alt.usable() {
			f.add("Request.Fallback.Alternate", "is a zero Task")
		}
		if alt.depth >= maxAlternates {
			f.add("Request.Fallback.Alternate", "more than %d alternates in a chain", maxAlternates)
		}
	}
}

// isToken is the grammar of methods and header names: RFC 9110, section 5.6.2.
func isToken(s string) bool {
	for i := range len(s) {
		if c := s[i]; !isAlnum(c) && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}

// isFieldValue refuses control characters but the tab: with CR and LF in a value,
// its author could write header lines of his own.
func isFieldValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// isHost refuses what cannot stand in a Host header: RFC 3986, section 3.2.2, but for
// names in other scripts, which net/http spells in ASCII.
func isHost(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < utf8.RuneSelf && !isAlnum(c) && strings.IndexByte("!$%&'()*+,-.:;=[]_~", c) < 0 {
			return false
		}
	}
	return s != "" && utf8.ValidString(s)
}

func isAlnum(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}
