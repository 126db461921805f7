package axredis

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed script.lua
var stepSource string

//go:embed version.lua
var versionSource string

// store is the way to Redis. It knows no limits.
type store struct {
	dial    dialer
	single  bool // one server has all keys
	timeout time.Duration
	crowd   *crowd
	step    *redis.Script
	version *redis.Script

	mu   sync.Mutex
	conn *conn
	busy int // calls under way
	most int // at once, so far
}

// conn is a client and the calls on it.
type conn struct {
	redis.UniversalClient
	calls sync.WaitGroup
}

// retire closes c after its last call. nil = nothing to do.
func (c *conn) retire() {
	if c == nil {
		return
	}
	c.calls.Wait()
	_ = c.Close()
}

func newStore(rdb redis.UniversalClient, timeout time.Duration, shared bool) *store {
	_, single := rdb.(*redis.Client)
	s := &store{
		dial: newDialer(rdb, timeout), single: single, timeout: timeout, conn: &conn{UniversalClient: rdb},
		step: redis.NewScript(stepSource), version: redis.NewScript(versionSource),
		crowd: newCrowd(callsAtOnce(rdb, shared)),
	}
	if s.dial != nil {
		s.conn.UniversalClient = s.dial()
	}
	return s
}

// begin is a call's beginning; done is its end.
func (s *store) begin() (c *conn, done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy++
	s.most = max(s.most, s.busy)
	c = s.conn
	c.calls.Add(1)
	return c, func() {
		c.calls.Done()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.busy--
	}
}

// run calls a script: by its hash, and in full if Redis has forgotten it. A
// connection that turns out to be dead is replaced once: every id in the
// arguments makes a second execution of the same call free.
func (s *store) run(script *redis.Script, keys []string, args []any) ([]any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	reply, err := s.call(ctx, script, keys, args)
	if err != nil && isBroken(err) && ctx.Err() == nil {
		reply, err = s.call(ctx, script, keys, args)
	}
	return reply, err
}

func (s *store) call(ctx context.Context, script *redis.Script, keys []string, args []any) ([]any, error) {
	c, done := s.begin()
	defer done()
	return script.Run(ctx, c, keys, args...).Slice()
}

// isBroken is whether a connection failed, as opposed to a server that refused
// or did not answer in time.
func isBroken(err error) bool {
	var reply redis.Error
	return !errors.As(err, &reply) && !isTimeout(err) && !isCrowded(err)
}

// isCrowded is whether a call found no connection free, which Redis is not to
// blame for.
func isCrowded(err error) bool {
	return errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted)
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) ||
		errors.As(err, &n) && n.Timeout()
}

// probe is what an outage is ended by: a step with keys of its own.
type probe struct {
	sought [][]string // of those for whom Redis did not answer
	served [][]string // of those for whom it does
	args   []any
}

// reviveFor bounds a probe. It makes its connections, which takes a few round trips,
// and is in nobody's way: so it may take longer than a call.
func (s *store) reviveFor() time.Duration {
	return max(s.timeout, min(10*s.timeout, time.Second))
}

// revive tries, on fresh connections, for whom Redis does what an ask needs. If for
// anybody, they are used from now on: what the outage has done to the old ones, a
// pool of dead sockets or a dialer that holds back, is gone with them. Old is the
// client that was used before.
func (s *store) revive(ctx context.Context, p probe) (found []bool, old *conn) {
	ctx, cancel := context.WithTimeout(ctx, s.reviveFor())
	defer cancel()
	s.mu.Lock()
	fresh, most := s.conn, max(s.most, s.crowd.wanted())
	s.mu.Unlock()
	if s.dial != nil {
		fresh = &conn{UniversalClient: s.dial()}
	}
	try := func(keys []string) bool { return s.step.Run(ctx, fresh, keys, p.args...).Err() == nil }
	found = make([]bool, len(p.sought))
	var all sync.WaitGroup
	for i, keys := range p.sought {
		all.Go(func() { found[i] = try(keys) })
	}
	all.Wait()
	if s.dial == nil {
		return found, nil
	}
	served := p.served
	for i, keys := range p.sought {
		if found[i] {
			served = append(served, keys)
		}
	}
	if !slices.Contains(found, true) {
		return found, fresh
	}
	// A call has no time to connect where answers take long, so connections are made
	// beforehand: twice as many as there were calls at once, since each step may
	// have an announcement beside it.
	for _, keys := range served {
		for range min(max(2, 2*most/len(served)), maxWarm) {
			all.Go(func() { try(keys) })
		}
	}
	all.Wait()
	s.crowd.warm(min(max(2, 2*most), maxWarm) / 2)
	s.mu.Lock()
	defer s.mu.Unlock()
	old, s.conn = s.conn, fresh
	return found, old
}

// maxWarm bounds the connections that revive makes for one lane, or for all of
// them on one server.
const maxWarm = 16

// close closes the governor's own connections.
func (s *store) close() error {
	if s.dial == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn.Close()
}

// integers is a reply of integers.
func integers(reply []any) ([]int64, error) {
	all := make([]int64, len(reply))
	for i, v := range reply {
		n, ok := v.(int64)
		if !ok {
			return nil, fmt.Errorf("axredis: the script answered %T, want an integer", v)
		}
		all[i] = n
	}
	return all, nil
}
