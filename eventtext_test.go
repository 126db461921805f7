package ax_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

type secretKey struct{}

// An event may be printed and logged as it is: it tells what happened, and nothing
// of what its task and its context hold.
func TestEventTextShowsNoSecrets(t *testing.T) {
	task := ax.Must(ax.Request{
		Method: "PUT", URL: "http://user:secret@api.test/x?token=secret", Body: []byte("secret"),
		Header: http.Header{"Authorization": {"secret"}}, Owner: "team a",
	}.Task())
	e := ax.Event{
		Kind: ax.EventRetryScheduled, Time: time.Now(), Context: context.WithValue(context.Background(), secretKey{}, "secret"),
		Seq: 3, Task: task, Lane: "api.test", Owner: "team a", Attempt: 1, Waited: 20 * time.Millisecond,
		Took: time.Second, Delay: 2 * time.Second, Status: 503, Err: errors.New("reset by peer"),
	}
	want := `retry-scheduled seq=3 request="PUT http://api.test/x?token=xxxxx" lane=api.test owner="team a" attempt=1 waited=20ms took=1s delay=2s status=503 err="reset by peer"`
	require.Equal(t, want, e.String())
	require.Equal(t, want, fmt.Sprint(e))
	require.Equal(t, want, fmt.Sprintf("%+v", e))

	var out bytes.Buffer
	slog.New(slog.NewJSONHandler(&out, nil)).Info("ax", "event", e)
	require.Contains(t, out.String(), `"event":{"kind":"retry-scheduled","seq":3,"request":"PUT http://api.test/x?token=xxxxx","lane":"api.test"`)
	require.NotContains(t, out.String(), "secret")

	lane := ax.Event{Kind: ax.EventBreakerOpened, Lane: "api.test", Delay: time.Second, Reason: "4 of the last 10 attempts failed"}
	require.Equal(t, `breaker-opened lane=api.test delay=1s reason="4 of the last 10 attempts failed"`, lane.String())
	end := ax.Event{Kind: ax.EventSucceeded, Seq: 1, Task: ax.Must(ax.Request{URL: "http://a.test/"}.Task()), Status: 200, Source: ax.FromStale}
	require.Equal(t, `succeeded seq=1 request="GET http://a.test/" status=200 source=stale`, end.String())
}
