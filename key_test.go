package ax

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

func keyOf(t *testing.T, r Request) string {
	t.Helper()
	task, err := r.Task()
	require.NoError(t, err)
	return task.Key()
}

func TestKeyIsThere(t *testing.T) {
	const u = "http://a.test/"
	for name, c := range map[string]struct {
		r         Request
		key, base bool
	}{
		"get":                    {Request{URL: u}, true, true},
		"head":                   {Request{URL: u, Method: "HEAD"}, true, true},
		"get with body":          {Request{URL: u, Body: []byte("x")}, true, true},
		"get with GetBody":       {Request{URL: u, GetBody: openNothing}, false, false},
		"get with Prepare":       {Request{URL: u, Prepare: prepareNothing}, false, false},
		"options":                {Request{URL: u, Method: "OPTIONS"}, false, true},
		"post":                   {Request{URL: u, Method: "POST"}, false, true},
		"put":                    {Request{URL: u, Method: "PUT", JSON: 1}, false, true},
		"post Dedupe":            {Request{URL: u, Method: "POST", Dedupe: true}, true, true},
		"get NoDedupe":           {Request{URL: u, NoDedupe: true}, false, true},
		"DedupeKey":              {Request{URL: u, Method: "POST", DedupeKey: "k"}, true, true},
		"DedupeKey and GetBody":  {Request{URL: u, DedupeKey: "k", GetBody: openNothing, Dedupe: true, Cooldown: 1}, true, true},
		"DedupeKey and Prepare":  {Request{URL: u, DedupeKey: "k", Prepare: prepareNothing}, true, true},
		"DedupeKey and NoDedupe": {Request{URL: u, DedupeKey: "k", NoDedupe: true}, false, true},
	} {
		task := Must(c.r.Task())
		require.Equal(t, c.key, task.Key() != "", name)
		require.Equal(t, c.key, task.sharingKey(nil, "").family != "", name)
		base, ok := task.baseKey(nil, "")
		require.Equal(t, c.base, ok, name)
		require.Equal(t, c.base, base.family != "", name)
	}
}

func TestD1SameKey(t *testing.T) {
	r := Request{
		URL: "http://a.test/x?b=1&a=2&b=3", Header: http.Header{"Accept": {"x", "y"}, "Cookie": {"c"}}, Owner: "o",
		Body: []byte(`{"a":[1,{"x":1.0,"y":null}],"b":"é"}`),
	}
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	want := keyOf(t, r)
	for name, change := range map[string]func(*Request){
		"method spelled out":   func(r *Request) { r.Method = "GET" },
		"scheme and host case": func(r *Request) { r.URL = "HTTP://A.TEST/x?b=1&a=2&b=3" },
		"default port":         func(r *Request) { r.URL = "http://a.test:80/x?b=1&a=2&b=3" },
		"query order":          func(r *Request) { r.URL = "http://a.test/x?a=2&b=1&b=3" },
		"Query":                func(r *Request) { r.URL = "http://a.test/x?b=1"; r.Query = url.Values{"b": {"3"}, "a": {"2"}} },
		"fragment":             func(r *Request) { r.URL += "#frag" },
		"header spelling":      func(r *Request) { r.Header["accept"] = r.Header["Accept"]; delete(r.Header, "Accept") },
		"header in two":        func(r *Request) { r.Header["Accept"] = []string{"x"}; r.Header["accept"] = []string{"y"} },
		"empty header":         func(r *Request) { r.Header["X-None"] = nil },
		"User-Agent":           func(r *Request) { r.Header.Set("User-Agent", "x") },
		"Traceparent":          func(r *Request) { r.Header.Set("Traceparent", "x") },
		"Tracestate":           func(r *Request) { r.Header.Set("Tracestate", "x") },
		"Baggage":              func(r *Request) { r.Header.Set("Baggage", "x") },
		"X-Request-Id":         func(r *Request) { r.Header["X-REQUEST-ID"] = []string{"x"} },
		"Idempotency-Key":      func(r *Request) { r.Header.Set("Idempotency-Key", "x") },
		"IdempotencyKey":       func(r *Request) { r.IdempotencyKey = "x" },
		"same Host":            func(r *Request) { r.Header.Set("Host", "a.test:80") },
		"JSON order and space": func(r *Request) { r.Body = []byte(" {\"b\" : \"\\u00E9\",\n\t\"a\":[1 , {\"y\":null,\"x\":1.0}]}") },
		"scheduling":           func(r *Request) { r.Priority, r.Lane, r.Tags, r.DedupeWindow = 3, "l", []string{"t"}, 1 },
	} {
		var c Request
		r.cloneTo(&c)
		change(&c)
		require.Equal(t, want, keyOf(t, c), name)
	}
	r.Body, r.JSON = nil, json.RawMessage(r.Body)
	require.Equal(t, want, keyOf(t, r), "JSON instead of Body")
}

