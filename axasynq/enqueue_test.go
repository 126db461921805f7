package axasynq_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/axsched/ax/axasynq"
	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"
)

func TestEnqueueRefusesByName(t *testing.T) {
	client := asynq.NewClient(asynq.RedisClientOpt{Addr: "127.0.0.1:1"}) // nothing is sent there
	defer client.Close()
	for _, c := range []struct {
		name string
		r    ax.Request
		want string
	}{
		{"Prepare", ax.Request{Prepare: func(*http.Request) error { return nil }}, "Request.Prepare: cannot be written as JSON"},
		{"GetBody", ax.Request{GetBody: func() (io.ReadCloser, error) { return http.NoBody, nil }}, "Request.GetBody: cannot be written as JSON"},
		{"If", ax.Request{Retry: &ax.Retry{If: func(ax.Outcome) bool { return true }}}, "Request.Retry.If: cannot be written as JSON"},
		{"Static", ax.Request{Fallback: &ax.Fallback{Static: func(context.Context, *ax.Task, error) (*http.Response, error) {
			return nil, nil
		}}}, "Request.Fallback.Static: cannot be written as JSON"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.r.URL = "http://a.test/"
			info, err := axasynq.Enqueue(t.Context(), client, ax.Must(c.r.Task()))
			require.Nil(t, info)
			require.EqualError(t, err, "axasynq: ax: task has no JSON form: "+c.want)
		})
	}
	_, err := axasynq.Enqueue(t.Context(), client, nil)
	require.EqualError(t, err, "axasynq: ax: zero Task; make one with Request.Task")
	_, err = axasynq.Enqueue(t.Context(), nil, ax.Must(ax.Request{URL: "http://a.test/"}.Task()))
	require.EqualError(t, err, "axasynq: nil asynq.Client")
}

// Which is the newest cannot be told where old ones are tried again.
func TestEnqueueRefusesSupersede(t *testing.T) {
	client := asynq.NewClient(asynq.RedisClientOpt{Addr: "127.0.0.1:1"}) // nothing is sent there
	defer client.Close()
	r := ax.Request{Method: "PUT", URL: "http://a.test/", Supersede: "profile-7"}
	const why = ".Supersede: cannot be stored: an older task that is tried again would end the newer one"
	_, err := axasynq.Enqueue(t.Context(), client, ax.Must(r.Task()))
	require.EqualError(t, err, "axasynq: Request"+why)
	alternate := ax.Must(r.Task())
	_, err = axasynq.Enqueue(t.Context(), client,
		ax.Must(ax.Request{URL: "http://b.test/", Fallback: &ax.Fallback{Alternate: alternate}}.Task()))
	require.EqualError(t, err, "axasynq: Request.Fallback.Alternate"+why)
}

func TestQueues(t *testing.T) {
	q := axasynq.Queues()
	require.Equal(t, map[string]int{"urgent": 8, "important": 4, "default": 2, "low": 1}, q)
	q["urgent"] = 0
	require.Equal(t, 8, axasynq.Queues()["urgent"])
}

func TestEnqueueQueuesByPriority(t *testing.T) {
	s := newStore(t)
	for _, c := range []struct {
		p    ax.Priority
		want string
	}{
		{-7, "low"}, {ax.Low, "low"}, {ax.Normal, "default"}, {ax.Important, "important"}, {ax.Urgent, "urgent"}, {99, "urgent"},
	} {
		info := s.enqueue(ax.Request{Method: "POST", URL: "http://a.test/", Priority: c.p})
		require.Equal(t, c.want, info.Queue, "%v", c.p)
		require.Equal(t, axasynq.Type, info.Type)
	}
}

