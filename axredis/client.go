package axredis

import (
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// dialer makes clients like the one that New was given, but with the governor's
// own time-outs and without retries: a call either answers within Timeout or is
// an outage, and nothing waits behind the application's other commands. A dial,
// which with TLS takes three round trips, may go on beside it. nil: the client is
// of a type that cannot be copied and is used as it is.
type dialer func() redis.UniversalClient

// newDialer copies rdb's options; rdb itself is left alone.
func newDialer(rdb redis.UniversalClient, timeout time.Duration) dialer {
	quiet := &maintnotifications.Config{Mode: maintnotifications.ModeDisabled} // it would relax time-outs
	switch c := rdb.(type) {
	case *redis.Client:
		return func() redis.UniversalClient {
			o := *c.Options()
			o.MaxRetries, o.DialerRetries = -1, 1
			o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = 3*timeout, timeout, timeout, timeout/2
			o.ContextTimeoutEnabled = true
			o.MinIdleConns, o.MaintNotificationsConfig = 0, quiet
			return redis.NewClient(&o)
		}
	case *redis.ClusterClient:
		return func() redis.UniversalClient {
			o := *c.Options()
			o.MaxRetries, o.DialerRetries = -1, 1 // redirections are followed all the same
			o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = 3*timeout, timeout, timeout, timeout/2
			o.ContextTimeoutEnabled = true
			o.MinIdleConns, o.MaintNotificationsConfig = 0, quiet
			o.ReadOnly, o.RouteByLatency, o.RouteRandomly = false, false, false // every call writes
			return redis.NewClusterClient(&o)
		}
	case *redis.Ring:
		return func() redis.UniversalClient {
			o := *c.Options()
			o.MaxRetries = -1
			o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = 3*timeout, timeout, timeout, timeout/2
			o.ContextTimeoutEnabled = true
			o.MinIdleConns = 0
			return redis.NewRing(&o)
		}
	}
	return nil
}

// callsAtOnce is how many calls find a connection in one pool of rdb's at once; 0 =
// not known, or, where lanes lie on several servers, not one number.
func callsAtOnce(rdb redis.UniversalClient, shared bool) int {
	size, most := 0, 0
	switch c := rdb.(type) {
	case *redis.Client:
		size, most = c.Options().PoolSize, c.Options().MaxActiveConns
	case *redis.ClusterClient:
		if shared {
			size, most = c.Options().PoolSize, c.Options().MaxActiveConns
		}
	case *redis.Ring:
		if shared {
			size, most = c.Options().PoolSize, c.Options().MaxActiveConns
		}
	}
	if most > 0 {
		size = min(size, most)
	}
	return size
}
