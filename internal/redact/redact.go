// Package redact hides the secrets of URLs, for the library and its page alike.
package redact

import (
	"net/url"
	"strings"
)

// Value stands for what is not shown.
const Value = "xxxxx"

// URL spells u without user info and fragment, and with [Value] for each
// query value. The names of the query stay.
func URL(u *url.URL) string {
	if u == nil {
		return ""
	}
	c := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath, ForceQuery: u.ForceQuery}
	if u.RawQuery == "" {
		return c.String()
	}
	var b strings.Builder
	for pair := range strings.SplitSeq(u.RawQuery, "&") {
		if b.Len() > 0 {
			b.WriteByte('&')
		}
		name, _, valued := strings.Cut(pair, "=")
		b.WriteString(name)
		if valued {
			b.WriteString("=" + Value)
		}
	}
	c.RawQuery = b.String()
	return c.String()
}
