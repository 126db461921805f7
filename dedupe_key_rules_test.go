package ax_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

func dHeader(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

// dTwins are pairs of requests and whether D1 calls them the same.
var dTwins = map[string]struct {
	a, b ax.Request
	same bool
}{
	"equal":                 {dGet("/x"), dGet("/x"), true},
	"explicit method":       {dGet("/x"), ax.Request{Method: "GET", URL: at("/x")}, true},
	"scheme and host case":  {ax.Request{URL: "http://a.test/x"}, ax.Request{URL: "HTTP://A.Test/x"}, true},
	"default http port":     {ax.Request{URL: "http://a.test/x"}, ax.Request{URL: "http://a.test:80/x"}, true},
	"default https port":    {ax.Request{URL: "https://a.test/x"}, ax.Request{URL: "https://a.test:443/x"}, true},
	"https port on http":    {ax.Request{URL: "http://a.test/x"}, ax.Request{URL: "http://a.test:443/x"}, false},
	"other port":            {ax.Request{URL: "http://a.test/x"}, ax.Request{URL: "http://a.test:81/x"}, false},
	"scheme":                {ax.Request{URL: "http://a.test/x"}, ax.Request{URL: "https://a.test/x"}, false},
	"path case":             {dGet("/x"), dGet("/X"), false},
	"escaped slash":         {dGet("/a/b"), dGet("/a%2Fb"), false},
	"query order":           {dGet("/x?a=1&b=2"), dGet("/x?b=2&a=1"), true},
	"Query field":           {dGet("/x?a=1&b=2"), ax.Request{URL: at("/x?b=2"), Query: url.Values{"a": {"1"}}}, true},
	"repeated value order":  {dGet("/x?a=1&a=2"), dGet("/x?a=2&a=1"), false},
	"query value":           {dGet("/x?a=1"), dGet("/x?a=2"), false},
	"value moved to key":    {dGet("/x?a=b&c=d"), dGet("/x?a=b%26c%3Dd"), false},
	"fragment":              {dGet("/x#one"), dGet("/x#two"), true},
	"user info":             {ax.Request{URL: "http://u:p@a.test/x"}, ax.Request{URL: "http://v:q@a.test/x"}, false},
	"HEAD and GET":          {dGet("/x"), ax.Request{Method: "HEAD", URL: at("/x")}, false},
	"owner":                 {ax.Request{URL: at("/x"), Owner: "o"}, ax.Request{URL: at("/x"), Owner: "p"}, false},
	"Authorization":         {ax.Request{URL: at("/x"), Header: dHeader("Authorization", "A")}, ax.Request{URL: at("/x"), Header: dHeader("Authorization", "B")}, false},
	"Authorization or none": {dGet("/x"), ax.Request{URL: at("/x"), Header: dHeader("Authorization", "B")}, false},
	"Cookie":                {ax.Request{URL: at("/x"), Header: dHeader("Cookie", "A=1")}, ax.Request{URL: at("/x"), Header: dHeader("Cookie", "A=2")}, false},
	"If-None-Match":         {ax.Request{URL: at("/x"), Header: dHeader("If-None-Match", "A")}, ax.Request{URL: at("/x"), Header: dHeader("If-None-Match", "B")}, false},
	"Range":                 {ax.Request{URL: at("/x"), Header: dHeader("Range", "bytes=0-1")}, ax.Request{URL: at("/x"), Header: dHeader("Range", "bytes=2-3")}, false},
	"Accept":                {ax.Request{URL: at("/x"), Header: dHeader("Accept", "a/b")}, ax.Request{URL: at("/x"), Header: dHeader("Accept", "b/a")}, false},
	"any other header":      {ax.Request{URL: at("/x"), Header: dHeader("X-Tenant", "A")}, ax.Request{URL: at("/x"), Header: dHeader("X-Tenant", "B")}, false},
	"header value order":    {ax.Request{URL: at("/x"), Header: dHeader("X-A", "1", "X-A", "2")}, ax.Request{URL: at("/x"), Header: dHeader("X-A", "2", "X-A", "1")}, false},
	"two lines, one line":   {ax.Request{URL: at("/x"), Header: dHeader("X-A", "1", "X-B", "2")}, ax.Request{URL: at("/x"), Header: dHeader("X-A", "1\tX-B: 2")}, false},
	"header name case":      {ax.Request{URL: at("/x"), Header: http.Header{"X-Tenant": {"A"}}}, ax.Request{URL: at("/x"), Header: http.Header{"x-tenant": {"A"}}}, true},
	"GET bodies":            {ax.Request{URL: at("/x"), Body: []byte("1")}, ax.Request{URL: at("/x"), Body: []byte("2")}, false},
	"POST":                  {ax.Request{Method: "POST", URL: at("/x"), Body: []byte("1")}, ax.Request{Method: "POST", URL: at("/x"), Body: []byte("1")}, false},
	"PUT":                   {ax.Request{Method: "PUT", URL: at("/x")}, ax.Request{Method: "PUT", URL: at("/x")}, false},
	"DELETE":                {ax.Request{Method: "DELETE", URL: at("/x")}, ax.Request{Method: "DELETE", URL: at("/x")}, false},
	"OPTIONS":               {ax.Request{Method: "OPTIONS", URL: at("/x")}, ax.Request{Method: "OPTIONS", URL: at("/x")}, false},
	"POST asked":            {ax.Request{Method: "POST", URL: at("/x"), Body: []byte("1"), Dedupe: true}, ax.Request{Method: "POST", URL: at("/x"), Body: []byte("1"), Dedupe: true}, true},
	"POST asked, bodies":    {ax.Request{Method: "POST", URL: at("/x"), Body: []byte("1"), Dedupe: true}, ax.Request{Method: "POST", URL: at("/x"), Body: []byte("2"), Dedupe: true}, false},
	"POST asked, methods":   {ax.Request{Method: "POST", URL: at("/x"), Dedupe: true}, ax.Request{Method: "PUT", URL: at("/x"), Dedupe: true}, false},
	"POST, Idempotency-Key": {ax.Request{Method: "POST", URL: at("/x"), IdempotencyKey: "k"}, ax.Request{Method: "POST", URL: at("/x"), IdempotencyKey: "k"}, false},
	"other idempotency key": {ax.Request{URL: at("/x"), IdempotencyKey: "k"}, ax.Request{URL: at("/x"), IdempotencyKey: "l"}, true},
	"other key header":      {ax.Request{URL: at("/x"), Header: dHeader("Idempotency-Key", "k")}, ax.Request{URL: at("/x"), Header: dHeader("Idempotency-Key", "l")}, true},
	"DedupeKey":             {ax.Request{URL: at("/x"), DedupeKey: "k"}, ax.Request{URL: at("/y"), DedupeKey: "k"}, true},
	"DedupeKey of writes":   {ax.Request{Method: "POST", URL: at("/x"), DedupeKey: "k"}, ax.Request{Method: "POST", URL: at("/x"), Body: []byte("2"), DedupeKey: "k"}, true},
	"DedupeKeys":            {ax.Request{URL: at("/x"), DedupeKey: "k"}, ax.Request{URL: at("/x"), DedupeKey: "l"}, false},
	"DedupeKey, owners":     {ax.Request{URL: at("/x"), DedupeKey: "k", Owner: "o"}, ax.Request{URL: at("/x"), DedupeKey: "k", Owner: "p"}, false},
	"DedupeKey or derived":  {ax.Request{URL: at("/x"), DedupeKey: "k"}, dGet("/x"), false},
	"owner beside key":      {ax.Request{URL: at("/x"), DedupeKey: "ab", Owner: "c"}, ax.Request{URL: at("/x"), DedupeKey: "a", Owner: "bc"}, false},
	"NoDedupe":              {ax.Request{URL: at("/x"), NoDedupe: true}, ax.Request{URL: at("/x"), NoDedupe: true}, false},
	"one NoDedupe":          {dGet("/x"), ax.Request{URL: at("/x"), NoDedupe: true}, false},
	"Prepare":               {ax.Request{URL: at("/x"), Prepare: dNoPrepare}, ax.Request{URL: at("/x"), Prepare: dNoPrepare}, false},
	"Prepare, DedupeKey":    {ax.Request{URL: at("/x"), Prepare: dNoPrepare, DedupeKey: "k"}, ax.Request{URL: at("/x"), Prepare: dNoPrepare, DedupeKey: "k"}, true},
	"JSON key order":        {dJSON(`{"a":1,"b":[1,2]}`), dJSON(`{ "b" : [ 1 , 2 ], "a" : 1 }`), true},
	"JSON nested order":     {dJSON(`[{"a":{"x":1,"y":2}}]`), dJSON(`[{"a":{"y":2,"x":1}}]`), true},
	"JSON escapes":          {dJSON(`{"a":"\u0041"}`), dJSON(`{"a":"A"}`), true},
	"JSON array order":      {dJSON(`[1,2]`), dJSON(`[2,1]`), false},
	"JSON number literal":   {dJSON(`{"a":1}`), dJSON(`{"a":1.0}`), false},
	"JSON exponent":         {dJSON(`100`), dJSON(`1e2`), false},
	"JSON large numbers":    {dJSON(`9007199254740993`), dJSON(`9007199254740992`), false},
	"JSON number or string": {dJSON(`{"a":1}`), dJSON(`{"a":"1"}`), false},
	"JSON null or absent":   {dJSON(`{"a":null}`), dJSON(`{}`), false},
	"User-Agent":            {ax.Request{URL: at("/x"), Header: dHeader("User-Agent", "A")}, ax.Request{URL: at("/x"), Header: dHeader("User-Agent", "B")}, true},
	"Traceparent":           {ax.Request{URL: at("/x"), Header: dHeader("Traceparent", "A")}, ax.Request{URL: at("/x"), Header: dHeader("Traceparent", "B")}, true},
	"Tracestate":            {ax.Request{URL: at("/x"), Header: dHeader("Tracestate", "A")}, ax.Request{URL: at("/x"), Header: dHeader("Tracestate", "B")}, true},
	"Baggage":               {ax.Request{URL: at("/x"), Header: dHeader("Baggage", "A")}, dGet("/x"), true},
	"X-Request-Id":          {ax.Request{URL: at("/x"), Header: dHeader("X-Request-Id", "A")}, ax.Request{URL: at("/x"), Header: dHeader("X-Request-Id", "B")}, true},
	"configured header":     {ax.Request{URL: at("/x"), Header: dHeader("X-Nonce", "A")}, ax.Request{URL: at("/x"), Header: dHeader("X-Nonce", "B")}, true},
	"scheduling fields":     {ax.Request{URL: at("/x"), Priority: ax.Urgent, Tags: []string{"a"}, AttemptTimeout: time.Hour}, dGet("/x"), true},
}

func dNoPrepare(*http.Request) error { return nil }

func dJSON(text string) ax.Request {
	return ax.Request{Method: "POST", URL: at("/x"), JSON: json.RawMessage(text), Dedupe: true}
}

// TestD1WhatIsTheSame sends each pair at once: twins are one request, all others two.
func TestD1WhatIsTheSame(t *testing.T) {
	for name, pair := range dTwins {
		t.Run(name, func(t *testing.T) {
			cfg := ax.Config{Dedupe: &ax.Dedupe{IgnoreHeaders: []string{"x-nonce"}}}
			bubble(t, cfg, func(t *tester) {
				t.Server.Reply = after(100*time.Millisecond, 200, "")
				a, b := t.Go(dBG, pair.a), t.Go(dBG, pair.b)
				require.Equal(t, 200, (<-a).Status())
				require.Equal(t, 200, (<-b).Status())
				want := 2
				if pair.same {
					want = 1
				}
				require.Equal(t, want, t.Server.Count())
			})
		})
	}
}

// TestD1Key is the same seen through Task.Key, but for what only a Config knows.
func TestD1Key(t *testing.T) {
	for name, pair := range dTwins {
		a, b := ax.Must(pair.a.Task()), ax.Must(pair.b.Task())
		require.Equal(t, a.Key(), ax.Must(pair.a.Task()).Key(), "%s: one request, one key", name)
		if !pair.same && a.Key() != "" {
			require.NotEqual(t, a.Key(), b.Key(), name)
		}
	}
	for name, r := range map[string]ax.Request{
		"POST":     {Method: "POST", URL: at("/x")},
		"NoDedupe": {URL: at("/x"), NoDedupe: true},
		"Prepare":  {URL: at("/x"), Prepare: dNoPrepare},
	} {
		require.Empty(t, ax.Must(r.Task()).Key(), name)
	}
	for name, r := range map[string]ax.Request{
		"GET":       dGet("/x"),
		"HEAD":      {Method: "HEAD", URL: at("/x")},
		"Dedupe":    {Method: "PATCH", URL: at("/x"), Dedupe: true},
		"DedupeKey": {Method: "POST", URL: at("/x"), DedupeKey: "k"},
	} {
		require.NotEmpty(t, ax.Must(r.Task()).Key(), name)
	}
}

// TestD1KeyHoldsNoSecret: what could be a credential is only in the hash.
func TestD1KeyHoldsNoSecret(t *testing.T) {
	key := ax.Must(ax.Request{
		URL: "http://hush1:hush2@a.test/x?token=hush3", Owner: "o", Body: []byte("hush4"),
		Header: dHeader("Authorization", "Bearer hush5", "Cookie", "s=hush6"),
	}.Task()).Key()
	require.NotEmpty(t, key)
	require.NotContains(t, key, "hush")
}

// TestD1HostOverride: the Host that is asked distinguishes, whatever the address.
func TestD1HostOverride(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{}}, func(t *tester) {
		t.Server.Reply = after(100*time.Millisecond, 200, "")
		for _, host := range []string{"one.test", "two.test", "one.test"} {
			req, err := http.NewRequest("GET", at("/x"), nil)
			require.NoError(t, err)
			req.Host = host
			task, err := ax.TaskFrom(req, ax.Request{})
			require.NoError(t, err)
			t.S.Submit(dBG, task).Discard()
		}
		t.Until(time.Second)
		require.Equal(t, 2, t.Server.Count())
		require.NotEqual(t, t.Server.Hits()[0].Host, t.Server.Hits()[1].Host)
	})
}