func TestD1OtherKey(t *testing.T) {
	r := Request{
		URL: "http://a.test/x?b=1&a=2&b=3", Header: http.Header{"Accept": {"x", "y"}, "Content-Type": {"application/json"}}, Owner: "o",
		Body: []byte(`{"a":[1,2],"a":3}`),
	}
	seen := map[string]string{keyOf(t, r): "itself"}
	for name, change := range map[string]func(*Request){
		"method":          func(r *Request) { r.Method = "HEAD" },
		"dedupe post":     func(r *Request) { r.Method, r.Dedupe = "POST", true },
		"scheme":          func(r *Request) { r.URL = "https://a.test:80/x?b=1&a=2&b=3" },
		"https":           func(r *Request) { r.URL = "https://a.test/x?b=1&a=2&b=3" },
		"host":            func(r *Request) { r.URL = "http://b.test/x?b=1&a=2&b=3" },
		"port":            func(r *Request) { r.URL = "http://a.test:81/x?b=1&a=2&b=3" },
		"path":            func(r *Request) { r.URL = "http://a.test/X?b=1&a=2&b=3" },
		"path escape":     func(r *Request) { r.URL = "http://a.test/x%2F?b=1&a=2&b=3" },
		"path slash":      func(r *Request) { r.URL = "http://a.test/x/?b=1&a=2&b=3" },
		"repeated order":  func(r *Request) { r.URL = "http://a.test/x?b=3&a=2&b=1" },
		"spelled order":   func(r *Request) { r.URL = "http://a.test/x?b=1&a=2&%62=3" },
		"spelled order 2": func(r *Request) { r.URL = "http://a.test/x?%62=3&a=2&b=1" },
		"query value":     func(r *Request) { r.URL = "http://a.test/x?b=1&a=2&b=4" },
		"query more":      func(r *Request) { r.URL += "&c" },
		"query shifted":   func(r *Request) { r.URL = "http://a.test/x?b=1&a=2b&=3" },
		"no query":        func(r *Request) { r.URL = "http://a.test/x" },
		"empty query":     func(r *Request) { r.URL = "http://a.test/x?" },
		"user":            func(r *Request) { r.URL = "http://u:p@a.test/x?b=1&a=2&b=3" },
		"other user":      func(r *Request) { r.URL = "http://u:q@a.test/x?b=1&a=2&b=3" },
		"empty user":      func(r *Request) { r.URL = "http://@a.test/x?b=1&a=2&b=3" },
		"Host":            func(r *Request) { r.Header["Host"] = []string{"b.test"} },
		"header value":    func(r *Request) { r.Header["Accept"] = []string{"x", "z"} },
		"header order":    func(r *Request) { r.Header["Accept"] = []string{"y", "x"} },
		"header joined":   func(r *Request) { r.Header["Accept"] = []string{"xy"} },
		"header gone":     func(r *Request) { delete(r.Header, "Accept") },
		"header more":     func(r *Request) { r.Header["Authorization"] = []string{"s"} },
		"header empty":    func(r *Request) { r.Header["Authorization"] = []string{""} },
		"owner":           func(r *Request) { r.Owner = "p" },
		"no owner":        func(r *Request) { r.Owner = "" },
		"number literal":  func(r *Request) { r.Body = []byte(`{"a":[1.0,2],"a":3}`) },
		"array order":     func(r *Request) { r.Body = []byte(`{"a":[2,1],"a":3}`) },
		"duplicates":      func(r *Request) { r.Body = []byte(`{"a":3,"a":[1,2]}`) },
		"surrogate":       func(r *Request) { r.Body = []byte(`"\ud800"`) },
		"surrogate 2":     func(r *Request) { r.Body = []byte(`"\ud801"`) },
		"replacement":     func(r *Request) { r.Body = []byte(`"�"`) },
		"invalid UTF-8":   func(r *Request) { r.Body = []byte("\"\xff\"") },
		"invalid UTF-8 2": func(r *Request) { r.Body = []byte("\"\xfe\"") },
		"invalid JSON":    func(r *Request) { r.Body = []byte(`{"a":1,}`) },
		"invalid JSON 2":  func(r *Request) { r.Body = []byte(`{"a":1, }`) },
		"number string":   func(r *Request) { r.Body = []byte(`"1"`) },
		"number":          func(r *Request) { r.Body = []byte(`1`) },
		"empty array":     func(r *Request) { r.Body = []byte(`[]`) },
		"empty object":    func(r *Request) { r.Body = []byte(`{}`) },
		"nested":          func(r *Request) { r.Body = []byte(`[[],[]]`) },
		"nested 2":        func(r *Request) { r.Body = []byte(`[[[]]]`) },
		"no body":         func(r *Request) { r.Body = nil },
		"type":            func(r *Request) { r.Header["Content-Type"] = []string{"text/plain"} },
		"DedupeKey":       func(r *Request) { r.DedupeKey = "k" },
	} {
		var c Request
		r.cloneTo(&c)
		change(&c)
		k := keyOf(t, c)
		require.Empty(t, seen[k], "%s is like this", name)
		seen[k] = name
	}
}

