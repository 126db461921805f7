package ax

import (
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestResolvedDefaults(t *testing.T) {
	c := Config{
		Rate:   []Rate{{Limit: 5}},
		Dedupe: &Dedupe{IgnoreHeaders: []string{"x-trace"}}, Retry: &Retry{}, Breaker: &Breaker{}, Hedge: &Hedge{},
		Lanes:          []Lane{{Match: []string{"GET a.test"}, MaxConcurrent: NoLimit}},
		Owners:         &Budget{MaxQueue: NoLimit},
		AttemptTimeout: NoTimeout,
	}.resolved()
	require.NotNil(t, c.Logger)
	c.Logger = nil
	require.Equal(t, Config{
		MaxConcurrent: 64,
		MaxQueue:      1024,
		Rate:          []Rate{{Limit: 5, Per: time.Second}},
		AgingStep:     6 * time.Second,
		MaxBodyBytes:  4_194_304,
		Dedupe:        &Dedupe{MaxEntries: 10_000, MaxBytes: 67_108_864, IgnoreHeaders: []string{"X-Trace"}},
		Retry:         &Retry{Max: 2, BaseDelay: 200 * time.Millisecond, MaxDelay: 30 * time.Second, Budget: 0.2},
		Breaker: &Breaker{
			Window: 10, MinCalls: 10, MaxAge: time.Minute, FailureRate: 0.3,
			OpenFor: 3 * time.Second, Probes: 1, Ramp: 3 * time.Second,
		},
		Hedge:  &Hedge{},
		Lanes:  []Lane{{Name: "GET a.test", Match: []string{"GET a.test"}}},
		Owners: &Budget{},
	}, c)
}

func TestResolvedKeepsWhatIsSet(t *testing.T) {
	c := Config{MaxConcurrent: NoLimit, MaxQueue: 1, AgingStep: time.Minute, MaxBodyBytes: 1}.resolved()
	require.Equal(t, math.MaxInt, c.MaxConcurrent)
	require.Equal(t, 1, c.MaxQueue)
	require.Equal(t, time.Minute, c.AgingStep)
	require.Equal(t, int64(1), c.MaxBodyBytes)
	require.Equal(t, Retry{Max: 2, BaseDelay: time.Millisecond, MaxDelay: time.Millisecond, Budget: 0.2},
		Retry{MaxDelay: time.Millisecond}.resolved())
	require.Equal(t, 20, Breaker{Window: 20}.resolved().MinCalls)
	require.Equal(t, 5, Breaker{Window: 20, MinCalls: 5}.resolved().MinCalls)
}

func TestLimitsTellNilFromEmpty(t *testing.T) {
	require.Nil(t, Limits{}.resolved().Rate)
	require.Equal(t, []Rate{}, Limits{Rate: Unlimited()}.resolved().Rate)
	require.Equal(t, PerMinute(3), Limits{Rate: PerMinute(3)}.resolved().Rate)
	require.Equal(t, PerSecond(3), Limits{Rate: []Rate{{Limit: 3}}}.resolved().Rate)
}

// TestConfigIsCopiedDeeply changes all that the caller can still reach.
func TestConfigIsCopiedDeeply(t *testing.T) {
	c, untouched := fullConfig(), fullConfig()
	c.Fallback.Alternate = &Task{}
	got := c.resolved()
	alternate := c.Fallback.Alternate

	eachNumber(reflect.ValueOf(&c).Elem(), "", func(_ string, v reflect.Value) {
		if v.CanInt() {
			v.SetInt(77)
		} else {
			v.SetFloat(77)
		}
	})
	c.Dedupe.IgnoreHeaders[0] = "changed"
	c.Lanes[0].Match[0] = "changed"
	c.Lanes[0].Name = "changed"
	c.Fallback.Alternate = nil
	b := c.Budgets["team-a"]
	b.Rate[0].Limit = 77
	c.Budgets["team-b"] = Budget{}
	delete(c.Budgets, "team-a")

	require.Same(t, alternate, got.Fallback.Alternate, "a Task is immutable")
	got.Fallback.Alternate = nil
	want := untouched.resolved()
	dropFuncs(&got)
	dropFuncs(&want)
	require.Equal(t, want, got)
}

// dropFuncs clears what cannot be compared.
func dropFuncs(c *Config) {
	c.Logger = nil
	c.Fallback.Static, c.Hosts.Fallback.Static = nil, nil
	for i := range c.Lanes {
		c.Lanes[i].Fallback.Static = nil
	}
}

func TestLanePolicy(t *testing.T) {
	c := Config{
		AttemptTimeout: 1 * time.Second, IdleTimeout: 2 * time.Second, QueueTimeout: 3 * time.Second,
		MinRemaining: 4 * time.Second, AgingStep: 5 * time.Second, MaxConcurrent: 9, Rate: PerSecond(9),
		Retry: &Retry{Max: 1}, Breaker: &Breaker{Window: 1}, Fallback: &Fallback{Stale: 1}, Hedge: &Hedge{After: 1},
		Lanes: []Lane{{Name: "inherits"}, {
			Name:           "replaces",
			AttemptTimeout: 6 * time.Second, IdleTimeout: 7 * time.Second, QueueTimeout: 8 * time.Second,
			MinRemaining: 9 * time.Second, AgingStep: 10 * time.Second, MaxConcurrent: 2, MaxQueue: 3, Rate: []Rate{{Limit: 4}},
			Retry: &Retry{Max: 5}, Breaker: &Breaker{Window: 6}, Fallback: &Fallback{Stale: 7}, Hedge: &Hedge{After: 8},
		}, {
			Name:           "off",
			AttemptTimeout: NoTimeout, IdleTimeout: NoTimeout, QueueTimeout: NoTimeout, MinRemaining: NoTimeout, AgingStep: NoTimeout,
			MaxConcurrent: NoLimit, MaxQueue: NoLimit, Rate: Unlimited(),
			NoRetry: true, NoBreaker: true, NoFallback: true, Hedge: &Hedge{After: NoTimeout},
		}},
	}.resolved()

	inherits := lanePolicy{
		attemptTimeout: 1 * time.Second, idleTimeout: 2 * time.Second, queueTimeout: 3 * time.Second,
		minRemaining: 4 * time.Second, agingStep: 5 * time.Second,
		retry: c.Retry, breaker: c.Breaker, fallback: c.Fallback, hedge: c.Hedge,
	}
	require.Equal(t, inherits, c.lanePolicy(nil))
	require.Equal(t, inherits, c.lanePolicy(&c.Lanes[0]))

	replaces := c.lanePolicy(&c.Lanes[1])
	require.Equal(t, lanePolicy{
		attemptTimeout: 6 * time.Second, idleTimeout: 7 * time.Second, queueTimeout: 8 * time.Second,
		minRemaining: 9 * time.Second, agingStep: 10 * time.Second, maxConcurrent: 2, maxQueue: 3, rate: PerSecond(4),
		retry:    &Retry{Max: 5, BaseDelay: 200 * time.Millisecond, MaxDelay: 30 * time.Second, Budget: 0.2},
		breaker:  c.Lanes[1].Breaker,
		fallback: &Fallback{Stale: 7}, hedge: &Hedge{After: 8},
	}, replaces)
	require.Equal(t, 6, replaces.breaker.MinCalls)

	require.Equal(t, lanePolicy{agingStep: NoTimeout, rate: []Rate{}}, c.lanePolicy(&c.Lanes[2]))
}
