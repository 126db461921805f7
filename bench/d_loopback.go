package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/axsched/ax"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/gojek/heimdall/v7"
	heimdallhttp "github.com/gojek/heimdall/v7/httpclient"
	"github.com/hashicorp/go-retryablehttp"
	"resty.dev/v3"
)

const (
	perSecond metric = "requests/s"
	clientCPU metric = "client CPU ns/request"
)

const (
	rawLabel          = "http.Client"
	failsafehttpLabel = "failsafehttp"
	axTransportLabel  = "ax, Transport"
	axPlainLabel      = "ax, no dedupe"
	loopbackCallers   = 64
)

// loopback is d1, with a timeout d2: real requests to a server in a process of
// its own, so that the processor time of this one is the client's.
func loopback(timeout time.Duration) func(effort) experiment {
	return func(e effort) experiment {
		id, title, limits := "d1", "Loopback end to end", "no time limit anywhere"
		if timeout > 0 {
			id, title, limits = "d2", "Loopback end to end, with a timeout", fmt.Sprintf("each request may take %v", timeout)
		}
		label := callersLabel(loopbackCallers)
		x := experiment{
			id: id, title: title,
			about:   fmt.Sprintf("%d callers send GETs and read the answer of 1 KiB; every contestant has a transport of its own that may keep all connections, and every caller a URL of its own; %s.", loopbackCallers, limits),
			short:   shortLoopback,
			columns: []metric{clientCPU, perSecond, allocs, allocBytes}, rounds: e.rounds(12),
			groups: []group{{label, loopbackContestants(e, timeout)}},
		}
		it := contender{label, axLabel, clientCPU}
		if timeout > 0 {
			x.marks = []mark{ratioAtMost(1.06, it, rawLabel), ratioAtMost(0.75, it, failsafehttpLabel)}
			return x
		}
		speed := it
		speed.metric = perSecond
		x.marks = []mark{ratioAtMost(1.10, it, rawLabel), ratioAtLeast(0.92, speed, rawLabel)}
		return x
	}
}

func loopbackContestants(e effort, timeout time.Duration) []contestant {
	shared := &sharedServer{}
	one := func(label, how string, build openHTTP) contestant {
		shared.users++
		return &requests{label: label, notes: how, server: shared, slice: e.slice(300 * time.Millisecond), timeout: timeout, build: build}
	}
	return []contestant{
		one(rawLabel, "Get, with Client.Timeout where there is a limit", rawRequests),
		one(axLabel, "Do with gate, rate, breaker, retry and dedupe, all on; AttemptTimeout where there is a limit", axRequests(true)),
		one(axPlainLabel, "the same without dedupe", axRequests(false)),
		one(axTransportLabel, "the same with dedupe, an http.Client over Transport()", axTransportRequests),
		one(detachedLabel, "hand-written floor of what shares: a3's map of flights and policies around http.Client, the body read into memory", detachedRequests),
		one("retryablehttp", "two retries, no log; no gate, rate or breaker of its own", retryableRequests),
		one(failsafehttpLabel, "an http.Client over NewRoundTripper with the policies of a1", failsafeRequests),
		one("heimdall", "two retries; no gate or rate of its own", heimdallRequests),
		one("resty", "two retries, its circuit breaker and its token bucket; no gate of its own", restyRequests),
	}
}

// openHTTP makes calls to a URL for each caller over a transport.
type openHTTP func(url func(caller int) string, rt *http.Transport, timeout time.Duration) (call, func())

// sharedServer is the server of all contestants, started when first needed.
type sharedServer struct {
	*childServer
	users int
}

func (s *sharedServer) start() error {
	if s.childServer != nil {
		return nil
	}
	var err error
	s.childServer, err = startServer()
	return err
}

// release stops the server with its last user.
func (s *sharedServer) release() {
	if s.users--; s.users == 0 && s.childServer != nil {
		_ = s.stop() // nothing depends on how it ends
	}
}

// requests is a contestant: a load of real requests.
type requests struct {
	label, notes string
	server       *sharedServer
	slice        time.Duration
	timeout      time.Duration
	build        openHTTP
	load         *load
}

func (q *requests) name() string { return q.label }
func (q *requests) how() string  { return q.notes }

func (q *requests) close() {
	if q.load != nil {
		q.load.close()
	}
	q.server.release()
}

func (q *requests) measure() (reading, error) {
	if q.load == nil {
		if err := q.server.start(); err != nil {
			return nil, err
		}
		rt := http.DefaultTransport.(*http.Transport).Clone()
		rt.MaxIdleConnsPerHost = loopbackCallers
		url := func(caller int) string { return fmt.Sprintf("%s/items/%d", q.server.url, caller) }
		c, stop := q.build(url, rt, q.timeout)
		q.load = &load{callers: loopbackCallers, slice: q.slice, call: c, stop: func() { stop(); rt.CloseIdleConnections() }}
	}
	r, err := q.load.measure()
	if err != nil {
		return nil, err
	}
	r[perSecond] = 1e9 / r[nsPerCall]
	r[clientCPU] = r[cpuPerCall]
	return r, nil
}

// drain reads a response as a caller would.
func drain(resp *http.Response, err error) error {
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return errors.Join(fmt.Errorf("%w: %d", errStatus, resp.StatusCode), resp.Body.Close())
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return errors.Join(err, resp.Body.Close())
}

