package axotel

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// Nothing of user info, query, headers, bodies and error texts is recorded,
// whatever way a task ends.
func TestNoSecretIsRecorded(t *testing.T) {
	const secret = "hunter2"
	cfg := ax.Config{
		AttemptTimeout: time.Second, Dedupe: &ax.Dedupe{Window: time.Second}, Breaker: &ax.Breaker{Window: 3, WhenOpen: ax.OpenReject},
		Retry: &ax.Retry{Max: 1, BaseDelay: time.Millisecond, Jitter: ax.NoJitter},
	}
	n := 0
	server := func(r *http.Request) (*http.Response, error) {
		n++
		switch n % 5 {
		case 0:
			<-r.Context().Done()
			return nil, r.Context().Err()
		case 1:
			return nil, &url.Error{Op: "Get", URL: r.URL.String(), Err: errors.New("token " + secret)}
		case 2:
			return answer(r, 500, secret, "Set-Cookie", secret), nil
		case 3:
			return answer(r, 401, secret, "X-Secret", secret), nil
		}
		return answer(r, 200, secret, "Location", "/?"+secret), nil
	}
	traced(t, cfg, server, func(r *rig) {
		for i := range 40 {
			req := ax.Request{
				Method: []string{"GET", "POST", "PUT"}[i%3],
				URL:    fmt.Sprintf("http://%s:%s@h%d.test/p?%s=%s#%s", secret, secret, i%13, secret, secret, secret),
				Query:  url.Values{secret: {secret}},
				Header: http.Header{"Authorization": {"Bearer " + secret}, "X-" + secret: {"1"}},
				Tags:   []string{secret}, Supersede: secret, DedupeKey: secret + strconv.Itoa(i%7),
				IdempotencyKey: secret,
			}
			if req.Method != "GET" {
				req.Body = []byte(secret)
			}
			_, _ = r.S.Send(r.Context(), req)
		}
		require.Greater(r, len(r.tasks()), 30)
		require.Greater(r, len(r.attempts()), 20)
		spans, err := json.Marshal(r.spans.GetSpans())
		require.NoError(r, err)
		require.Contains(r, string(spans), "h1.test") // what is recorded is there
		require.NotContains(r, string(spans), secret)
		metrics, err := json.Marshal(r.collected())
		require.NoError(r, err)
		require.Contains(r, string(metrics), "h1.test")
		require.NotContains(r, string(metrics), secret)
	})
}