// TestD1LaterChangesOfTheRequest do not reach a task: neither what it sends nor its key.
func TestD1LaterChangesOfTheRequest(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{}}, func(t *tester) {
		r := ax.Request{Method: "POST", URL: at("/x"), Body: []byte("abc"), Header: dHeader("X-A", "1"), Query: url.Values{"q": {"1"}}, Dedupe: true}
		task := ax.Must(r.Task())
		key := task.Key()
		copy(r.Body, "zzz")
		r.Header.Set("X-A", "2")
		r.Query.Set("q", "2")
		got := task.Request()
		copy(got.Body, "yyy")
		got.Header.Set("X-A", "3")
		_, err := t.S.Do(dBG, task)
		require.NoError(t, err)
		h := t.Server.Hits()[0]
		require.Equal(t, "abc", string(h.Body))
		require.Equal(t, "1", h.Header.Get("X-A"))
		require.Equal(t, "q=1", h.URL.RawQuery)
		require.Equal(t, key, task.Key())
	})
}

// TestD1HintedOwner: an owner that the context names distinguishes as the field does.
func TestD1HintedOwner(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{}}, func(t *tester) {
		t.Server.Reply = after(100*time.Millisecond, 200, "")
		one := ax.ContextWith(context.Background(), ax.Hints{Owner: "one"})
		two := ax.ContextWith(context.Background(), ax.Hints{Owner: "two"})
		a, b, c := t.Go(one, dGet("/x")), t.Go(two, dGet("/x")), t.Go(one, dGet("/x"))
		synctest.Wait()
		require.Equal(t, 2, t.Server.Count())
		for _, r := range []<-chan result{a, b, c} {
			require.Equal(t, 200, (<-r).Status())
		}
	})
}
