package ax

import (
	"crypto/sha256"
	"net/url"
	"slices"
	"strings"
)

// canonicalAuthority is host[:port] in lower case and without the scheme's default
// port: "api.example.com", "127.0.0.1:8080", "[::1]:8080". An authority that is
// canonical already costs no allocation.
func canonicalAuthority(scheme, hostport string) string {
	hostport = strings.ToLower(hostport)
	i := strings.LastIndexByte(hostport, ':')
	if i < 0 || strings.HasSuffix(hostport, "]") {
		return hostport
	}
	switch port := hostport[i+1:]; {
	case port == "",
		port == "80" && strings.EqualFold(scheme, "http"),
		port == "443" && strings.EqualFold(scheme, "https"):
		return hostport[:i]
	}
	return hostport
}

// sameURL says whether a and b are sent alike and spelled alike.
func sameURL(a, b *url.URL) bool {
	x, y := *a, *b
	x.User, y.User = nil, nil
	return x == y && a.User.String() == b.User.String()
}

// urlFamily identifies the resource that u names: scheme, host, path and query, in
// canonical form and hashed. A successful unsafe request forgets what is kept of
// its URL's family.
func urlFamily(u *url.URL) string {
	b := make([]byte, 0, 256)
	b = appendField(b, strings.ToLower(u.Scheme))
	b = appendField(b, canonicalAuthority(u.Scheme, u.Host))
	switch path := u.EscapedPath(); {
	case u.Opaque != "":
		b = appendField(append(b, 'o'), u.Opaque)
	case path == "":
		b = appendField(b, "/")
	default:
		b = appendField(b, path)
	}
	b = appendQuery(b, u)
	sum := sha256.Sum256(b)
	return string(sum[:])
}

// appendQuery writes the query sorted by name, the order of repeated names kept. Names
// are compared decoded, so that two spellings of one name keep their order as well,
// but written as they are spelled: what a server makes of "+" is its own affair.
func appendQuery(b []byte, u *url.URL) []byte {
	if u.RawQuery == "" {
		if u.ForceQuery {
			return append(b, '?')
		}
		return b
	}
	type pair struct{ name, text string }
	pairs := make([]pair, 0, 1+strings.Count(u.RawQuery, "&"))
	for text := range strings.SplitSeq(u.RawQuery, "&") {
		raw, _, _ := strings.Cut(text, "=")
		name, err := url.QueryUnescape(raw)
		if err != nil {
			name = raw
		}
		pairs = append(pairs, pair{name, text})
	}
	slices.SortStableFunc(pairs, func(x, y pair) int { return strings.Compare(x.name, y.name) })
	b = append(b, '&')
	for _, p := range pairs {
		b = appendField(b, p.text)
	}
	return b
}
