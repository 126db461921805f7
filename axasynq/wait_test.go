package axasynq_test

import (
	"context"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/axsched/ax"
	"github.com/axsched/ax/axasynq"
	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"
)

// A lane that is held back does not keep all workers from the others, and what waited
// in vain has not failed.
func TestWorkersAreFreedFromALaneThatIsHeld(t *testing.T) {
	s := newStore(t)
	held, free := httptest.NewServer(new(backend)), httptest.NewServer(new(backend))
	t.Cleanup(held.Close)
	t.Cleanup(free.Close)
	refused := make(chan error, 1000)
	server := quick() // 4 workers
	server.ErrorHandler = asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) { refused <- err })
	sched, _ := s.serveScheduler(ax.Config{Lanes: []ax.Lane{{Name: "held"}}}, server, axasynq.Options{QueueTimeout: 200 * time.Millisecond})
	require.NoError(t, sched.Pause("held"))
	var waiting []*asynq.TaskInfo
	for range 4 {
		waiting = append(waiting, s.enqueue(ax.Request{Method: "POST", URL: held.URL, Lane: "held"}, asynq.MaxRetry(1)))
	}
	require.Eventually(t, func() bool { return len(sched.Waiting(10)) == 4 }, 10*time.Second, time.Millisecond)
	s.await(s.enqueue(ax.Request{Method: "POST", URL: free.URL, Priority: ax.Urgent}), asynq.TaskStateCompleted)
	for range 8 {
		require.ErrorIs(t, <-refused, ax.ErrQueueTimeout)
	}
	require.NoError(t, sched.Resume("held"))
	for _, info := range waiting {
		require.Zero(t, s.await(info, asynq.TaskStateCompleted).Retried)
	}
}

// Who runs out of time before he is sent has not failed either.
func TestTimeLimitOfWhatWasNotSentIsNoFailure(t *testing.T) {
	s := newStore(t)
	srv := httptest.NewServer(new(backend))
	t.Cleanup(srv.Close)
	refused := make(chan error, 1000)
	server := quick()
	server.ErrorHandler = asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) { refused <- err })
	sched, _ := s.serveScheduler(ax.Config{Lanes: []ax.Lane{{Name: "held"}}}, server)
	require.NoError(t, sched.Pause("held"))
	info := s.enqueue(ax.Request{Method: "POST", URL: srv.URL, Lane: "held", NoRetry: true}, asynq.Timeout(time.Second), asynq.MaxRetry(1))
	for range 3 {
		require.ErrorIs(t, <-refused, context.DeadlineExceeded)
	}
	require.NoError(t, sched.Resume("held"))
	require.Zero(t, s.await(info, asynq.TaskStateCompleted).Retried)
}

func TestQueueTimeoutOfHandler(t *testing.T) {
	const sec = time.Second
	for _, c := range []struct {
		name string
		cfg  ax.Config
		o    axasynq.Options
		r    ax.Request
		want time.Duration
	}{
		{"default", ax.Config{}, axasynq.Options{}, ax.Request{}, axasynq.DefaultQueueTimeout},
		{"option", ax.Config{QueueTimeout: 7 * sec}, axasynq.Options{QueueTimeout: 3 * sec}, ax.Request{}, 3 * sec},
		{"task's own", ax.Config{}, axasynq.Options{QueueTimeout: 3 * sec}, ax.Request{QueueTimeout: 5 * sec}, 5 * sec},
		{"none", ax.Config{QueueTimeout: 7 * sec}, axasynq.Options{QueueTimeout: ax.NoTimeout}, ax.Request{}, 7 * sec},
		{"alternate", ax.Config{}, axasynq.Options{}, ax.Request{QueueTimeout: sec, Fallback: &ax.Fallback{
			Alternate: ax.Must(ax.Request{URL: "http://b.test/"}.Task()),
		}}, sec + axasynq.DefaultQueueTimeout},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sched, err := ax.New(nil, c.cfg)
				require.NoError(t, err)
				defer sched.Close()
				require.NoError(t, sched.Pause(""))
				c.r.URL = "http://a.test/"
				text, err := ax.Must(c.r.Task()).MarshalJSON()
				require.NoError(t, err)
				start := time.Now()
				err = axasynq.HandlerWith(sched, c.o).ProcessTask(t.Context(),
					asynq.NewTaskWithHeaders(axasynq.Type, nil, map[string]string{"ax-task": string(text)}))
				require.ErrorIs(t, err, ax.ErrQueueTimeout)
				require.False(t, axasynq.IsFailure(err))
				require.Equal(t, c.want, time.Since(start))
			})
		})
	}
	require.PanicsWithValue(t, "axasynq: Options.QueueTimeout: -1s is negative", func() {
		axasynq.HandlerWith(nil, axasynq.Options{QueueTimeout: -sec})
	})
}
