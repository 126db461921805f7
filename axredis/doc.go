// Package axredis is one gate for a fleet: an [ax.Governor] that lets the
// schedulers of many processes share limits through Redis.
//
//	rdb := redis.NewClient(&redis.Options{Addr: "redis:6379"})
//	gov, err := axredis.New(rdb, axredis.Config{Lanes: map[string]ax.Limits{
//		"api": {MaxConcurrent: 10, Rate: ax.PerSecond(50)},
//	}})
//	…
//	sched, err := ax.New(nil, ax.Config{Governor: gov, Lanes: []ax.Lane{{Name: "api"}}})
//
// # What holds
//
// All limits of a lane, and those of "" for all lanes together, are decided by
// one script: all or nothing, on the clock of Redis. Clocks of processes never
// matter. A rate with Burst 0 is an exact window, as in [ax.Rate]: exact in Redis, and
// where the executor is called at most as much later as a start's window has room
// for ([ax.Grant.StartBy]); what would come later is not begun. What the operating
// system, dialling and the network add after that is for the Guard of the rate.
// Across the fleet the best rank goes first, and one machine's Retry-After or open
// breaker stops the lane on all of them.
//
// A slot is a lease. Its holder renews it three times in each LeaseTTL; the slots
// of one that has crashed come back within LeaseTTL. A holder that cannot renew
// gives up a tenth of LeaseTTL before others may take over: the attempt ends with
// [ax.ErrGrantLost]. That holds in an outage as well, whatever its mode.
//
// It is asked once for each attempt. Not asked for, and beyond what the fleet counts:
// redirects within an attempt that stay in its lane, and tasks nested in an attempt.
// Through Scheduler.Transport each hop is a task of its own.
//
// # What a lease cannot do
//
// It cannot stop what a server is already doing. A process that was frozen past
// its leases cancels its requests when it wakes, but the server may have worked
// on them all the time, beside those of whoever took over. Nor does a lease know
// of a machine whose monotonic clock stood still, as in a suspended laptop.
//
// If Redis loses its data, holders tell it again at their next renewal, within
// LeaseTTL/3, as does whoever has paused a lane. Until then up to one more cap may start; nothing in flight is
// cancelled for it. Windows and buckets start afresh.
//
// # Outages
//
// A call to Redis is bounded by Timeout and not retried. After two in a row that fail none
// is made: starts are decided as [Outage] says, at no cost, until a probe beside
// the callers finds Redis again. In a cluster or a ring lanes fail one by one.
//
// # Rolling out other limits
//
// Limits and LeaseTTL are part of the keys. While two versions run, each is
// counted for itself and the fleet may do the sum of both; Config.Logger is told.
// Pauses hold for both versions, except where "" gets its first limits or loses
// them: that moves every key, and a pause then stops its own version alone.
package axredis