// Only what is JSON by its type is read as JSON.
func TestKeyOfBodyByType(t *testing.T) {
	for typ, same := range map[string]bool{
		"application/json": true, "Application/JSON;charset=utf-8": true, "application/problem+json": true,
		"text/plain": false, "application/jsonx": false, "": false,
	} {
		r := Request{URL: "http://a.test", Method: "POST", Dedupe: true, Header: http.Header{"content-type": {typ}}, Body: []byte(`{"a":1,"b":2}`)}
		a := keyOf(t, r)
		r.Body = []byte(`{"b":2, "a":1}`)
		require.Equal(t, same, a == keyOf(t, r), typ)
	}
}

func TestDedupeKeyIsTakenAsItIs(t *testing.T) {
	a := Request{URL: "http://a.test/", DedupeKey: "k", Owner: "o"}
	b := Request{URL: "http://b.test/", Method: "POST", Header: http.Header{"X": {"1"}}, Body: []byte("x"), DedupeKey: "k", Owner: "o"}
	require.Equal(t, keyOf(t, a), keyOf(t, b))
	b.Owner = "p"
	require.NotEqual(t, keyOf(t, a), keyOf(t, b))
	task := Must(a.Task())
	require.Equal(t, rawDedupeKey("k"), task.sharingKey(nil, "o").family)
	require.Equal(t, Must(b.Task()).sharingKey(nil, "p").family, task.sharingKey(nil, "o").family)
}

