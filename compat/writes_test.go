package compat_test

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/require"
	"golang.org/x/oauth2"
	"resty.dev/v3"
)

// put is a PUT with a body through some client; it returns the status.
type put func(t *testing.T, r *rig, body string) int

// through is a put by a plain client over what wraps the scheduler.
func through(wrap func(http.RoundTripper) http.RoundTripper) put {
	return func(t *testing.T, r *rig, body string) int {
		req, err := http.NewRequestWithContext(soon(t), http.MethodPut, r.Server.URL, strings.NewReader(body))
		require.NoError(t, err)
		resp, err := (&http.Client{Transport: wrap(r.Transport())}).Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode
	}
}

// TestWritesReplayed: these clients say how to open a body again, so that ax can
// retry a PUT, and every attempt carries the whole of it.
func TestWritesReplayed(t *testing.T) {
	for name, put := range map[string]put{
		"net/http": through(func(rt http.RoundTripper) http.RoundTripper { return rt }),
		"oauth2 over": through(func(rt http.RoundTripper) http.RoundTripper {
			return &oauth2.Transport{Source: tokenOf("ann"), Base: rt}
		}),
		"otelhttp over": through(newTracer().Over),
		"go-github": func(t *testing.T, r *rig, body string) int {
			c, err := githubClient(r.Transport(), r.Server.URL, "ann")
			require.NoError(t, err)
			req, err := c.NewRequest(soon(t), http.MethodPut, "x", body)
			require.NoError(t, err)
			resp, err := c.Do(req, nil)
			require.NoError(t, err)
			return resp.StatusCode
		},
		"resty": func(t *testing.T, r *rig, body string) int {
			c := resty.New().SetTransport(r.Transport())
			defer c.Close()
			resp, err := c.R().SetContext(soon(t)).SetBody(body).Put(r.Server.URL)
			require.NoError(t, err)
			return resp.StatusCode()
		},
		"retryablehttp": func(t *testing.T, r *rig, body string) int {
			req, err := retryablehttp.NewRequestWithContext(soon(t), http.MethodPut, r.Server.URL, strings.NewReader(body))
			require.NoError(t, err)
			resp, err := retryingClient(r.Transport()).Do(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			return resp.StatusCode
		},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var bodies []string
			again := flaky(1, func(http.ResponseWriter, *http.Request) {})
			r := newRig(t, quick(), func(w http.ResponseWriter, r *http.Request) {
				p, _ := io.ReadAll(r.Body)
				mu.Lock()
				bodies = append(bodies, strings.Trim(string(p), "\"\n"))
				mu.Unlock()
				again(w, r)
			})
			require.Equal(t, http.StatusOK, put(t, r, "whole"))
			require.Equal(t, []string{"whole", "whole"}, bodies)
		})
	}
}
