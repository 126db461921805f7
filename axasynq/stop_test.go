package axasynq_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/axsched/ax/axasynq"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestMain lets the test be a worker process of itself.
func TestMain(m *testing.M) {
	if addr := os.Getenv("AXASYNQ_TEST_WORKER"); addr != "" {
		if err := work(addr); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// work serves until it is killed.
func work(addr string) error {
	sched, err := ax.New(nil, ax.Config{})
	if err != nil {
		return err
	}
	return asynq.NewServer(asynq.RedisClientOpt{Addr: addr, DB: 15}, config()).Run(axasynq.Handler(sched))
}

// A stop lets what is in flight end.
func TestStopFinishesWhatIsInFlight(t *testing.T) {
	s := newStore(t)
	came := make(chan struct{})
	b := &backend{reply: func(_ int, w http.ResponseWriter, _ *http.Request) {
		close(came)
		time.Sleep(300 * time.Millisecond) // a slow server, not a wait for anything
		w.Write([]byte("late"))
	}}
	srv := httptest.NewServer(b)
	defer srv.Close()
	info := s.enqueue(ax.Request{Method: "POST", URL: srv.URL})
	stop := s.serve(ax.Config{}, config())
	<-came
	stop()
	got, err := s.inspector.GetTaskInfo(info.Queue, info.ID)
	require.NoError(t, err)
	require.Equal(t, asynq.TaskStateCompleted, got.State)
	require.Equal(t, "late", string(result(t, got).Body))
	require.Len(t, b.saw(), 1)
}

// What does not end in time goes back, and another worker sends it again with the
// same key.
func TestStopGivesBackWhatTakesTooLong(t *testing.T) {
	s := newStore(t)
	came, gone := make(chan struct{}), make(chan struct{})
	b := &backend{reply: func(n int, _ http.ResponseWriter, r *http.Request) {
		if n == 1 {
			close(came)
			<-r.Context().Done()
			close(gone)
		}
	}}
	srv := httptest.NewServer(b)
	defer srv.Close()
	info := s.enqueue(ax.Request{Method: "POST", URL: srv.URL})
	impatient := config()
	impatient.ShutdownTimeout = 100 * time.Millisecond
	stop := s.serve(ax.Config{}, impatient)
	<-came
	stop()
	<-gone // the request was torn down
	s.serve(ax.Config{}, config())
	got := s.await(info, asynq.TaskStateCompleted)
	require.Zero(t, got.Retried)
	saw := b.saw()
	require.Len(t, saw, 2)
	require.Equal(t, info.ID, saw[0].key)
	require.Equal(t, info.ID, saw[1].key)
}

// A worker killed in the middle of its request leaves the task to another: it is
// sent at least once, here twice, with the same key.
func TestCrashSendsAgainWithTheSameKey(t *testing.T) {
	s := newStore(t)
	b, info := crash(s, ax.Request{Method: "POST"})
	s.serve(ax.Config{}, quick())
	got := s.await(info, asynq.TaskStateCompleted)
	require.Equal(t, 1, got.Retried) // a crash counts: what kills its workers must not live for ever
	saw := b.saw()
	require.Len(t, saw, 2)
	require.Equal(t, info.ID, saw[0].key)
	require.Equal(t, info.ID, saw[1].key)
}

// With NoRetry it is given up: it may have been sent.
func TestCrashDoesNotSendNoRetryAgain(t *testing.T) {
	s := newStore(t)
	b, info := crash(s, ax.Request{Method: "POST", NoRetry: true})
	s.serve(ax.Config{}, quick())
	got := s.await(info, asynq.TaskStateArchived)
	require.Contains(t, got.LastErr, "may have been sent")
	require.Len(t, b.saw(), 1)
}

// crash stores r for a backend of its own, and kills a worker that has sent it.
func crash(s *store, r ax.Request) (*backend, *asynq.TaskInfo) {
	s.Helper()
	came := make(chan struct{})
	b := &backend{reply: func(n int, _ http.ResponseWriter, r *http.Request) {
		if n == 1 {
			close(came)
			<-r.Context().Done()
		}
	}}
	srv := httptest.NewServer(b)
	s.Cleanup(srv.Close)
	r.URL = srv.URL
	info := s.enqueue(r)

	worker := exec.Command(os.Args[0])
	worker.Env = append(os.Environ(), "AXASYNQ_TEST_WORKER="+s.opt.Addr)
	worker.Stderr = os.Stderr
	require.NoError(s, worker.Start())
	select {
	case <-came:
	case <-time.After(20 * time.Second):
		s.Error("the worker sends nothing")
	}
	require.NoError(s, worker.Process.Kill())
	require.Error(s, worker.Wait())

	// Its lease would expire in 30 s, and be missed 30 s after: an hour ago will do.
	require.NoError(s, s.rdb.ZAdd(context.Background(), "asynq:{"+info.Queue+"}:lease",
		redis.Z{Score: float64(time.Now().Add(-time.Hour).Unix()), Member: info.ID}).Err())
	return b, info
}
