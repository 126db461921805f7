package compat_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/require"
)

// retryingClient is the library's client as it comes, over the given transport,
// with short waits.
func retryingClient(transport http.RoundTripper) *retryablehttp.Client {
	c := retryablehttp.NewClient()
	c.Logger = nil
	c.RetryMax = 2
	c.RetryWaitMin, c.RetryWaitMax = time.Millisecond, 2*time.Millisecond
	c.HTTPClient.Transport = transport
	return c
}

// TestRetryableHTTP: reads, writes and redirects come back as ever.
func TestRetryableHTTP(t *testing.T) {
	r := newRig(t, quick(), func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/old" {
			http.Redirect(w, r, "/new", http.StatusTemporaryRedirect)
			return
		}
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s", r.Method, r.URL.Path, body)
	})
	c := retryingClient(r.Transport())
	resp, err := c.Get(r.Server.URL + "/old")
	require.Equal(t, "GET /new ", text(t, resp, err))
	resp, err = c.Post(r.Server.URL+"/old", "text/plain", strings.NewReader("hi"))
	require.Equal(t, "POST /new hi", text(t, resp, err))
	require.Equal(t, 4, r.Sent())
}

// TestRetryableHTTPRetries: who retries is counted. Both together multiply, within
// ax's retry budget; one alone does not.
func TestRetryableHTTPRetries(t *testing.T) {
	for name, c := range map[string]struct {
		hints  ax.Hints
		max    int
		method string
		sent   int
	}{
		"read, ax alone":           {ax.Hints{}, 0, "GET", 3},
		"read, the library alone":  {ax.Hints{NoRetry: true}, 2, "GET", 3},
		"read, both":               {ax.Hints{}, 2, "GET", 6},
		"write, ax alone":          {ax.Hints{}, 0, "POST", 1},
		"write, the library alone": {ax.Hints{NoRetry: true}, 2, "POST", 3},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, quick(), func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) })
			client := retryingClient(r.TransportWith(c.hints))
			client.RetryMax = c.max
			client.ErrorHandler = retryablehttp.PassthroughErrorHandler
			req, err := retryablehttp.NewRequest(c.method, r.Server.URL, []byte("body"))
			require.NoError(t, err)
			resp, err := client.Do(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, 503, resp.StatusCode)
			require.Equal(t, c.sent, r.Sent())
		})
	}
}

// retryUnlessRefused is a CheckRetry that takes ax's word for final.
func retryUnlessRefused(ctx context.Context, resp *http.Response, err error) (bool, error) {
	if refused, ok := errors.AsType[*ax.Error](err); ok {
		return false, refused
	}
	return retryablehttp.DefaultRetryPolicy(ctx, resp, err)
}

// TestRetryableHTTPRefusals: the default CheckRetry takes every error for one of the
// connection and tries again what ax has refused, or a certificate that will not
// get better; one of a few lines does not.
func TestRetryableHTTPRefusals(t *testing.T) {
	untrusted := httptest.NewUnstartedServer(http.NotFoundHandler())
	untrusted.Config.ErrorLog = log.New(io.Discard, "", 0)
	untrusted.StartTLS()
	defer untrusted.Close()
	for name, c := range map[string]struct {
		check retryablehttp.CheckRetry
		tasks uint64
	}{
		"default":      {retryablehttp.DefaultRetryPolicy, 3},
		"of one's own": {retryUnlessRefused, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := ax.New(nil, quick())
			require.NoError(t, err)
			client := retryingClient(s.Transport())
			client.CheckRetry = c.check
			_, err = client.Get(untrusted.URL)
			require.ErrorContains(t, err, "certificate")
			require.Equal(t, c.tasks, s.Stats().Failed)
			require.Equal(t, c.tasks, s.Stats().Attempts, "ax itself does not retry it")

			require.NoError(t, s.Close())
			_, err = client.Get(untrusted.URL)
			require.ErrorContains(t, err, "closed")
			require.Equal(t, c.tasks, s.Stats().Rejected)
		})
	}
}

// TestRetryableHTTPIdle: the library closes idle connections after a failure; through
// the gate too.
func TestRetryableHTTPIdle(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(hello))
	defer srv.Close()
	var idle atomic.Int64
	base := idleCounter{http.DefaultTransport, &idle}
	s, err := ax.New(&http.Client{Transport: base}, quick())
	require.NoError(t, err)
	defer s.Close()
	client := retryingClient(s.Transport())
	resp, err := client.Get(srv.URL)
	require.Equal(t, "hello", text(t, resp, err))
	client.HTTPClient.CloseIdleConnections()
	require.EqualValues(t, 1, idle.Load())
}

// idleCounter counts the wishes to close idle connections.
type idleCounter struct {
	http.RoundTripper
	n *atomic.Int64
}

func (c idleCounter) CloseIdleConnections() { c.n.Add(1) }

// TestRetryableHTTPBelow: below the gate the library's retries are one attempt to ax.
func TestRetryableHTTPBelow(t *testing.T) {
	srv := httptest.NewServer(flaky(2, hello))
	r := rigOver(t, quick(), srv, func(base http.RoundTripper) http.RoundTripper {
		return retryingClient(base).StandardClient().Transport
	})
	resp, err := r.Client().Get(srv.URL)
	require.Equal(t, "hello", text(t, resp, err))
	require.Equal(t, 3, r.Sent())
	require.EqualValues(t, 1, r.Stats().Attempts)
}

// A retrying client on top: ax orders and limits, the library retries.
func Example_retryablehttp() {
	server := httptest.NewServer(flaky(1, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }))
	defer server.Close()
	sched, err := ax.New(nil, ax.Recommended())
	if err != nil {
		log.Fatal(err)
	}
	defer sched.Close()

	client := retryablehttp.NewClient()
	client.Logger = nil
	client.RetryWaitMin = 10 * time.Millisecond
	client.CheckRetry = retryUnlessRefused
	client.HTTPClient.Transport = sched.TransportWith(ax.Hints{NoRetry: true})
	resp, err := client.Get(server.URL)
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	fmt.Println(resp.StatusCode, sched.Stats().Attempts)
	// Output: 200 2
}
