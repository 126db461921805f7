package browsertest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/axsched/ax/axdebug"
	"github.com/stretchr/testify/require"
)

// stage is a scheduler with a script, and its page on loopback.
type stage struct {
	*ax.Scheduler
	t      *testing.T
	server *httptest.Server
	open   chan struct{} // closed to let /held requests go
}

func newStage(t *testing.T, o axdebug.Options) *stage {
	t.Helper()
	st := &stage{t: t, open: make(chan struct{})}
	cfg := ax.Config{
		Executor: ax.ExecutorFunc(st.execute),
		Dedupe:   &ax.Dedupe{Window: time.Hour},
		Lanes: []ax.Lane{
			{Name: "api", Match: []string{"api.example"}, MaxConcurrent: 2},
			{Name: "down", Match: []string{"down.example"}, Breaker: &ax.Breaker{Window: 3, OpenFor: time.Minute}},
		},
		Budgets: map[string]ax.Budget{"alice": {MaxConcurrent: 1}},
	}
	s, err := ax.New(nil, cfg)
	require.NoError(t, err)
	st.Scheduler = s
	st.server = httptest.NewServer(axdebug.HandlerWith(s, o))
	t.Cleanup(func() {
		st.server.CloseClientConnections() // open streams
		st.server.Close()
		require.NoError(t, s.Close())
	})
	return st
}

// execute holds /held requests, fails those of down.example, and answers all
// others at once.
func (st *stage) execute(ctx context.Context, t *ax.Task) (*http.Response, error) {
	status := http.StatusOK
	switch {
	case strings.Contains(t.URL(), "/held"):
		select {
		case <-st.open:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	case strings.Contains(t.URL(), "down.example"):
		status = http.StatusBadGateway
	}
	return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader("ok"))}, nil
}

func (st *stage) submit(r ax.Request) {
	st.t.Helper()
	task, err := r.Task()
	require.NoError(st.t, err)
	st.Submit(context.Background(), task).Discard()
}

// play has everything happen that the page can show: two attempts that hold
// their lane, four that queue behind them, an owner over its budget, an open
// breaker, answers shared in flight and from the window.
func (st *stage) play() {
	st.t.Helper()
	for i := range 3 {
		resp, err := st.Get(context.Background(), fmt.Sprintf("https://down.example/%d", i))
		require.NoError(st.t, err)
		require.Equal(st.t, http.StatusBadGateway, resp.StatusCode)
	}
	for range 5 { // one attempt, four answers from the window
		_, err := st.Get(context.Background(), "https://fast.example/logo")
		require.NoError(st.t, err)
	}
	for i := range 2 {
		st.submit(ax.Request{URL: fmt.Sprintf("https://user:pl4nt3d@api.example/held/%d?token=pl4nt3d", i)})
	}
	st.submit(ax.Request{URL: "https://user:pl4nt3d@api.example/held/0?token=pl4nt3d"}) // joins
	st.submit(ax.Request{URL: "https://api.example/low", Priority: ax.Low})
	st.submit(ax.Request{URL: "https://api.example/urgent", Priority: ax.Urgent})
	st.submit(ax.Request{URL: "https://fast.example/held/a", Owner: "alice"})
	st.submit(ax.Request{URL: "https://fast.example/held/b", Owner: "alice"})
}

func quote(s string) string { return strconv.Quote(s) }
