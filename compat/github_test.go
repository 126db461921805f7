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
	"github.com/google/go-github/v92/github"
	"github.com/stretchr/testify/require"
)

// hub is as much of the API as the tests ask for.
func hub(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case "/repos/o/old":
		http.Redirect(w, r, "/repos/o/new", http.StatusMovedPermanently)
	case "/repos/o/new":
		fmt.Fprintf(w, `{"name":"new","description":%q}`, r.Header.Get("Authorization"))
	case "/repos/o/new/issues":
		body, _ := io.ReadAll(r.Body)
		w.WriteHeader(http.StatusCreated)
		w.Write(body)
	default:
		http.NotFound(w, r)
	}
}

// githubClient is the library's client as it comes, over the given transport.
func githubClient(transport http.RoundTripper, url, token string) (*github.Client, error) {
	url += "/"
	return github.NewClient(github.WithTransport(transport), github.WithURLs(&url, &url), github.WithAuthToken(token))
}

// TestGitHub: reads, a moved repository, a write and a 404 come back as ever.
func TestGitHub(t *testing.T) {
	r := newRig(t, quick(), hub)
	c, err := githubClient(r.Transport(), r.Server.URL, "ann")
	require.NoError(t, err)
	ctx := soon(t)
	repo, _, err := c.Repositories.Get(ctx, "o", "old")
	require.NoError(t, err)
	require.Equal(t, "new", repo.GetName())
	require.Equal(t, 2, r.Sent(), "the redirect is a request of its own")

	title := "gate"
	issue, resp, err := c.Issues.Create(ctx, "o", "new", github.CreateIssueRequest{Title: title})
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, resp.StatusCode)
	require.Equal(t, title, issue.GetTitle())

	_, resp, err = c.Repositories.Get(ctx, "o", "none")
	require.Error(t, err)
	require.Equal(t, http.StatusNotFound, resp.StatusCode)
}

// TestGitHubRetries: the library retries nothing by itself; ax does, the reads.
func TestGitHubRetries(t *testing.T) {
	r := newRig(t, quick(), flaky(2, hub))
	c, err := githubClient(r.Transport(), r.Server.URL, "ann")
	require.NoError(t, err)
	_, _, err = c.Repositories.Get(soon(t), "o", "new")
	require.NoError(t, err)
	require.Equal(t, 3, r.Sent())
}

// TestGitHubRateLimited: a Retry-After longer than is waited for comes back at once,
// as the library's own error.
func TestGitHubRateLimited(t *testing.T) {
	r := newRig(t, quick(), func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "60")
		w.WriteHeader(http.StatusTooManyRequests)
		io.WriteString(w, `{"message":"slow down","documentation_url":"https://docs.github.com/rest/overview/rate-limits-for-the-rest-api#about-secondary-rate-limits"}`)
	})
	c, err := githubClient(r.Transport(), r.Server.URL, "ann")
	require.NoError(t, err)
	_, _, err = c.Repositories.Get(soon(t), "o", "new")
	limited, ok := errors.AsType[*github.AbuseRateLimitError](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, time.Minute, limited.GetRetryAfter())
	require.Equal(t, 1, r.Sent())
}

// TestGitHubShared: equal reads of one user at the same time are one request, those
// of another user are another's.
func TestGitHubShared(t *testing.T) {
	var asked atomic.Int64
	all := make(chan struct{})
	r := newRig(t, quick(), func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == 2 {
			time.AfterFunc(50*time.Millisecond, func() { close(all) })
		}
		<-all
		hub(w, r)
	})
	users := []string{"ann", "bob", "ann", "bob", "ann", "bob"}
	got := make([]string, len(users))
	together(len(users), func(i int) {
		c, err := githubClient(r.Transport(), r.Server.URL, users[i])
		if err != nil {
			return
		}
		if repo, _, err := c.Repositories.Get(soon(t), "o", "new"); err == nil {
			got[i] = strings.TrimPrefix(repo.GetDescription(), "Bearer ")
		}
	})
	require.Equal(t, users, got)
	st := r.Stats()
	require.EqualValues(t, 6, uint64(r.Sent())+st.Coalesced)
	require.NotZero(t, st.Coalesced)
}

// The API client of GitHub: equal reads are shared, none waits behind a batch.
func Example_github() {
	server := httptest.NewServer(http.HandlerFunc(hub))
	defer server.Close()
	sched, err := ax.New(nil, ax.Recommended())
	if err != nil {
		log.Fatal(err)
	}
	defer sched.Close()

	client, err := githubClient(sched.Transport(), server.URL, "token")
	if err != nil {
		log.Fatal(err)
	}
	ctx := ax.ContextWith(context.Background(), ax.Hints{Priority: ax.Urgent})
	repo, _, err := client.Repositories.Get(ctx, "o", "new")
	fmt.Println(repo.GetName(), err)
	// Output: new <nil>
}
