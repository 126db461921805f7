package compat_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
	"resty.dev/v3"
)

type word struct{ Text string }

// restySite answers in JSON with the method and what was sent.
func restySite(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/old" {
		http.Redirect(w, r, "/new", http.StatusFound)
		return
	}
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(word{strings.TrimSpace(r.Method + " " + r.URL.Path + " " + r.Header.Get("Authorization") + string(body))})
}

// TestResty: reads, writes, redirects and parsed answers come back as ever.
func TestResty(t *testing.T) {
	r := newRig(t, quick(), restySite)
	c := resty.New().SetTransport(r.Transport()).SetBaseURL(r.Server.URL)
	defer c.Close()
	var got word
	_, err := c.R().SetContext(soon(t)).SetResult(&got).Get("/old")
	require.NoError(t, err)
	require.Equal(t, "GET /new", got.Text)
	_, err = c.R().SetContext(soon(t)).SetBody("hi").SetResult(&got).Post("/x")
	require.NoError(t, err)
	require.Equal(t, "POST /x hi", got.Text)
	require.Equal(t, 3, r.Sent())
}

// TestRestyRetries: resty retries nothing unless told to; told so, it multiplies
// with ax within ax's retry budget, unless that client's hint says NoRetry.
func TestRestyRetries(t *testing.T) {
	for name, c := range map[string]struct {
		hints ax.Hints
		count int
		sent  int
	}{
		"ax alone":    {ax.Hints{}, 0, 3},
		"resty alone": {ax.Hints{NoRetry: true}, 2, 3},
		"both":        {ax.Hints{}, 2, 6},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, quick(), func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) })
			client := resty.New().SetTransport(r.TransportWith(c.hints)).SetRetryCount(c.count).
				SetRetryWaitTime(time.Millisecond).SetRetryMaxWaitTime(2 * time.Millisecond).
				AddRetryConditions(resty.RetryConditionStatus5XX)
			defer client.Close()
			resp, err := client.R().SetContext(soon(t)).Get(r.Server.URL)
			require.NoError(t, err)
			require.Equal(t, 503, resp.StatusCode())
			require.Equal(t, c.sent, r.Sent())
		})
	}
}

// TestRestyUsersApart: a token distinguishes two users of the same URL.
func TestRestyUsersApart(t *testing.T) {
	cfg := quick()
	cfg.Dedupe.Window = time.Minute
	r := newRig(t, cfg, restySite)
	c := resty.New().SetTransport(r.Transport()).SetLoggerWarnLevel(true)
	defer c.Close()
	ask := func(user string) string {
		var got word
		_, err := c.R().SetContext(soon(t)).SetAuthToken(user).SetResult(&got).Get(r.Server.URL + "/me")
		require.NoError(t, err)
		return got.Text
	}
	for range 2 {
		require.Equal(t, "GET /me Bearer ann", ask("ann"))
		require.Equal(t, "GET /me Bearer bob", ask("bob"))
	}
	require.Equal(t, 2, r.Sent())
	require.EqualValues(t, 2, r.Stats().WindowHits)
}

// TestRestyTrace: what resty measures of a connection it measures through the gate too.
func TestRestyTrace(t *testing.T) {
	r := newRig(t, quick(), restySite)
	c := resty.New().SetTransport(r.Transport()).SetTrace(true)
	defer c.Close()
	resp, err := c.R().SetContext(soon(t)).Get(r.Server.URL)
	require.NoError(t, err)
	trace := resp.Request.TraceInfo()
	require.Equal(t, r.Server.Listener.Addr().String(), trace.RemoteAddr)
	require.Positive(t, trace.ServerTime)
}

// TestRestyUnparsed: a body that resty leaves alone arrives in pieces, and its slot
// is held until it is closed.
func TestRestyUnparsed(t *testing.T) {
	next := make(chan struct{})
	r := newRig(t, quick(), inPieces("text/plain", next))
	c := resty.New().SetTransport(r.Transport())
	defer c.Close()
	resp, err := c.R().SetContext(soon(t)).SetResponseDoNotParse(true).Get(r.Server.URL)
	require.NoError(t, err)
	readPieces(t, r, resp.Body, next)
}

// TestRestyTransportSettings: what resty sets on an *http.Transport it cannot set on
// ax's; it says so, and the request goes out as if it had not been asked.
func TestRestyTransportSettings(t *testing.T) {
	r := newRig(t, quick(), restySite)
	c := resty.New().SetTransport(r.Transport())
	defer c.Close()
	_, err := c.HTTPTransport()
	require.ErrorIs(t, err, resty.ErrNotHttpTransportType)
}

// A client of resty behind the gate.
func Example_resty() {
	server := httptest.NewServer(http.HandlerFunc(restySite))
	defer server.Close()
	sched, err := ax.New(nil, ax.Recommended())
	if err != nil {
		log.Fatal(err)
	}
	defer sched.Close()

	client := resty.New().SetTransport(sched.Transport())
	defer client.Close()
	var got word
	_, err = client.R().SetResult(&got).Get(server.URL + "/hello")
	fmt.Println(got.Text, err)
	// Output: GET /hello <nil>
}
