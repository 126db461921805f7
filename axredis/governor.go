package axredis

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/axsched/ax"
	"github.com/redis/go-redis/v9"
)

// Governor applies the limits of a fleet. It is an [ax.Governor] and an
// [ax.Pauser], for any number of schedulers of one process; its methods may be
// called concurrently.
type Governor struct {
	cfg    Config
	id     string // of this process, in keys
	keys   keySpace
	scopes map[string]*scope
	store  *store
	now    func() time.Time // the clock that ranks and pauses are read on; tests skew it
	work   sync.WaitGroup   // goroutines that call Redis
	life   context.Context  // of the probes; Close ends it
	end    context.CancelFunc

	mu     sync.Mutex
	lines  map[string]*line
	asked  uint64
	trip   time.Duration      // from a call to the use of its answer, the longer ones of late; 0 = none yet
	health map[string]*health // by the lane, or "" for all
	seeks  bool               // a probe is under way
	queue  queue              // for the limits of ""
	closed bool
}

var (
	_ ax.Governor = (*Governor)(nil)
	_ ax.Pauser   = (*Governor)(nil)
)

// ErrClosed is the error of Acquire after Close.
var ErrClosed = errors.New("axredis: governor is closed")

// New makes a Governor that keeps the fleet's state in the Redis of rdb: a
// client, cluster client, failover client or ring of go-redis. It uses the
// options of rdb, not rdb itself: with connections of its own it can bound every
// call by Config.Timeout without retries. rdb may be closed afterwards. A type
// of another kind is used as it is and must set those options itself.
//
// New calls nothing: a Redis that is down is an outage like any other. The error
// tells everything that is wrong with cfg.
func New(rdb redis.UniversalClient, cfg Config) (*Governor, error) {
	if rdb == nil {
		return nil, errors.New("axredis: the Redis client is nil")
	}
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg.Lanes = maps.Clone(cfg.Lanes)
	_, shared := cfg.Lanes[""]
	g := &Governor{
		cfg: cfg, id: rand.Text()[:12], now: time.Now,
		keys:   keySpace{cfg.Prefix, shared},
		scopes: make(map[string]*scope, len(cfg.Lanes)),
		lines:  make(map[string]*line),
		health: make(map[string]*health),
		queue:  queue{called: make(map[*ask]struct{})},
	}
	g.life, g.end = context.WithCancel(context.Background())
	for name, limits := range cfg.Lanes {
		g.scopes[name] = newScope(name, limits, cfg.LeaseTTL, shared)
	}
	if shared {
		g.scopes[""].tellLanes(cfg.Lanes)
	}
	g.store = newStore(rdb, cfg.Timeout, shared)
	return g, nil
}

// governs is whether a lane has limits or pauses to share.
func (g *Governor) governs(lane string) bool {
	return g.scopes[lane] != nil || g.scopes[""] != nil
}

// Acquire asks for one start in a.Lane. It answers within twice Config.Timeout,
// whatever Redis does: after that while it waits for its turn among the lanes of
// this process that share the limits of "", the call may take as long once more.
// The error is [ErrClosed] or that of ctx.
func (g *Governor) Acquire(ctx context.Context, a ax.Ask) (ax.Grant, error) {
	if !g.governs(a.Lane) {
		return ax.Grant{}, nil
	}
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return ax.Grant{}, ErrClosed
	}
	l := g.lineLocked(a.Lane)
	g.asked++
	k := &ask{line: l, id: g.id + ":" + strconv.FormatUint(g.asked, 36), rank: a.Rank, done: make(chan struct{})}
	if l.health.down {
		now := time.Now()
		g.probeLocked(l.health, now)
		l.answerAloneLocked(k, now)
		if !l.busy {
			l.restLocked(now)
		}
		g.mu.Unlock()
		return k.grant(), nil
	}
	if now := time.Now(); g.waitsLocked(k, now) {
		g.queueLocked(k, now)
	} else {
		l.asks = append(l.asks, k)
		l.pumpLocked()
	}
	g.mu.Unlock()
	if err := l.waitFor(ctx, k); err != nil {
		return ax.Grant{}, err
	}
	grant := k.grant()
	grant.StartBy = g.startBy(l, k)
	if !grant.StartBy.IsZero() && time.Now().After(grant.StartBy) {
		if grant.Release != nil {
			grant.Release()
		}
		return ax.Grant{RetryIn: time.Millisecond}, nil
	}
	return grant, nil
}

