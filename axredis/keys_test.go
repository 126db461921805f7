package axredis_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/axsched/ax/axredis"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// everyLimit uses every kind of key.
func everyLimit() axredis.Config {
	return axredis.Config{Timeout: 500 * ms, Lanes: map[string]ax.Limits{
		"":    {MaxConcurrent: 50, Rate: []ax.Rate{{Limit: 500}}},
		"api": {MaxConcurrent: 3, Rate: []ax.Rate{{Limit: 20, Per: 100 * ms, Smooth: true}, {Limit: 200, Burst: 10}}},
	}}
}

// load keeps g busy until end.
func load(t testing.TB, g *axredis.Governor, end time.Time) {
	for time.Now().Before(end) {
		grant, err := g.Acquire(t.Context(), ask("api", 0))
		if err != nil {
			return
		}
		time.Sleep(min(10*ms, max(ms, grant.RetryIn)))
		if grant.Release != nil {
			grant.Release()
		}
	}
}

// immortal are keys without a TTL.
func (f *fleet) immortal() []string {
	var found []string
	for _, k := range f.keys() {
		ttl, err := f.rdb.PTTL(context.Background(), k).Result()
		require.NoError(f.t, err)
		if ttl == -1 {
			found = append(found, k)
		}
	}
	return found
}

// TestCaseH49EveryKeyHasATTL at every moment, whenever a client dies; a key
// that has lost its own heals.
func TestCaseH49EveryKeyHasATTL(t *testing.T) {
	f := newFleet(t, everyLimit())
	l := newLink(t, f.addr)
	end := time.Now().Add(1500 * ms)
	var all sync.WaitGroup
	for range 2 {
		g := f.at(l)
		all.Go(func() { load(t, g, end) })
	}
	g := f.join()
	g.PauseUntil("api", time.Now().Add(50*ms))
	all.Go(func() { load(t, g, end) })
	for time.Now().Before(end) {
		require.Empty(t, f.immortal())
		l.dropNextReply()
		time.Sleep(10 * ms)
	}
	all.Wait()
	g.PauseUntil("api", time.Now().Add(time.Minute))
	refusedSoon(t, g)
	keys := f.keys()
	require.GreaterOrEqual(t, len(keys), 5, "%v", keys)
	for _, k := range keys {
		require.NoError(t, f.rdb.Persist(t.Context(), k).Err())
	}
	refused(t, g, ask("api", 0))
	for _, k := range f.immortal() {
		require.Contains(t, k, ":versions", "healed with the next ask, or the next announcement")
	}
}

func refusedSoon(t testing.TB, g *axredis.Governor) {
	require.Eventually(t, func() bool { return must(t, g, ask("api", 0)).RetryIn > 0 }, time.Second, ms)
}

func TestCaseH49ScriptFlushIsNotNoticed(t *testing.T) {
	s := startServer(t)
	f := newFleetAt(t, s.addr, everyLimit())
	g := f.join()
	granted(t, g, ask("api", 0))
	require.NoError(t, f.rdb.ScriptFlush(t.Context()).Err())
	time.Sleep(50 * ms)
	granted(t, g, ask("api", 0))
	require.Equal(t, 2, f.leases("api"))
}

// TestCaseH49KeysAreDeclaredAndInOneSlot: a cluster refuses anything else.
func TestCaseH49KeysAreDeclaredAndInOneSlot(t *testing.T) {
	s := startServer(t, "--cluster-enabled", "yes")
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.addr}})
	defer c.Close()
	require.NoError(t, s.client().ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	require.Eventually(t, func() bool {
		return strings.Contains(s.client().ClusterInfo(t.Context()).Val(), "cluster_state:ok")
	}, 10*time.Second, 20*ms)
	for _, cfg := range []axredis.Config{everyLimit(), lanes("api", ax.Limits{MaxConcurrent: 1, Rate: ax.PerSecond(10)})} {
		cfg.Timeout, cfg.Outage = 500*ms, axredis.FailClosed
		g, err := axredis.New(c, cfg)
		require.NoError(t, err)
		wait(t, g, ask("api", 0)).Release() // the first call also learns the cluster
		g.PauseUntil("api", time.Now().Add(100*ms))
		refusedSoon(t, g)
		wait(t, g, ask("api", 0)).Release()
		require.NoError(t, g.Close())
	}
}

// TestLanesHaveSlotsOfTheirOwn unless limits of all together tie them.
func TestLanesHaveSlotsOfTheirOwn(t *testing.T) {
	f := newFleet(t, axredis.Config{Lanes: map[string]ax.Limits{"a": {MaxConcurrent: 1}, "b": {MaxConcurrent: 1}}})
	tags := func(f *fleet) map[string]bool {
		g := f.join()
		granted(t, g, ask("a", 0))
		granted(t, g, ask("b", 0))
		found := map[string]bool{}
		for _, k := range f.keys() {
			if hasPart(k, ":leases:") {
				tag, _, _ := strings.Cut(k, "}")
				found[tag] = true
			}
		}
		return found
	}
	require.Len(t, tags(f), 2)
	f = newFleet(t, axredis.Config{Lanes: map[string]ax.Limits{"": {MaxConcurrent: 9}, "a": {MaxConcurrent: 1}}})
	require.Len(t, tags(f), 1)
}

// logs collects warnings.
type logs struct {
	mu    sync.Mutex
	lines []string
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(p))
	return len(p), nil
}

