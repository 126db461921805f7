package axredis

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
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
	timeout time.Duration
	probe   string // the key that a probe writes
	step    *redis.Script
	version *redis.Script

	mu  sync.RWMutex
	rdb redis.UniversalClient
}

func newStore(rdb redis.UniversalClient, timeout time.Duration, probe string) *store {
	s := &store{
		dial: newDialer(rdb, timeout), timeout: timeout, probe: probe, rdb: rdb,
		step: redis.NewScript(stepSource), version: redis.NewScript(versionSource),
	}
	if s.dial != nil {
		s.rdb = s.dial()
	}
	return s
}

func (s *store) client() redis.UniversalClient {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.rdb
}

// run calls a script: by its hash, and in full if Redis has forgotten it. A
// connection that turns out to be dead is replaced once: every id in the
// arguments makes a second execution of the same call free.
func (s *store) run(script *redis.Script, keys []string, args []any) ([]any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	reply, err := script.Run(ctx, s.client(), keys, args...).Slice()
	if err != nil && isBroken(err) && ctx.Err() == nil {
		reply, err = script.Run(ctx, s.client(), keys, args...).Slice()
	}
	return reply, err
}

// isBroken is whether a connection failed, as opposed to a server that refused
// or did not answer in time.
func isBroken(err error) bool {
	var reply redis.Error
	return !errors.As(err, &reply) && !isTimeout(err)
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) ||
		errors.As(err, &n) && n.Timeout()
}

// revive tries, on fresh connections, whether Redis can be written to, and if so
// uses them from now on: what the outage has done to the old ones, a pool of dead
// sockets or a dialer that holds back, is gone with them.
func (s *store) revive() error {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	rdb := s.client()
	if s.dial != nil {
		rdb = s.dial()
	}
	err := rdb.Set(ctx, s.probe, 1, time.Second).Err()
	if s.dial == nil {
		return err
	}
	if err != nil {
		return errors.Join(err, rdb.Close())
	}
	s.mu.Lock()
	old := s.rdb
	s.rdb = rdb
	s.mu.Unlock()
	_ = old.Close() // a call on it fails, and is judged like any other
	return nil
}

// close closes the governor's own connections.
func (s *store) close() error {
	if s.dial == nil {
		return nil
	}
	return s.client().Close()
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