// grant is the answer as the scheduler takes it.
func (k *ask) grant() ax.Grant {
	if k.retryIn > 0 {
		return ax.Grant{RetryIn: k.retryIn}
	}
	if k.lease == nil {
		return ax.Grant{}
	}
	return ax.Grant{Release: k.lease.Release, Lost: k.lease.lost}
}

// PauseUntil lets nothing start in lane before until, in the whole fleet: the
// others learn it when they next ask. It does not wait for Redis, which is told
// again while the pause lasts, in case it loses its data. A pause can be prolonged,
// not cut short.
func (g *Governor) PauseUntil(lane string, until time.Time) {
	d := until.Sub(g.now())
	if d <= 0 || !g.governs(lane) {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return
	}
	now := time.Now()
	g.lineLocked(lane).pauseLocked(now.Add(d), now)
}

// header is how many values of a reply stand before the answers to asks.
const header = 4

// step runs the script; the reply has an answer for each ask.
func (g *Governor) step(keys []string, args []any, asks int) ([]int64, error) {
	reply, err := g.store.run(g.store.step, keys, args)
	if err != nil {
		return nil, err
	}
	all, err := integers(reply)
	if err == nil && len(all) != header+asks {
		err = fmt.Errorf("axredis: the script answered %d values for %d asks", len(all), asks)
	}
	return all, err
}

// learnLocked learns how long an answer takes until it can be used: at once if it
// takes longer, slowly if it takes less.
func (g *Governor) learnLocked(took time.Duration) {
	g.trip = max(took, g.trip+(took-g.trip)/8)
}

// margin is how long a start may come after Redis has decided it.
type margin struct{ most, trip time.Duration }

// mostRoom bounds every margin: the script takes a start that counts for longer
// for one of a clock that has been set back, and forgets it.
const mostRoom = time.Second

// of is the margin of a window of per: a twentieth of it, or what calls are seen
// to need, up to Timeout; all of that for the first call, which also connects.
func (m margin) of(per time.Duration) time.Duration {
	most := min(m.most, mostRoom)
	if m.trip == 0 {
		return most
	}
	return min(most, max(per/20, 2*m.trip))
}

// startBy is until when what Redis granted k may start: as long as the windows it
// was counted in have room for, and its lease lasts without being renewed. The
// zero Time = at any time, for Redis did not grant it.
func (g *Governor) startBy(l *line, k *ask) time.Time {
	if k.retryIn > 0 || k.alone {
		return time.Time{}
	}
	room := g.lifetime()
	for _, s := range l.scopes {
		for _, r := range s.rates {
			if r.burst == 0 {
				room = min(room, k.room.of(r.short))
			}
		}
	}
	return k.sent.Add(room)
}

// Close gives everything back and lets go of Redis. What the scheduler still
// runs is lost with it, so close the scheduler first. It waits for calls under
// way, each at most Config.Timeout. Safe to call again.
func (g *Governor) Close() error {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		g.work.Wait()
		return nil
	}
	g.closed = true
	g.end()
	now := time.Now()
	g.dissolveLocked(nil)
	for _, l := range g.lines {
		l.closeLocked(now)
	}
	g.mu.Unlock()
	g.work.Wait()
	return g.store.close()
}

// closeLocked ends all that the line holds and asks.
func (l *line) closeLocked(now time.Time) {
	if l.timer != nil {
		l.timer.Stop()
	}
	for id, le := range l.held {
		le.over = true
		close(le.lost)
		delete(l.held, id)
		l.frees = append(l.frees, free{id: id, since: now})
	}
	for _, k := range l.asks {
		k.err = ErrClosed
		l.g.doneLocked(k)
	}
	l.asks = nil
	l.pumpLocked()
}