func TestEnqueueTimeoutAndRetention(t *testing.T) {
	s := newStore(t)
	const sec = time.Second
	alternate := func(r ax.Request) *ax.Fallback {
		r.URL = "http://b.test/"
		return &ax.Fallback{Alternate: ax.Must(r.Task())}
	}
	minute := ax.Request{AttemptTimeout: time.Minute, QueueTimeout: time.Minute, NoRetry: true}
	second := ax.Request{AttemptTimeout: sec, QueueTimeout: sec, NoRetry: true, Fallback: alternate(minute)}
	for _, c := range []struct {
		name    string
		r       ax.Request
		opts    []asynq.Option
		timeout time.Duration
		keep    time.Duration
	}{
		{"unknown", ax.Request{}, nil, 30 * time.Minute, 24 * time.Hour},
		{"no queue timeout", ax.Request{AttemptTimeout: 5 * sec}, nil, 30 * time.Minute, 24 * time.Hour},
		{"unlimited", ax.Request{AttemptTimeout: ax.NoTimeout, QueueTimeout: sec}, nil, 30 * time.Minute, 24 * time.Hour},
		{"defaults of Retry", ax.Request{AttemptTimeout: 5 * sec, QueueTimeout: 10 * sec}, nil, (3*15 + 2*30 + 1) * sec, 24 * time.Hour},
		{"own Retry", ax.Request{
			AttemptTimeout: sec, QueueTimeout: sec, Retry: &ax.Retry{Max: 4, MaxDelay: 3 * sec},
		}, nil, (5*2 + 4*3 + 1) * sec, 24 * time.Hour},
		{"no retry", ax.Request{AttemptTimeout: 1500 * time.Millisecond, QueueTimeout: sec, NoRetry: true}, nil, 4 * sec, 24 * time.Hour},
		{"alternate", second, nil, (2 + 120 + 1) * sec, 24 * time.Hour},
		{"alternates", ax.Request{AttemptTimeout: sec, QueueTimeout: sec, NoRetry: true, Fallback: alternate(second)}, nil, (2 + 2 + 120 + 1) * sec, 24 * time.Hour},
		{"unknown alternate", ax.Request{
			AttemptTimeout: sec, QueueTimeout: sec, Fallback: alternate(ax.Request{AttemptTimeout: sec}),
		}, nil, 30 * time.Minute, 24 * time.Hour},
		{"stale only", ax.Request{
			AttemptTimeout: sec, QueueTimeout: sec, NoRetry: true, Fallback: &ax.Fallback{Stale: time.Hour},
		}, nil, 3 * sec, 24 * time.Hour},
		{"too long", ax.Request{AttemptTimeout: 1 << 62, QueueTimeout: 1 << 62}, nil, 30 * time.Minute, 24 * time.Hour},
		{"options win", ax.Request{AttemptTimeout: sec, QueueTimeout: sec}, []asynq.Option{
			asynq.Timeout(time.Minute), asynq.Retention(0), asynq.Queue("default"),
		}, time.Minute, 0},
	} {
		c.r.Method, c.r.URL = "POST", "http://a.test/"
		info := s.enqueue(c.r, c.opts...)
		require.Equal(t, c.timeout, info.Timeout, c.name)
		require.Equal(t, c.keep, info.Retention, c.name)
		require.Equal(t, 25, info.MaxRetry, c.name)
	}
}

func TestEnqueueIsUniqueByDedupeKey(t *testing.T) {
	s := newStore(t)
	enqueue := func(r ax.Request) error {
		_, err := axasynq.Enqueue(t.Context(), s.client, ax.Must(r.Task()))
		return err
	}
	get := ax.Request{URL: "http://a.test/?b=1&a=2"}
	require.NoError(t, enqueue(get))
	require.ErrorIs(t, enqueue(get), asynq.ErrDuplicateTask)
	same := ax.Request{URL: "http://A.test:80/?a=2&b=1", Tags: []string{"other"}, Header: http.Header{"Traceparent": {"x"}}}
	require.ErrorIs(t, enqueue(same), asynq.ErrDuplicateTask)
	other := get
	other.Owner = "somebody"
	require.NoError(t, enqueue(other))
	other.NoDedupe = true
	require.NoError(t, enqueue(other))
	require.NoError(t, enqueue(other))

	post := ax.Request{Method: "POST", URL: "http://a.test/"}
	require.NoError(t, enqueue(post)) // a write has no key of itself
	require.NoError(t, enqueue(post))
	post.DedupeKey = "order-7"
	require.NoError(t, enqueue(post))
	post.Body = []byte("another body")
	require.ErrorIs(t, enqueue(post), asynq.ErrDuplicateTask)
}

// Who asks for asynq.Unique without a key means the request, not all that have none.
func TestEnqueueIsUniqueWithoutAKey(t *testing.T) {
	s := newStore(t)
	enqueue := func(r ax.Request) error {
		_, err := axasynq.Enqueue(t.Context(), s.client, ax.Must(r.Task()), asynq.Unique(time.Minute))
		return err
	}
	post := ax.Request{Method: "POST", URL: "http://a.test/orders", Body: []byte("1")}
	require.NoError(t, enqueue(post))
	require.ErrorIs(t, enqueue(post), asynq.ErrDuplicateTask)
	other := post
	other.Body = []byte("2")
	require.NoError(t, enqueue(other))
	require.NoError(t, enqueue(ax.Request{Method: "DELETE", URL: "http://b.test/users/2"}))
	get := ax.Request{URL: "http://a.test/", NoDedupe: true}
	require.NoError(t, enqueue(get))
	get.URL += "2"
	require.NoError(t, enqueue(get))
}
