package bench

import (
	"context"
	"net/http"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
	"github.com/failsafe-go/failsafe-go/timeout"
)

const failsafeLabel = "failsafe-go"

const failsafeHow = "Retry(CircuitBreaker(RateLimiter(Bulkhead(…)))), limiter and bulkhead told to wait"

// failsafePolicies are the stack's, outermost first; a timeout is innermost, so
// that waiting does not count.
func failsafePolicies(j job) []failsafe.Policy[*http.Response] {
	bad := func(resp *http.Response, err error) bool { return failure(resp, err) != nil }
	policies := []failsafe.Policy[*http.Response]{
		retrypolicy.NewBuilder[*http.Response]().HandleIf(bad).
			WithMaxRetries(retries).WithBackoff(retryDelay, 30*time.Second).Build(),
		circuitbreaker.NewBuilder[*http.Response]().HandleIf(bad).
			WithFailureThresholdRatio(breakerShare*breakerWindow+1, breakerWindow).WithDelay(breakerRest).Build(),
		ratelimiter.NewBurstyBuilder[*http.Response](ratePerSecond, time.Second).WithMaxWaitTime(longWait).Build(),
		bulkhead.NewBuilder[*http.Response](uint(j.slots)).WithMaxWaitTime(longWait).Build(),
	}
	if j.timeout > 0 {
		policies = append(policies, timeout.New[*http.Response](j.timeout))
	}
	return policies
}

// failsafeDo is one executor, used with the ctx of each call.
func failsafeDo(j job) func(context.Context) error {
	x := failsafe.With(failsafePolicies(j)...)
	return func(ctx context.Context) error {
		_, err := x.WithContext(ctx).GetWithExecution(func(e failsafe.Execution[*http.Response]) (*http.Response, error) {
			return j.work(e.Context())
		})
		return err
	}
}

// failsafeCalls has all callers use one executor.
func failsafeCalls(j job) (call, func()) {
	do := failsafeDo(j)
	ctxs, cancel := callerContexts(j.callers)
	return func(c int) error { return do(ctxs[c]) }, cancel
}