// Identity is part of the key: pairs that differ in one of these are not twins.
func TestCaseH03Key(t *testing.T) {
	twin := Request{URL: "http://a.test/?a=1&b=2"}
	require.Equal(t, keyOf(t, twin), keyOf(t, Request{URL: "http://a.test/?b=2&a=1"}))
	for _, name := range []string{"Authorization", "Cookie", "If-None-Match", "Range", "Accept", "Host"} {
		a, b := twin, twin
		a.Header, b.Header = http.Header{name: {"alice"}}, http.Header{name: {"bob"}}
		require.NotEqual(t, keyOf(t, a), keyOf(t, b), name)
		require.NotEqual(t, keyOf(t, a), keyOf(t, twin), name)
		require.NotContains(t, keyOf(t, a), "alice")
	}
	require.Empty(t, keyOf(t, Request{URL: "http://a.test/", Method: "POST", Body: []byte("x")}))
}

// Equal secrets look different in different requests.
func TestKeyBindsValuesToTheRequest(t *testing.T) {
	h := http.Header{"Authorization": {"Bearer x"}}
	part := func(u string) string { return strings.Split(keyOf(t, Request{URL: u, Header: h}), ".")[2] }
	require.NotEqual(t, part("http://a.test/1"), part("http://a.test/2"))
}

func TestSharingKeyIgnores(t *testing.T) {
	full := Must(Request{URL: "http://a.test/", Header: http.Header{"A": {"1"}, "B": {"2"}, "C": {"3"}}}.Task())
	ignore := newHeaderSet([]string{"b", "X-Other"})
	require.Nil(t, newHeaderSet(nil))
	less := Must(Request{URL: "http://a.test/", Header: http.Header{"A": {"1"}, "C": {"3"}}}.Task())
	other := Must(Request{URL: "http://a.test/", Header: http.Header{"A": {"1"}, "b": {"9"}, "C": {"3"}}}.Task())
	require.Equal(t, less.sharingKey(nil, ""), full.sharingKey(ignore, ""))
	require.Equal(t, less.sharingKey(ignore, ""), other.sharingKey(ignore, ""))
	require.NotEqual(t, less.sharingKey(nil, ""), full.sharingKey(nil, ""))
	require.Equal(t, full.sharingKey(nil, "o").owner, hashOwner("o"))
}

// A key finds what was filed with ignored headers and hinted owners.
func TestParseKey(t *testing.T) {
	ignore := newHeaderSet([]string{"B"})
	for name, r := range map[string]Request{
		"plain":     {URL: "http://a.test/"},
		"headers":   {URL: "http://a.test/", Header: http.Header{"A": {"1"}, "B": {"2"}, "C": {"3"}}},
		"owner":     {URL: "http://a.test/", Header: http.Header{"B": {"2"}}, Owner: "o"},
		"named":     {URL: "http://a.test/", DedupeKey: "k"},
		"named own": {URL: "http://a.test/", DedupeKey: "k", Owner: "o"},
	} {
		task := Must(r.Task())
		for _, set := range []*headerSet{nil, ignore} {
			k, hasOwner, ok := parseKey(task.Key(), set)
			require.True(t, ok, name)
			require.Equal(t, task.sharingKey(set, r.Owner), k, name)
			require.Equal(t, r.Owner != "", hasOwner, name)
			require.Equal(t, task.sharingKey(set, "hinted").family, k.family, name)
		}
	}
	good := keyOf(t, Request{URL: "http://a.test/", Owner: "o", Header: http.Header{"A": {"1"}}})
	for _, bad := range []string{"", "k", "ax1.", "axk.", "ax1...", "axk..", good + ".", good + "A", good[:len(good)-1], strings.ToUpper(good), "ax2" + good[3:], strings.Replace(good, ".", ".A", 2)} {
		_, _, ok := parseKey(bad, nil)
		require.False(t, ok, bad)
	}
}

