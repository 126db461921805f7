package ax

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseMatch(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want matchRule
	}{
		{"a.test", matchRule{"", "a.test", "", "/"}},
		{"A.Test/", matchRule{"", "a.test", "", "/"}},
		{"localhost:8080", matchRule{"", "localhost", "8080", "/"}},
		{"GET a.test/v1/{id}", matchRule{"GET", "a.test", "", "/v1/{id}"}},
		{"PURGE \t a.test/{rest...}", matchRule{"PURGE", "a.test", "", "/{rest...}"}},
		{"a.test/v1/{$}", matchRule{"", "a.test", "", "/v1/{$}"}},
		{"[2001:DB8::1]:443/x", matchRule{"", "[2001:db8::1]", "443", "/x"}},
		{"[::1]", matchRule{"", "[::1]", "", "/"}},
		{"bücher.test", matchRule{"", "bücher.test", "", "/"}},
		{"10.0.0.1:80/a:b", matchRule{"", "10.0.0.1", "80", "/a:b"}},
	} {
		got, err := parseMatch(tt.in)
		require.NoError(t, err, tt.in)
		require.Equal(t, tt.want, got, tt.in)
	}
}

func TestParseMatchFaults(t *testing.T) {
	for in, want := range map[string]string{
		"":                      "names no host",
		"/v1":                   "names no host",
		"GET ":                  "names no host",
		":8080":                 "names no host",
		"get a.test":            `"get" is no method; want one in upper case such as GET`,
		"G@T a.test":            `"G@T" is no method; want one in upper case such as GET`,
		" a.test":               `"" is no method; want one in upper case such as GET`,
		"GET a.test /x":         `want "[METHOD ]host[:port][/path]"`,
		"https://a.test/":       "leave the scheme out; a pattern begins with the host",
		"a.test/?q=1":           "leave query and fragment out; they select no lane",
		"a.test/#top":           "leave query and fragment out; they select no lane",
		"a.test:":               `"" is no port; want 1 to 65535`,
		"a.test:0":              `"0" is no port; want 1 to 65535`,
		"a.test:65536":          `"65536" is no port; want 1 to 65535`,
		"a.test:http":           `"http" is no port; want 1 to 65535`,
		"*.a.test":              "a host is matched whole; list each one, or use Config.Hosts",
		"a.test/v1/*":           "* is no wildcard in a path; write {name} for one segment, or end with / for all below",
		"me:pw@a.test":          `"pw@a.test" is no port; want 1 to 65535`,
		"me@a.test":             `"me@a.test" is no host name`,
		"{sub}.a.test":          `"{sub}.a.test" is no host name`,
		"::1:80":                "put an IPv6 address in brackets",
		"[a.test]":              `"[a.test]" is no IPv6 address in brackets`,
		"[::1":                  `"[:" is no IPv6 address in brackets`,
		"a.test/{id":            "bad wildcard segment (must end with '}')",
		"a.test/x{id}":          "bad wildcard segment (must start with '{')",
		"a.test/{rest...}/x":    "{...} wildcard not at end",
		"a.test/{$}/x":          "{$} not at end",
		"a.test/{a}/{a}":        `duplicate wildcard name "a"`,
		"a.test//x":             "non-CONNECT pattern with unclean path can never match",
		"DELETE a.test/x/../y/": "non-CONNECT pattern with unclean path can never match",
	} {
		_, err := parseMatch(in)
		require.EqualError(t, err, want, in)
	}
}

func TestAmbiguousMatches(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{"a.test", "a.test/", true},
		{"a.test", "GET a.test", false},
		{"GET a.test", "HEAD a.test", false},
		{"GET a.test", "POST a.test", false},
		{"GET a.test/v1/", "a.test/v1/{id}", false},
		{"POST a.test", "a.test/slow", false},
		{"a.test/{x}", "a.test/{y}", true},
		{"a.test/v1/", "a.test/v1/{rest...}", true},
		{"a.test/v1/", "a.test/v1/{$}", false},
		{"a.test/%61", "a.test/a", true},
		{"a.test/{x}/1", "a.test/2/{y}", true},
		{"GET a.test/{x}/1", "POST a.test/2/{y}", false},
		{"GET a.test/{x}/1", "HEAD a.test/2/{y}", true},
		{"a.test/a", "a.test/b", false},
	} {
		a, err := parseMatch(tt.a)
		require.NoError(t, err)
		b, err := parseMatch(tt.b)
		require.NoError(t, err)
		require.Equal(t, tt.want, a.ambiguous(b), "%s, %s", tt.a, tt.b)
		require.Equal(t, tt.want, b.ambiguous(a), "%s, %s", tt.b, tt.a)
	}
}

// TestPathsAreThoseOfServeMux compares every pair of small paths with what the
// mux says about them.
func TestPathsAreThoseOfServeMux(t *testing.T) {
	var paths []string
	for _, last := range []string{"a", "%61", "b", "{w}", "", "{$}", "{z...}"} {
		paths = append(paths, "/"+last)
		for _, first := range []string{"a", "%61", "b", "{x}"} {
			paths = append(paths, "/"+first+"/"+last)
			for _, second := range []string{"a", "{y}"} {
				paths = append(paths, "/"+first+"/"+second+"/"+last)
			}
		}
	}
	for _, p := range paths {
		for _, q := range paths {
			m, err := parseMatch("h" + p)
			require.NoError(t, err)
			o, err := parseMatch("h" + q)
			require.NoError(t, err)
			mux := http.NewServeMux()
			require.NoError(t, register(mux, m))
			if want := register(mux, o) != nil; want != m.ambiguous(o) {
				t.Errorf("%s and %s: ambiguous is %v, want %v", p, q, !want, want)
			}
		}
	}
}

func FuzzParseMatch(f *testing.F) {
	for _, s := range []string{"a.test", "GET a.test:80/v1/{id}", "[::1]:8080/{$}", "a.test/{rest...}", "é.test/%zz"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		m, err := parseMatch(s)
		if err != nil {
			return
		}
		again := m.authority() + m.path
		if m.method != "" {
			again = m.method + " " + again
		}
		m2, err := parseMatch(again)
		require.NoError(t, err, again)
		require.Equal(t, m, m2, again)
	})
}
