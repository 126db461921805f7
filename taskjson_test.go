package ax

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func fullRequest() Request {
	return Request{
		Method: "POST", URL: "http://u:p@A.test/x?z=1", Query: url.Values{"q": {"1", "2"}}, Header: http.Header{"x-raw": {"1", "é"}},
		JSON: json.RawMessage(`{"b":1,"a":"\u003c"}`), Priority: -7, Lane: "l", Owner: "o", Tags: []string{"s", "t"},
		AttemptTimeout: 1500 * time.Millisecond, QueueTimeout: NoTimeout, AgingStep: 1,
		Retry:  &Retry{Max: 3, BaseDelay: time.Second, MaxDelay: time.Minute, Jitter: EqualJitter, Budget: 0.1, Unsafe: true},
		NoWait: true, IdempotencyKey: "i", DedupeKey: "d", Dedupe: true, DedupeWindow: time.Hour, Supersede: "s", Cooldown: time.Second,
		Fallback: &Fallback{Stale: time.Hour, Alternate: Must(Request{URL: "http://b.test/", Body: []byte("x"), NoRetry: true, NoDedupe: true}.Task())},
		Hedge:    &Hedge{After: time.Second}, Stream: true,
	}
}

// The stored form is a contract.
func TestTaskJSON(t *testing.T) {
	task := Must(fullRequest().Task())
	b, err := json.Marshal(task)
	require.NoError(t, err)
	require.Equal(t, `{"method":"POST","url":"http://u:p@A.test/x?z=1","query":{"q":["1","2"]},"header":{"x-raw":["1","é"]},`+
		`"json":{"b":1,"a":"\u003c"},"priority":-7,"lane":"l","owner":"o","tags":["s","t"],"attempt_timeout":"1.5s",`+
		`"queue_timeout":"2562047h47m16.854775807s","aging_step":"1ns",`+
		`"retry":{"max":3,"base_delay":"1s","max_delay":"1m0s","jitter":"equal","budget":0.1,"unsafe":true},"no_wait":true,`+
		`"idempotency_key":"i","dedupe_key":"d","dedupe":true,"dedupe_window":"1h0m0s","supersede":"s","cooldown":"1s",`+
		`"fallback":{"alternate":{"url":"http://b.test/","body":"eA==","no_retry":true,"no_dedupe":true},"stale":"1h0m0s"},`+
		`"hedge":{"after":"1s"},"stream":true}`, string(b))
	var again *Task
	require.NoError(t, json.Unmarshal(b, &again))
	require.Equal(t, task.Key(), again.Key())
	a, c := task.Request(), again.Request()
	require.Equal(t, a.Fallback.Alternate.Request(), c.Fallback.Alternate.Request())
	a.Fallback.Alternate, c.Fallback.Alternate = nil, nil
	require.Equal(t, a, c)
}

func TestTaskJSONRoundTrips(t *testing.T) {
	for name, r := range map[string]Request{
		"least":        {URL: "http://a.test"},
		"empty retry":  {URL: "http://a.test", Retry: &Retry{}, Hedge: &Hedge{}},
		"no jitter":    {URL: "http://a.test", Retry: &Retry{Jitter: NoJitter}},
		"off":          {URL: "http://a.test", NoRetry: true, NoFallback: true, NoDedupe: true},
		"binary":       {URL: "http://a.test", Body: []byte{0, 0xff}},
		"null":         {URL: "http://a.test", JSON: json.RawMessage("null")},
		"stale":        {URL: "http://a.test", Fallback: &Fallback{Stale: 1}},
		"host":         {URL: "http://a.test", Header: http.Header{"Host": {"b.test"}}},
		"empty values": {URL: "http://a.test", Header: http.Header{"X": nil, "Y": {}}, Query: url.Values{"a": nil}},
	} {
		task := Must(r.Task())
		b, err := json.Marshal(task)
		require.NoError(t, err, name)
		again := new(Task)
		require.NoError(t, json.Unmarshal(b, again), name)
		require.Equal(t, task.Key(), again.Key(), name)
		if name != "empty values" {
			require.Equal(t, task.Request(), again.Request(), name)
		}
		twice, err := json.Marshal(again)
		require.NoError(t, err, name)
		require.Equal(t, string(b), string(twice), name)
	}
}

