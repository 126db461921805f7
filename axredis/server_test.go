package axredis_test

import (
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/axsched/ax/axredis"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

const ms = time.Millisecond

// unavailable begins the reason of every skip for want of a Redis; CI fails on it.
const unavailable = "REDIS-UNAVAILABLE"

// server is a redis-server of the test's own, on a free loopback port.
type server struct {
	t    testing.TB
	addr string
	dir  string
	args []string
	cmd  *exec.Cmd
}

// startServer starts a redis-server, or skips without the program.
func startServer(t testing.TB, args ...string) *server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip(unavailable + ": this test needs the program redis-server")
	}
	s := &server{t: t, addr: freeAddr(t), dir: t.TempDir(), args: args}
	t.Cleanup(s.stop) // first: start may fail, and leave one running
	s.start()
	return s
}

func freeAddr(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// start starts it empty.
func (s *server) start() {
	_, port, _ := net.SplitHostPort(s.addr)
	args := append([]string{"--port", port, "--bind", "127.0.0.1", "--dir", s.dir, "--save", "", "--appendonly", "no"}, s.args...)
	s.cmd = exec.Command("redis-server", args...)
	require.NoError(s.t, s.cmd.Start())
	c := redis.NewClient(&redis.Options{Addr: s.addr})
	defer c.Close()
	require.Eventually(s.t, func() bool { return c.Ping(context.Background()).Err() == nil }, 10*time.Second, 10*ms)
}

func (s *server) stop() {
	if s.cmd == nil || s.cmd.Process == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// client is one with go-redis' defaults, as an application has it.
func (s *server) client() *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.addr})
	s.t.Cleanup(func() { c.Close() })
	return c
}

// sharedAddr is AX_REDIS_ADDR, or that of a server of the test's own.
func sharedAddr(t testing.TB) string {
	t.Helper()
	if addr := os.Getenv("AX_REDIS_ADDR"); addr != "" {
		return addr
	}
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip(unavailable + ": set AX_REDIS_ADDR or install redis-server")
	}
	return startServer(t).addr
}

// fleet makes governors that share a Redis and a prefix.
type fleet struct {
	t    testing.TB
	addr string
	cfg  axredis.Config
	rdb  *redis.Client
}

func newFleet(t testing.TB, cfg axredis.Config) *fleet {
	t.Helper()
	return newFleetAt(t, sharedAddr(t), cfg)
}

func newFleetAt(t testing.TB, addr string, cfg axredis.Config) *fleet {
	t.Helper()
	cfg.Prefix = "ax-test-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	if cfg.Timeout == 0 && cfg.LeaseTTL == 0 {
		cfg.Timeout = 500 * ms // a busy machine is no outage
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { rdb.Close() })
	return &fleet{t, addr, cfg, rdb}
}

// join is one more process of the fleet.
func (f *fleet) join() *axredis.Governor { return f.joinWith(func(*axredis.Config) {}) }

func (f *fleet) joinWith(change func(*axredis.Config)) *axredis.Governor {
	f.t.Helper()
	cfg := f.cfg
	change(&cfg)
	g, err := axredis.New(f.rdb, cfg)
	require.NoError(f.t, err)
	f.t.Cleanup(func() { require.NoError(f.t, g.Close()) })
	return g
}

// at is one more process, whose way to Redis is l.
func (f *fleet) at(l *link) *axredis.Governor {
	f.t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: l.addr()})
	f.t.Cleanup(func() { rdb.Close() })
	g, err := axredis.New(rdb, f.cfg)
	require.NoError(f.t, err)
	f.t.Cleanup(func() { g.Close() })
	return g
}

// keys are all keys of the fleet.
func (f *fleet) keys() []string {
	keys, err := f.rdb.Keys(context.Background(), "*"+f.cfg.Prefix+"*").Result()
	require.NoError(f.t, err)
	return keys
}

// leases are the ids that hold a slot of a lane.
func (f *fleet) leases(lane string) int {
	n := 0
	for _, k := range f.keys() {
		if strings.Contains(k, ":leases:") && strings.HasSuffix(k, ":"+lane) {
			n += int(f.rdb.ZCard(context.Background(), k).Val())
		}
	}
	return n
}

