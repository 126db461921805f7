package compat_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
)

// tokenOf is a source with one token for ever.
func tokenOf(user string) oauth2.TokenSource {
	return oauth2.StaticTokenSource(&oauth2.Token{AccessToken: user})
}

// TestOAuth2Over: tokens are added above the scheduler, so it sees them: one
// user's answers are shared, another's never.
func TestOAuth2Over(t *testing.T) {
	cfg := quick()
	cfg.Dedupe.Window = time.Minute
	r := newRig(t, cfg, echoUser)
	for range 2 {
		for _, user := range []string{"ann", "bob"} {
			c := &http.Client{Transport: &oauth2.Transport{Source: tokenOf(user), Base: r.Transport()}}
			resp, err := c.Get(r.Server.URL)
			require.Equal(t, "Bearer "+user, text(t, resp, err))
		}
	}
	require.Equal(t, 2, r.Sent())
	require.EqualValues(t, 2, r.Stats().WindowHits)
}

// TestOAuth2Below: tokens are added below the scheduler, on every attempt and
// every redirect; the scheduler is then one user's.
func TestOAuth2Below(t *testing.T) {
	srv := httptest.NewServer(flaky(1, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/old" {
			http.Redirect(w, r, "/new", http.StatusFound)
			return
		}
		echoUser(w, r)
	}))
	r := rigOver(t, quick(), srv, func(base http.RoundTripper) http.RoundTripper {
		return &oauth2.Transport{Source: tokenOf("ann"), Base: base}
	})
	resp, err := r.Client().Get(srv.URL + "/old")
	require.Equal(t, "Bearer ann", text(t, resp, err))
	require.Equal(t, 3, r.Sent(), "a retry and a redirect")
	direct, err := r.Get(soon(t), srv.URL+"/old")
	require.NoError(t, err)
	p, err := direct.Bytes()
	require.NoError(t, err)
	require.Equal(t, "Bearer ann", string(p))
}

// issuer gives out the token "fresh" at /token.
func issuer(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/token" {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"access_token":"fresh","token_type":"Bearer","expires_in":3600}`)
		return
	}
	echoUser(w, r)
}

// TestOAuth2TokenThroughGate: above the scheduler the token itself may be fetched
// through it, even if one request at a time is all there is.
func TestOAuth2TokenThroughGate(t *testing.T) {
	cfg := quick()
	cfg.MaxConcurrent = 1
	r := newRig(t, cfg, issuer)
	ctx := context.WithValue(soon(t), oauth2.HTTPClient, r.Client())
	conf := clientcredentials.Config{ClientID: "id", ClientSecret: "secret", TokenURL: r.Server.URL + "/token"}
	resp, err := conf.Client(ctx).Get(r.Server.URL)
	require.Equal(t, "Bearer fresh", text(t, resp, err))
	require.Equal(t, 2, r.Sent())
}

// TestOAuth2TokenBelowGate: a source below the scheduler that fetches through it
// waits for the slot of the very request that needs the token. It must have a
// client of its own.
func TestOAuth2TokenBelowGate(t *testing.T) {
	for name, through := range map[string]bool{"of its own": false, "the same": true} {
		t.Run(name, func(t *testing.T) {
			cfg := ax.Config{MaxConcurrent: 1, QueueTimeout: 50 * time.Millisecond}
			srv := httptest.NewServer(http.HandlerFunc(issuer))
			var inner http.RoundTripper = srv.Client().Transport
			later := roundTripper(func(req *http.Request) (*http.Response, error) { return inner.RoundTrip(req) })
			ctx := context.WithValue(soon(t), oauth2.HTTPClient, &http.Client{Transport: later})
			conf := clientcredentials.Config{ClientID: "id", ClientSecret: "secret", TokenURL: srv.URL + "/token"}
			r := rigOver(t, cfg, srv, func(base http.RoundTripper) http.RoundTripper {
				return &oauth2.Transport{Source: conf.TokenSource(ctx), Base: base}
			})
			if !through {
				resp, err := r.Client().Get(srv.URL)
				require.Equal(t, "Bearer fresh", text(t, resp, err))
				return
			}
			inner = r.Transport()
			_, err := r.Client().Get(srv.URL)
			require.ErrorIs(t, err, ax.ErrQueueTimeout)
		})
	}
}

// roundTripper is a function as a transport.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// Tokens above the gate: each user's client, one scheduler.
func Example_oauth2() {
	server := httptest.NewServer(http.HandlerFunc(echoUser))
	defer server.Close()
	sched, err := ax.New(nil, ax.Recommended())
	if err != nil {
		log.Fatal(err)
	}
	defer sched.Close()

	ctx := context.WithValue(context.Background(), oauth2.HTTPClient, &http.Client{Transport: sched.Transport()})
	for _, user := range []string{"ann", "bob"} {
		resp, err := oauth2.NewClient(ctx, tokenOf(user)).Get(server.URL)
		if err != nil {
			log.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		fmt.Println(string(body), err)
	}
	// Output:
	// Bearer ann <nil>
	// Bearer bob <nil>
}