func TestTaskJSONRefuses(t *testing.T) {
	const u, end = "http://a.test", ": cannot be written as JSON"
	static := func(context.Context, *Task, error) (*http.Response, error) { return nil, nil }
	prepared := Must(Request{URL: u, Prepare: prepareNothing}.Task())
	for want, r := range map[string]Request{
		"Request.GetBody" + end:         {URL: u, GetBody: openNothing},
		"Request.Prepare" + end:         {URL: u, Prepare: prepareNothing},
		"Request.Retry.If" + end:        {URL: u, Retry: &Retry{If: func(Outcome) bool { return true }}},
		"Request.Fallback.Static" + end: {URL: u, Fallback: &Fallback{Static: static}},
		"Request.Fallback.Alternate: ax: task has no JSON form: Request.Prepare" + end: {URL: u, Fallback: &Fallback{Alternate: prepared}},
		"Request.GetBody" + end + "\nRequest.Prepare" + end:                            {URL: u, Prepare: prepareNothing, GetBody: openNothing},
		"Request.Header[X]: is not UTF-8 and cannot be written as JSON":                {URL: u, Header: http.Header{"X": {"\xff"}}},
		"Request.Query: is not UTF-8 and cannot be written as JSON":                    {URL: u, Query: url.Values{"a": {"\xff"}}},
		"Request.Owner: is not UTF-8 and cannot be written as JSON":                    {URL: u, Owner: "\xff"},
		"Request.Tags[1]: is not UTF-8 and cannot be written as JSON":                  {URL: u, Tags: []string{"a", "\xff"}},
	} {
		_, err := Must(r.Task()).MarshalJSON()
		require.EqualError(t, err, "ax: task has no JSON form: "+want)
	}
}

func TestTaskJSONRefusesInput(t *testing.T) {
	for in, want := range map[string]string{
		`{"url":"http://a.test","nope":1}`:                            `ax: task JSON: json: unknown field "nope"`,
		`{"url":"http://a.test","retry":{"if":1}}`:                    `ax: task JSON: json: unknown field "if"`,
		`{"url":"http://a.test","fallback":{"alternate":{"nope":1}}}`: `Request.Fallback.Alternate: ax: task JSON: json: unknown field "nope"`,
		`{"url":"http://a.test","fallback":{"alternate":{}}}`:         "Request.Fallback.Alternate: ax: invalid request: Request.URL: empty; it must be absolute, like https://host/path",
		`{"url":"http://a.test","body":"eA==","json":1}`:              "ax: invalid request: Request.Body: excludes Request.JSON",
		`{"url":"http://a.test","cooldown":"-1s"}`:                    "ax: invalid request: Request.Cooldown: -1s is negative",
		`{"url":"http://a.test","retry":{"jitter":"some"}}`:           `ax: task JSON: unknown jitter "some": full, equal or none`,
		`{}`:    "ax: invalid request: Request.URL: empty; it must be absolute, like https://host/path",
		`{} {}`: "ax: task JSON: more than one value",
	} {
		task := new(Task)
		require.EqualError(t, task.UnmarshalJSON([]byte(in)), want, in)
		require.False(t, task.usable())
	}
	for _, in := range []string{"", "[]", `"x"`, `{"url":1}`, `{"cooldown":1}`, `{"cooldown":"1"}`, `{"body":"%"}`} {
		require.Error(t, new(Task).UnmarshalJSON([]byte(in)), in)
	}
	deep := strings.Repeat(`{"url":"http://a.test","fallback":{"alternate":`, 18) + `{"url":"http://a.test"}` + strings.Repeat(`}}`, 18)
	require.ErrorContains(t, new(Task).UnmarshalJSON([]byte(deep)), "ax: task JSON: more than 16 alternates in a chain")
}

func TestTaskJSONNull(t *testing.T) {
	var v struct{ A, B *Task }
	v.B = new(Task)
	require.NoError(t, json.Unmarshal([]byte(`{"A":null,"B":null}`), &v))
	require.Nil(t, v.A)
	require.NoError(t, new(Task).UnmarshalJSON([]byte("null")))
}

// A task that is in use is not overwritten.
func TestTaskJSONIntoUsedTask(t *testing.T) {
	task := Must(Request{URL: "http://a.test/"}.Task())
	require.EqualError(t, json.Unmarshal([]byte(`{"url":"http://b.test/"}`), task), "ax: a Task does not change; unmarshal into a new one")
	require.Equal(t, "http://a.test/", task.URL())
}

func TestTaskJSONDeepestChain(t *testing.T) {
	task := chain(t, maxAlternates)
	b, err := json.Marshal(task)
	require.NoError(t, err)
	again := new(Task)
	require.NoError(t, json.Unmarshal(b, again))
	require.Equal(t, maxAlternates, again.depth)
}

func FuzzTaskJSON(f *testing.F) {
	full, err := json.Marshal(Must(fullRequest().Task()))
	require.NoError(f, err)
	f.Add(full)
	f.Add([]byte(`{"url":"http://a.test","body":"eA==","retry":{},"tags":[],"query":{"a":null},"json":null}`))
	f.Add([]byte(`{"URL":"http://a.test","json":{"a":1e9999}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		task := new(Task)
		if err := task.UnmarshalJSON(b); err != nil || !task.usable() {
			require.False(t, task.usable())
			return
		}
		once, err := json.Marshal(task)
		require.NoError(t, err)
		again := new(Task)
		require.NoError(t, json.Unmarshal(once, again))
		require.Equal(t, task.Key(), again.Key())
		twice, err := json.Marshal(again)
		require.NoError(t, err)
		require.True(t, bytes.Equal(once, twice), "%s\n%s", once, twice)
	})
}