func (l *logs) with(part string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if strings.Contains(line, part) {
			n++
		}
	}
	return n
}

// TestTwoVersionsAreCountedApartAndLogged.
func TestTwoVersionsAreCountedApartAndLogged(t *testing.T) {
	f := newFleet(t, lanes("api", ax.Limits{MaxConcurrent: 1}))
	var out logs
	logged := func(c *axredis.Config) { c.Logger = slog.New(slog.NewTextHandler(&out, nil)) }
	old, same := f.joinWith(logged), f.joinWith(logged)
	granted(t, old, ask("api", 0))
	refused(t, same, ask("api", 0))
	time.Sleep(50 * ms)
	require.Zero(t, out.with("other limits"))
	next := f.joinWith(func(c *axredis.Config) {
		logged(c)
		c.Lanes = map[string]ax.Limits{"api": {MaxConcurrent: 2}}
	})
	for range 2 { // its own two, whoever holds the old one's
		granted(t, next, ask("api", 0))
	}
	refused(t, next, ask("api", 0))
	require.Eventually(t, func() bool { return out.with("other limits") == 1 }, time.Second, 5*ms)
	require.Equal(t, 1, out.with("lane=api"))
	next.PauseUntil("api", time.Now().Add(5*time.Second)) // a server's wish holds for both
	require.Eventually(t, func() bool { return must(t, same, ask("api", 0)).RetryIn > time.Second }, time.Second, 5*ms)
}

// TestLimitsForAllAreLoggedWhenTheyAreNew: with them every key moves, the lane's
// too.
func TestLimitsForAllAreLoggedWhenTheyAreNew(t *testing.T) {
	requireLogged(t, lanes("api", ax.Limits{MaxConcurrent: 1}), "other limits",
		map[string]ax.Limits{"": {MaxConcurrent: 100}, "api": {MaxConcurrent: 1}})
}

// TestALaneBesideAllIsLoggedWhenItIsNew: who does not know of its limits does not
// keep to them.
func TestALaneBesideAllIsLoggedWhenItIsNew(t *testing.T) {
	requireLogged(t, lanes("", ax.Limits{MaxConcurrent: 100}), "limits for other lanes",
		map[string]ax.Limits{"": {MaxConcurrent: 100}, "api": {MaxConcurrent: 1}})
}

// requireLogged rolls out next beside old, each of which wants to start in "api".
func requireLogged(t *testing.T, old axredis.Config, want string, next map[string]ax.Limits) {
	f := newFleet(t, old)
	var out logs
	logged := func(c *axredis.Config) { c.Logger = slog.New(slog.NewTextHandler(&out, nil)) }
	granted(t, f.joinWith(logged), ask("api", 0))
	require.Eventually(t, func() bool {
		return slices.ContainsFunc(f.keys(), func(k string) bool { return hasPart(k, ":versions") })
	}, time.Second, ms)
	time.Sleep(20 * ms)
	require.Zero(t, out.with(want))
	granted(t, f.joinWith(func(c *axredis.Config) { logged(c); c.Lanes = next }), ask("api", 0))
	require.Eventually(t, func() bool { return out.with(want) == 1 }, time.Second, 5*ms)
}

// wrapped is a client of a type of its own.
type wrapped struct{ redis.UniversalClient }

func TestOtherClients(t *testing.T) {
	addr := sharedAddr(t)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": addr}})
	own := wrapped{redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1})}
	for _, c := range []redis.UniversalClient{ring, own} {
		f := newFleetAt(t, addr, lanes("api", ax.Limits{MaxConcurrent: 1}))
		g, err := axredis.New(c, f.cfg)
		require.NoError(t, err)
		other := f.join()
		granted(t, other, ask("api", 0)).Release()
		wait(t, g, ask("api", 0))
		refused(t, other, ask("api", 0))
		require.NoError(t, g.Close())
		granted(t, other, ask("api", 0))
		require.NoError(t, c.Ping(t.Context()).Err(), "the caller's own is left alone")
		require.NoError(t, c.Close())
	}
}

// TestFleetsWhosePrefixesLookAlikeShareNothing, neither pauses nor warnings.
func TestFleetsWhosePrefixesLookAlikeShareNothing(t *testing.T) {
	var log strings.Builder
	f := newFleet(t, lanes("eu", ax.Limits{MaxConcurrent: 1}))
	long := f.cfg.Prefix + ":eu"
	one := f.join()
	others := []*axredis.Governor{
		f.joinWith(func(c *axredis.Config) { c.Lanes, c.Prefix = together(ax.Limits{MaxConcurrent: 2}).Lanes, long }),
		f.joinWith(func(c *axredis.Config) { c.Prefix = long }),
	}
	colon := f.joinWith(func(c *axredis.Config) {
		c.Lanes = lanes("eu:eu", ax.Limits{MaxConcurrent: 3}).Lanes
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	one.PauseUntil("eu", time.Now().Add(time.Minute))
	require.Eventually(t, func() bool { return must(t, one, ask("eu", 0)).RetryIn > 0 }, time.Second, ms)
	for _, g := range others {
		granted(t, g, ask("eu", 0))
	}
	granted(t, colon, ask("eu:eu", 0))
	require.NoError(t, colon.Close()) // when it has heard of other versions
	require.Empty(t, log.String())
}