// doer is an http.Client or what looks like one.
type doer interface {
	Do(*http.Request) (*http.Response, error)
}

// clientCalls are GETs by c.
func clientCalls(c doer, url func(int) string) (call, func()) {
	ctxs, cancel := callerContexts(loopbackCallers)
	return func(caller int) error {
		req, err := http.NewRequestWithContext(ctxs[caller], http.MethodGet, url(caller), nil)
		if err != nil {
			return err
		}
		return drain(c.Do(req))
	}, cancel
}

func rawRequests(url func(int) string, rt *http.Transport, timeout time.Duration) (call, func()) {
	return clientCalls(&http.Client{Transport: rt, Timeout: timeout}, url)
}

// axHTTP is a scheduler with everything on over a real transport.
func axHTTP(rt *http.Transport, timeout time.Duration, dedupe bool) *ax.Scheduler {
	cfg := axConfig(job{slots: loopbackCallers, timeout: timeout})
	cfg.Executor = nil
	if dedupe {
		cfg.Dedupe = &ax.Dedupe{}
	}
	s, err := ax.New(&http.Client{Transport: rt}, cfg)
	if err != nil {
		panic(err) // the configurations are constants
	}
	return s
}

func axRequests(dedupe bool) openHTTP {
	return func(url func(int) string, rt *http.Transport, timeout time.Duration) (call, func()) {
		s := axHTTP(rt, timeout, dedupe)
		ctxs, cancel := callerContexts(loopbackCallers)
		return func(c int) error {
			resp, err := s.Send(ctxs[c], ax.Request{URL: url(c)})
			if err != nil {
				return err
			}
			return drain(resp.Response, nil)
		}, func() { cancel(); axClose(s) }
	}
}

func axTransportRequests(url func(int) string, rt *http.Transport, timeout time.Duration) (call, func()) {
	s := axHTTP(rt, timeout, true)
	do, stop := clientCalls(&http.Client{Transport: s.Transport()}, url)
	return do, func() { stop(); axClose(s) }
}

// urlKey finds a caller's URL in its context, which reaches a detached attempt.
type urlKey struct{}

func detachedRequests(url func(int) string, rt *http.Transport, timeout time.Duration) (call, func()) {
	client := &http.Client{Transport: rt}
	stack := newDetachedStack(job{slots: loopbackCallers, timeout: timeout, work: func(ctx context.Context) (*http.Response, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, ctx.Value(urlKey{}).(string), nil)
		if err != nil {
			return nil, err
		}
		resp, err := client.Do(req)
		if err != nil {
			return nil, err
		}
		whole, err := io.ReadAll(resp.Body)
		err = errors.Join(err, resp.Body.Close())
		resp.Body = newHeldBody(whole)
		return resp, err
	}})
	ctxs, cancel := callerContexts(loopbackCallers)
	return func(caller int) error {
		u := url(caller)
		return drain(stack.do(context.WithValue(ctxs[caller], urlKey{}, u), u))
	}, cancel
}

func retryableRequests(url func(int) string, rt *http.Transport, timeout time.Duration) (call, func()) {
	c := retryablehttp.NewClient()
	c.HTTPClient = &http.Client{Transport: rt, Timeout: timeout}
	c.Logger = nil
	c.RetryMax = retries
	c.RetryWaitMin = retryDelay
	ctxs, cancel := callerContexts(loopbackCallers)
	return func(caller int) error {
		req, err := retryablehttp.NewRequestWithContext(ctxs[caller], http.MethodGet, url(caller), nil)
		if err != nil {
			return err
		}
		return drain(c.Do(req))
	}, cancel
}

func failsafeRequests(url func(int) string, rt *http.Transport, timeout time.Duration) (call, func()) {
	policies := failsafePolicies(job{slots: loopbackCallers, timeout: timeout})
	return clientCalls(&http.Client{Transport: failsafehttp.NewRoundTripper(rt, policies...)}, url)
}

func heimdallRequests(url func(int) string, rt *http.Transport, timeout time.Duration) (call, func()) {
	c := heimdallhttp.NewClient(
		heimdallhttp.WithHTTPClient(&http.Client{Transport: rt, Timeout: timeout}),
		heimdallhttp.WithRetryCount(retries),
		heimdallhttp.WithRetrier(heimdall.NewRetrier(heimdall.NewExponentialBackoff(retryDelay, 30*time.Second, 2, time.Millisecond))),
	)
	return clientCalls(c, url)
}

func restyRequests(url func(int) string, rt *http.Transport, timeout time.Duration) (call, func()) {
	c := resty.NewWithClient(&http.Client{Transport: rt}).
		SetTimeout(timeout).SetRetryCount(retries).SetRetryWaitTime(retryDelay).
		SetCircuitBreaker(resty.NewCircuitBreakerRatio(breakerShare, breakerWindow, breakerRest)).
		SetRateLimiter(resty.NewRateLimitTokenBucket(ratePerSecond, rateBurst))
	ctxs, cancel := callerContexts(loopbackCallers)
	return func(caller int) error {
		resp, err := c.R().SetContext(ctxs[caller]).Get(url(caller))
		if err == nil && resp.StatusCode() != http.StatusOK {
			err = fmt.Errorf("%w: %d", errStatus, resp.StatusCode())
		}
		if err == nil {
			_ = resp.Bytes()
		}
		return err
	}, cancel
}