func TestURLFamily(t *testing.T) {
	of := func(r Request) string { return Must(r.Task()).urlFamily() }
	want := of(Request{URL: "http://a.test/x?a=1&b=2"})
	require.Equal(t, want, of(Request{URL: "HTTP://u:p@A.test:80/x?b=2&a=1#f", Method: "POST", Header: http.Header{"A": {"1"}, "Host": {"h"}}, Body: []byte("x")}))
	require.Equal(t, of(Request{URL: "http://a.test"}), of(Request{URL: "http://a.test/"}))
	require.NotEqual(t, want, of(Request{URL: "http://a.test/x?a=1"}))
	require.NotEqual(t, want, of(Request{URL: "http://a.test/y?a=1&b=2"}))
	require.NotEqual(t, want, of(Request{URL: "https://a.test/x?a=1&b=2"}))
	require.NotEqual(t, want, of(Request{URL: "http://b.test/x?a=1&b=2"}))
	require.Equal(t, Must(Request{URL: "http://a.test", Prepare: prepareNothing}.Task()).urlFamily(), of(Request{URL: "http://a.test/"}))
}

func TestKeyIsStable(t *testing.T) {
	require.Equal(t, "ax1.7Rqi8Eeoc0LFrD_x-39--DMZH0VqeATHojycyPm4lDo.E74a-XZmYelqI7TVOi2pXq-nOZb1b9Pk.ZcdMFaaGGHu2u_mVj0lPxg",
		keyOf(t, Request{URL: "http://a.test/x?b=1&a=2", Header: http.Header{"Accept": {"x"}}, Owner: "o"}))
}

func TestKeyConcurrently(t *testing.T) {
	task := Must(Request{URL: "http://a.test/", Header: http.Header{"A": {"1"}}}.Task())
	want := keyOf(t, task.Request())
	var readers errgroup.Group
	for range 8 {
		readers.Go(func() error {
			for range 100 {
				if got := task.Key(); got != want {
					return fmt.Errorf("the key became %s", got)
				}
			}
			return nil
		})
	}
	require.NoError(t, readers.Wait())
}

func TestSharingKeyAllocatesNothing(t *testing.T) {
	task := Must(Request{URL: "http://a.test/", Header: http.Header{"A": {"1"}}, Owner: "o"}.Task())
	ignore := newHeaderSet([]string{"B"})
	task.Key()
	require.Zero(t, testing.AllocsPerRun(100, func() { task.sharingKey(ignore, "o") }))
}

