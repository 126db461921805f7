package axdebug_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/axsched/ax/axdebug"
	"github.com/stretchr/testify/require"
)

// TestPlantedSecretsAreNotShown plants a secret wherever a request can carry one,
// has everything happen to such requests that can, and looks for it wherever
// the handler tells something.
func TestPlantedSecretsAreNotShown(t *testing.T) {
	const secret = "pl4nt3d"
	var n int
	cfg := ax.Config{
		MaxConcurrent: 1, MaxQueue: 4, QueueTimeout: 3 * time.Second,
		Dedupe: &ax.Dedupe{Window: time.Second}, Retry: &ax.Retry{Max: 1, Unsafe: true}, Breaker: &ax.Breaker{Window: 6},
		Executor: ax.ExecutorFunc(func(ctx context.Context, task *ax.Task) (*http.Response, error) {
			time.Sleep(200 * time.Millisecond)
			n++
			switch n % 3 {
			case 0: // as a transport that is too talkative would say it
				return nil, fmt.Errorf("dial %s: refused", task.URL())
			case 1:
				return nil, errors.New("bad token " + secret + "-query and user " + secret + "-user:" + secret + "-password")
			}
			return &http.Response{StatusCode: http.StatusBadGateway, Header: http.Header{"X-Secret": {secret}}}, nil
		}),
	}
	request := func(i int) ax.Request {
		return ax.Request{
			Method: http.MethodPost, Dedupe: true, Tags: []string{secret}, DedupeKey: secret + fmt.Sprint(i/2), IdempotencyKey: secret,
			URL:    fmt.Sprintf("https://%[1]s-user:%[1]s-password@api.example/%[2]d?token=%[1]s-query&x=%[1]s%%2Fy#%[1]s", secret, i),
			Header: http.Header{"Authorization": {"Bearer " + secret}},
			Body:   []byte(secret),
		}
	}
	bubble(t, cfg, axdebug.Options{Control: true}, func(t *tester) {
		events, live := t.Read("/events"), t.Read("/live")
		var told strings.Builder
		look := func() {
			for _, target := range []string{"/", "/?q=api", "/stats.json"} {
				told.WriteString(t.Ask("GET", target).Body.String())
			}
			told.WriteString(events.Take())
			told.WriteString(live.Take())
		}
		for i := range 12 {
			t.Submit(request(i))
			look()
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		t.S.CancelTag(secret)
		look()
		events.Leave()
		live.Leave()

		for _, kind := range []string{"submitted", "queued", "coalesced", "started", "attempt-done", "retry-scheduled", "failed", "rejected", "breaker-opened"} {
			require.Contains(t, told.String(), `"kind":"`+kind+`"`, "what the secrets were to be seen in")
		}
		require.Contains(t, told.String(), "token=xxxxx")
		require.Contains(t, told.String(), "bad token xxxxx and user xxxxx")
		require.NotContains(t, told.String(), secret)
	})
}
