package ax

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// matchRule is a parsed pattern of Lane.Match: "[METHOD ]host[:port][/path]".
type matchRule struct {
	method string // "" = any; GET includes HEAD
	host   string // lower case; an IPv6 address in brackets
	port   string // "" = any
	path   string // of http.ServeMux; a bare host has "/", which is all of it
}

// parseMatch parses a pattern.
func parseMatch(s string) (matchRule, error) {
	var m matchRule
	target := s
	if i := strings.IndexAny(s, " \t"); i >= 0 {
		m.method, target = s[:i], strings.TrimLeft(s[i:], " \t")
		if !isToken(m.method) || m.method != strings.ToUpper(m.method) {
			return m, fmt.Errorf("%q is no method; want one in upper case such as GET", m.method)
		}
	}
	switch {
	case strings.Contains(target, "://"):
		return m, errors.New("leave the scheme out; a pattern begins with the host")
	case strings.ContainsAny(target, "?#"):
		return m, errors.New("leave query and fragment out; they select no lane")
	case strings.ContainsAny(target, " \t\r\n"):
		return m, errors.New(`want "[METHOD ]host[:port][/path]"`)
	}
	authority, path, found := strings.Cut(target, "/")
	m.path = "/" + path
	if slices.Contains(strings.Split(path, "/"), "*") {
		return m, errors.New("* is no wildcard in a path; write {name} for one segment, or end with / for all below")
	}
	var err error
	if m.host, m.port, err = splitAuthority(authority); err != nil {
		return m, err
	}
	if !found {
		return m, nil
	}
	return m, register(http.NewServeMux(), matchRule{method: cmp.Or(m.method, http.MethodGet), path: m.path})
}

// splitAuthority takes "host[:port]" apart and lower-cases the host.
func splitAuthority(s string) (host, port string, err error) {
	host, port, hasPort := s, "", false
	if i := strings.LastIndexByte(s, ':'); i > strings.LastIndexByte(s, ']') {
		host, port, hasPort = s[:i], s[i+1:], true
	}
	if n, err := strconv.ParseUint(port, 10, 16); hasPort && (err != nil || n == 0) {
		return "", "", fmt.Errorf("%q is no port; want 1 to 65535", port)
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		inner, closed := strings.CutSuffix(inner, "]")
		if ip, err := netip.ParseAddr(inner); !closed || err != nil || !ip.Is6() {
			return "", "", fmt.Errorf("%q is no IPv6 address in brackets", host)
		}
		return strings.ToLower(host), port, nil
	}
	switch {
	case host == "":
		return "", "", errors.New("names no host")
	case strings.Contains(host, "*"):
		return "", "", errors.New("a host is matched whole; list each one, or use Config.Hosts")
	case strings.Contains(host, ":"):
		return "", "", errors.New("put an IPv6 address in brackets")
	case strings.ContainsAny(host, "@{}[]%\\\"<>|^`,;'()!$&+=~"):
		return "", "", fmt.Errorf("%q is no host name", host)
	}
	return strings.ToLower(host), port, nil
}

// authority is the host and, if written, the port. A rule with a port beats one
// without, so only rules of one authority can leave a request undecided.
func (m matchRule) authority() string {
	if m.port == "" {
		return m.host
	}
	return m.host + ":" + m.port
}

// ambiguous reports whether some request of m's authority matches both m and o
// and neither is the more specific. The narrower path wins, then the narrower
// method: only paths that cross, each wider than the other somewhere, or the
// same pattern twice leave a request undecided.
func (m matchRule) ambiguous(o matchRule) bool {
	if m.samePath(o) {
		return m.method == o.method
	}
	return methodsMeet(m.method, o.method) && crossing(m.segments(), o.segments())
}

// samePath reports whether the paths of m and o match the same requests.
func (m matchRule) samePath(o matchRule) bool { return slices.Equal(m.segments(), o.segments()) }

// methodsMeet reports whether a request can have both methods: "" is any, GET
// includes HEAD.
func methodsMeet(a, b string) bool {
	if a > b {
		a, b = b, a
	}
	return a == "" || a == b || a == http.MethodGet && b == http.MethodHead
}

// What the segments of a path can be beside literals, which are escaped.
const (
	oneSegment = "{}"  // any one, as {id}
	theRest    = ""    // at the end: all below, as "/v1/" or {rest...}
	theEnd     = "{$}" // at the end: nothing after the slash
)

// segments takes m's path apart; the names of wildcards do not matter.
func (m matchRule) segments() []string {
	segments := strings.Split(m.path[1:], "/")
	for i, s := range segments {
		switch {
		case s == theEnd:
		case strings.HasSuffix(s, "...}"):
			segments[i] = theRest
		case strings.HasPrefix(s, "{"):
			segments[i] = oneSegment
		default:
			if literal, err := url.PathUnescape(s); err == nil {
				segments[i] = url.PathEscape(literal)
			}
		}
	}
	return segments
}

// crossing reports whether some path matches both a and b, while a is wider in
// one segment and b in another.
func crossing(a, b []string) bool {
	var aWider, bWider bool
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) {
			return false
		}
		aRest, bRest := i == len(a)-1 && a[i] == theRest, i == len(b)-1 && b[i] == theRest
		switch {
		case aRest || bRest:
			return (aWider || !bRest) && (bWider || !aRest)
		case a[i] == b[i]:
		case a[i] == oneSegment && b[i] != theEnd:
			aWider = true
		case b[i] == oneSegment && a[i] != theEnd:
			bWider = true
		default:
			return false
		}
	}
	return aWider && bWider
}

// register puts the method and path of m into mux. The mux says what it thinks
// of a pattern by a panic; using its own opinion is what keeps paths here the
// same as there.
func register(mux *http.ServeMux, m matchRule) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = innermost(p)
		}
	}()
	mux.Handle(strings.TrimLeft(m.method+" "+m.path, " "), http.NotFoundHandler())
	return nil
}

// innermost is the root of the error that was panicked with, without the
// positions in source and pattern that ServeMux wraps around it.
func innermost(p any) error {
	err, ok := p.(error)
	if !ok {
		return fmt.Errorf("%v", p)
	}
	for errors.Unwrap(err) != nil {
		err = errors.Unwrap(err)
	}
	return err
}