// FuzzKey: the same meaning has the same key, another meaning another.
func FuzzKey(f *testing.F) {
	f.Add("a", "1", "b", "2", "X-A", "v", "X-B", "w")
	f.Add("é", "\u2028<", "%", "", "Cookie", "", "Range", "b=1")
	f.Add("a", "\xff", "a", "�", "A", "1", "a", "2")
	f.Fuzz(func(t *testing.T, k1, v1, k2, v2, h1, w1, h2, w2 string) {
		h1, h2 = http.CanonicalHeaderKey(h1), http.CanonicalHeaderKey(h2)
		if h1 == h2 || h1 == "Host" || h2 == "Host" || h1 == "Content-Type" || h2 == "Content-Type" {
			t.Skip()
		}
		object := func(swap bool, k1, v1, k2, v2 string) json.RawMessage {
			enc := func(s string) string { b, _ := json.Marshal(s); return string(b) }
			if swap {
				return json.RawMessage(" {" + enc(k2) + " : [" + enc(v2) + "] ,\n" + enc(k1) + ":" + enc(v1) + "}")
			}
			return json.RawMessage("{" + enc(k1) + ":" + enc(v1) + "," + enc(k2) + ":[" + enc(v2) + "]}")
		}
		query := func(s ...string) string {
			return url.QueryEscape(s[0]) + "=" + url.QueryEscape(s[1]) + "&" + url.QueryEscape(s[2]) + "=" + url.QueryEscape(s[3])
		}
		r := Request{
			URL: "http://a.test/?" + query(k1, v1, k2, v2), Method: "POST", Dedupe: true,
			Header: http.Header{h1: {w1}, h2: {w2}}, JSON: object(false, k1, v1, k2, v2),
		}
		task, err := r.Task()
		if err != nil {
			t.Skip()
		}
		key := task.Key()
		twin := r
		if k1 != k2 {
			twin.URL = "HTTP://A.test:80/?" + query(k2, v2, k1, v1) + "#x"
		}
		if same := func(s string) string { return strings.ToValidUTF8(s, "�") }; same(k1) != same(k2) {
			twin.Body = nil
			twin.JSON = object(true, k1, v1, k2, v2)
		}
		twin.Header = http.Header{strings.ToLower(h2): {w2}, strings.ToLower(h1): {w1}}
		if len(twin.Header) == 2 {
			require.Equal(t, key, keyOf(t, twin))
		}
		parsed, _, ok := parseKey(key, nil)
		require.True(t, ok)
		require.Equal(t, task.sharingKey(nil, ""), parsed)

		others := map[string]func(*Request){
			"query":  func(r *Request) { r.URL = "http://a.test/?" + query(k1, v1+"x", k2, v2) },
			"query2": func(r *Request) { r.URL = "http://a.test/?" + query(k1, v1, k2+"x", v2) },
			"json":   func(r *Request) { r.JSON = object(false, k1, v1+"x", k2, v2) },
			"json2":  func(r *Request) { r.JSON = object(false, k1, v1, k2, v2+"x") },
		}
		for name, value := range map[string]string{h1: w1, h2: w2} {
			if !alwaysIgnored(name) {
				others[name] = func(r *Request) {
					r.Header = maps.Clone(r.Header)
					r.Header[name] = []string{value + "x"}
				}
			}
		}
		for name, change := range others {
			other := r
			change(&other)
			require.NotEqual(t, key, keyOf(t, other), name)
		}
	})
}

// FuzzParseKey: whatever is given to Invalidate, nothing breaks.
func FuzzParseKey(f *testing.F) {
	f.Add("ax1.7Rqi8Eeoc0LFrD_x-39--DMZH0VqeATHojycyPm4lDo.E74a-XZmYelqI7TVOi2pXq-nOZb1b9Pk.ZcdMFaaGGHu2u_mVj0lPxg")
	f.Add("axk..")
	ignore := newHeaderSet([]string{"Accept"})
	f.Fuzz(func(t *testing.T, s string) {
		k, hasOwner, ok := parseKey(s, ignore)
		require.Equal(t, ok, k.family != "")
		require.Equal(t, hasOwner, k.owner != "")
	})
}

func BenchmarkKey(b *testing.B) {
	for name, r := range benchRequests() {
		b.Run(name, func(b *testing.B) {
			task := Must(r.Task())
			b.ReportAllocs()
			for b.Loop() {
				task.keys.Store(nil)
				task.page.Store(nil)
				task.parts()
			}
		})
		b.Run(name+"/again", func(b *testing.B) {
			task := Must(r.Task())
			b.ReportAllocs()
			for b.Loop() {
				task.sharingKey(nil, "")
			}
		})
	}
}

// A key is derived before the mutex is taken, also where only Cooldown needs it: the
// body of a write may be large.
func TestKeyOfACooldownIsDerivedAhead(t *testing.T) {
	task := Must(Request{Method: "POST", URL: "http://a.test/", Body: []byte("body"), Cooldown: time.Second}.Task())
	task.partsAhead(false)
	require.NotNil(t, task.keys.Load())
}

func TestOwnerForgetsItsQueues(t *testing.T) {
	o := &owner{}
	for range 8 {
		o.queues = append(o.queues, &queue{lane: new(lane)})
	}
	for len(o.queues) > 0 {
		o.forgetQueue(o.queues[0])
	}
	for _, q := range o.queues[:cap(o.queues)] {
		require.Nil(t, q, "an emptied queue leads to its lane")
	}
}
