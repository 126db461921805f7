package axasynq_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/axsched/ax/axasynq"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// unavailable begins the reason of every skip for want of a Redis; CI fails on it.
const unavailable = "REDIS-UNAVAILABLE"

// store is a Redis with nothing in it, and asynq's view of it.
type store struct {
	*testing.T
	opt       asynq.RedisClientOpt
	rdb       *redis.Client
	client    *asynq.Client
	inspector *asynq.Inspector
}

// newStore is a redis-server of the test's own, or database 15 of AX_REDIS_ADDR,
// which must be empty and is emptied afterwards.
func newStore(t *testing.T) *store {
	t.Helper()
	s := &store{T: t, opt: asynq.RedisClientOpt{Addr: os.Getenv("AX_REDIS_ADDR"), DB: 15}}
	if s.opt.Addr == "" {
		s.opt.Addr = startRedis(t)
	}
	s.rdb = redis.NewClient(&redis.Options{Addr: s.opt.Addr, DB: s.opt.DB})
	s.client = asynq.NewClient(s.opt)
	s.inspector = asynq.NewInspector(s.opt)
	t.Cleanup(func() {
		require.NoError(t, s.rdb.FlushDB(context.Background()).Err())
		require.NoError(t, s.rdb.Close())
		require.NoError(t, s.client.Close())
		require.NoError(t, s.inspector.Close())
	})
	size, err := s.rdb.DBSize(t.Context()).Result()
	require.NoError(t, err)
	require.Zero(t, size, "database 15 of AX_REDIS_ADDR is not empty")
	return s
}

// startRedis starts a redis-server on a free loopback port, or skips without the
// program.
func startRedis(t *testing.T) (addr string) {
	t.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip(unavailable + ": set AX_REDIS_ADDR or install redis-server")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr = l.Addr().String()
	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	require.NoError(t, l.Close())
	cmd := exec.Command(program, "--port", port, "--bind", "127.0.0.1", "--dir", t.TempDir(), "--save", "", "--appendonly", "no")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	c := redis.NewClient(&redis.Options{Addr: addr})
	defer c.Close()
	require.Eventually(t, func() bool { return c.Ping(t.Context()).Err() == nil }, 10*time.Second, 10*time.Millisecond)
	return addr
}

// config is a server's, quick to notice new work.
func config() asynq.Config {
	return asynq.Config{
		Concurrency: 4, Queues: axasynq.Queues(), IsFailure: axasynq.IsFailure, RetryDelayFunc: axasynq.RetryDelay,
		TaskCheckInterval: 10 * time.Millisecond, DelayedTaskCheckInterval: 20 * time.Millisecond, LogLevel: asynq.FatalLevel,
	}
}

// serve starts an asynq server over a scheduler of cfg; stop ends both, in the
// order that the documentation asks for.
func (s *store) serve(cfg ax.Config, server asynq.Config) (stop func()) {
	s.Helper()
	_, stop = s.serveScheduler(cfg, server)
	return stop
}

// serveScheduler is serve, for a test that needs the scheduler.
func (s *store) serveScheduler(cfg ax.Config, server asynq.Config, o ...axasynq.Options) (sched *ax.Scheduler, stop func()) {
	s.Helper()
	sched, err := ax.New(nil, cfg)
	require.NoError(s, err)
	srv := asynq.NewServer(s.opt, server)
	h := axasynq.Handler(sched)
	if len(o) > 0 {
		h = axasynq.HandlerWith(sched, o[0])
	}
	require.NoError(s, srv.Start(h))
	stop = sync.OnceFunc(func() {
		srv.Shutdown()
		require.NoError(s, sched.Shutdown(context.Background()))
	})
	s.Cleanup(stop)
	return sched, stop
}

// enqueue stores r.
func (s *store) enqueue(r ax.Request, opts ...asynq.Option) *asynq.TaskInfo {
	s.Helper()
	info, err := axasynq.Enqueue(s.Context(), s.client, ax.Must(r.Task()), opts...)
	require.NoError(s, err)
	return info
}

// await waits until the task of info is in state, and returns it.
func (s *store) await(info *asynq.TaskInfo, state asynq.TaskState) (got *asynq.TaskInfo) {
	s.Helper()
	require.Eventually(s, func() bool {
		var err error
		got, err = s.inspector.GetTaskInfo(info.Queue, info.ID)
		return err == nil && got.State == state
	}, 15*time.Second, 5*time.Millisecond, "task does not become %v", state)
	return got
}

// seen is one request as a backend saw it.
type seen struct {
	method, path, key, body string
	header                  http.Header
	at                      time.Time
}

// backend is a server that notes what it sees and answers as it is told.
type backend struct {
	mu    sync.Mutex
	all   []seen
	reply func(n int, w http.ResponseWriter, r *http.Request) // n = 1 is the first request
}

func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	b.mu.Lock()
	b.all = append(b.all, seen{r.Method, r.URL.Path, r.Header.Get("Idempotency-Key"), string(body), r.Header.Clone(), time.Now()})
	n := len(b.all)
	b.mu.Unlock()
	if b.reply != nil {
		b.reply(n, w, r)
	}
}

// saw is what it has seen so far.
func (b *backend) saw() []seen {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]seen(nil), b.all...)
}