// ask is an Ask for lane of rank now + after.
func ask(lane string, after time.Duration) ax.Ask {
	return ax.Ask{Lane: lane, Rank: time.Now().Add(after)}
}

// must is one Acquire that does not fail.
func must(t testing.TB, g *axredis.Governor, a ax.Ask) ax.Grant {
	t.Helper()
	grant, err := g.Acquire(t.Context(), a)
	require.NoError(t, err)
	return grant
}

// granted is one Acquire that is granted.
func granted(t testing.TB, g *axredis.Governor, a ax.Ask) ax.Grant {
	t.Helper()
	grant := must(t, g, a)
	require.Zero(t, grant.RetryIn)
	return grant
}

// refused is one Acquire that is refused.
func refused(t testing.TB, g *axredis.Governor, a ax.Ask) time.Duration {
	t.Helper()
	grant := must(t, g, a)
	require.Positive(t, grant.RetryIn)
	require.Nil(t, grant.Release)
	return grant.RetryIn
}

// wait asks until granted, as a scheduler does.
func wait(t testing.TB, g *axredis.Governor, a ax.Ask) ax.Grant {
	t.Helper()
	for {
		grant := must(t, g, a)
		if grant.RetryIn == 0 {
			return grant
		}
		time.Sleep(grant.RetryIn)
	}
}

// isLost is whether a grant is lost by now.
func isLost(g ax.Grant) bool {
	select {
	case <-g.Lost:
		return true
	default:
		return false
	}
}

// link is a TCP proxy to a server that can be cut or made mute.
type link struct {
	t  testing.TB
	to string
	ln net.Listener

	mu    sync.Mutex
	state linkState
	conns map[net.Conn]struct{}
	seen  int // bytes that went to the server
	calls int // connections accepted
	drop  bool
	delay time.Duration // of each answer
}

type linkState int

const (
	linkUp   linkState = iota
	linkCut            // connections end at once
	linkMute           // connections are accepted, nothing is answered
)

func newLink(t testing.TB, to string) *link {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := &link{t: t, to: to, ln: ln, conns: map[net.Conn]struct{}{}}
	go l.accept()
	t.Cleanup(func() { ln.Close(); l.set(linkCut) })
	return l
}

func (l *link) addr() string { return l.ln.Addr().String() }

// set changes the state; what is open ends, or falls silent.
func (l *link) set(s linkState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = s
	if s == linkCut {
		for c := range l.conns {
			c.Close()
		}
		clear(l.conns)
	}
}

// dropNextReply ends the connection instead of delivering what the server says
// next.
func (l *link) dropNextReply() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop = true
}

// slow makes every answer take d.
func (l *link) slow(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = d
}

// traffic is how much has been tried so far.
func (l *link) traffic() (bytes, conns int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen, l.calls
}

func (l *link) accept() {
	for {
		c, err := l.ln.Accept()
		if err != nil {
			return
		}
		l.mu.Lock()
		l.calls++
		if l.state == linkCut {
			c.Close()
			l.mu.Unlock()
			continue
		}
		l.conns[c] = struct{}{}
		l.mu.Unlock()
		go l.serve(c)
	}
}

func (l *link) serve(c net.Conn) {
	defer c.Close()
	up, err := net.Dial("tcp", l.to)
	if err != nil {
		return
	}
	defer up.Close()
	go l.copy(c, up, false)
	l.copy(up, c, true)
}

func (l *link) copy(to io.Writer, from net.Conn, count bool) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			l.mu.Lock()
			if count {
				l.seen += n
			}
			mute := l.state == linkMute
			drop := l.drop && !count
			if drop {
				l.drop = false
			}
			delay := l.delay
			l.mu.Unlock()
			if !count {
				time.Sleep(delay)
			}
			if drop {
				to.(net.Conn).Close()
				return
			}
			if !mute {
				_, _ = to.Write(buf[:n])
			}
		}
		if err != nil {
			if c, ok := to.(net.Conn); ok {
				c.Close()
			}
			return
		}
	}
}

func hasPart(key, part string) bool { return strings.Contains(key, part) }
