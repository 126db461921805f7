package axredis_test

import (
	"math"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/axsched/ax/axredis"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestConfigFaultsNameTheirField(t *testing.T) {
	rate := func(r ax.Rate) axredis.Config { return lanes("api", ax.Limits{Rate: []ax.Rate{{Limit: 1}, r}}) }
	for want, cfg := range map[string]axredis.Config{
		`Config.Prefix is "a{b}"`:                                     {Prefix: "a{b}"},
		`Config.LeaseTTL is -1s`:                                      {LeaseTTL: -time.Second},
		`Config.LeaseTTL is 1s; want at least three times`:            {LeaseTTL: time.Second, Timeout: 400 * ms},
		`Config.Timeout is -1s`:                                       {Timeout: -time.Second},
		`Config.Outage is 3`:                                          {Outage: axredis.FailClosed + 1},
		`Config.Outage is -1`:                                         {Outage: -1},
		`Config.Lanes["api"].MaxConcurrent is -1`:                     lanes("api", ax.Limits{MaxConcurrent: -1}),
		`Config.Lanes[""].MaxQueue is 7; want 0`:                      lanes("", ax.Limits{MaxQueue: 7}),
		`Config.Lanes["api"].Rate[1].Limit is 0`:                      rate(ax.Rate{}),
		`Config.Lanes["api"].Rate[1].Per is -1ns`:                     rate(ax.Rate{Limit: 1, Per: -1}),
		`Config.Lanes["api"].Rate[1].Burst is -1`:                     rate(ax.Rate{Limit: 1, Burst: -1}),
		`Config.Lanes["api"].Rate[1].Guard is -1ns`:                   rate(ax.Rate{Limit: 1, Guard: -1}),
		`Config.Lanes["api"].Rate[1].Smooth is set beside Burst`:      rate(ax.Rate{Limit: 1, Burst: 1, Smooth: true}),
		`Config.Lanes["api"].Rate[1].Guard is set beside Burst`:       rate(ax.Rate{Limit: 1, Burst: 1, Guard: 1}),
		`Config.Lanes["api"].Rate[1].Per is 2562047h47m16.854775807s`: rate(ax.Rate{Limit: 1, Per: math.MaxInt64}),
	} {
		_, err := axredis.New(redis.NewClient(&redis.Options{}), cfg)
		require.ErrorContains(t, err, want)
	}
}

func TestConfigFaultsAreAllTold(t *testing.T) {
	_, err := axredis.New(redis.NewClient(&redis.Options{}), axredis.Config{Prefix: "}", Timeout: -1, Outage: 9})
	require.EqualError(t, err, "axredis: Config.Prefix is \"}\"; want one without braces, which mark the slot of a key\n"+
		"axredis: Config.Timeout is -1ns; want more than 0, or 0 for 50ms\n"+
		"axredis: Config.Outage is 9; want FailLocal, FailOpen or FailClosed")
	_, err = axredis.New(nil, axredis.Config{})
	require.EqualError(t, err, "axredis: the Redis client is nil")
}

func TestConfigDefaultsAndCopy(t *testing.T) {
	g, err := axredis.New(redis.NewClient(&redis.Options{}), axredis.Config{})
	require.NoError(t, err)
	require.NoError(t, g.Close())
	cfg := lanes("api", ax.Limits{MaxConcurrent: ax.NoLimit, Rate: ax.Unlimited()})
	f := newFleet(t, cfg)
	g = f.join()
	delete(cfg.Lanes, "api")
	for range 10 {
		require.Nil(t, granted(t, g, ask("api", 0)).Release, "nothing to hold")
	}
}

func TestOutageNames(t *testing.T) {
	require.Equal(t, "FailLocal FailOpen FailClosed Outage(3)", axredis.FailLocal.String()+" "+
		axredis.FailOpen.String()+" "+axredis.FailClosed.String()+" "+axredis.Outage(3).String())
}
