package ax

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestF3Delay(t *testing.T) {
	const m = time.Millisecond
	half := func() float64 { return 0.5 }
	for _, c := range []struct {
		base, most time.Duration
		jitter     Jitter
		n          int
		want       time.Duration
	}{
		{200 * m, 30 * time.Second, NoJitter, 0, 200 * m},
		{200 * m, 30 * time.Second, NoJitter, 1, 400 * m},
		{200 * m, 30 * time.Second, NoJitter, 7, 25600 * m},
		{200 * m, 30 * time.Second, NoJitter, 8, 30 * time.Second},
		{200 * m, 30 * time.Second, NoJitter, 1e9, 30 * time.Second},
		{200 * m, 30 * time.Second, NoJitter, math.MaxInt, 30 * time.Second},
		{200 * m, 30 * time.Second, FullJitter, 1, 200 * m},
		{200 * m, 30 * time.Second, EqualJitter, 1, 300 * m},
		{1, math.MaxInt64, NoJitter, 62, 1 << 62},
		{1, math.MaxInt64, NoJitter, 63, math.MaxInt64},
		{3, math.MaxInt64, NoJitter, 62, math.MaxInt64},
		{0, 30 * time.Second, NoJitter, 5, 0},
		{0, 30 * time.Second, FullJitter, 1e9, 0},
		{200 * m, 0, FullJitter, 5, 0},
		{200 * m, 0, EqualJitter, 0, 0},
		{200 * m, 50 * m, NoJitter, 0, 50 * m},
		{-1, -1, NoJitter, -1, 0},
	} {
		p := Retry{BaseDelay: c.base, MaxDelay: c.most, Jitter: c.jitter}
		require.Equal(t, c.want, p.delay(c.n, half), "%+v", c)
	}
}

func TestF3DelayAtTheEdges(t *testing.T) {
	p := Retry{BaseDelay: time.Second, MaxDelay: math.MaxInt64}
	for _, x := range []float64{0, math.Nextafter(1, 0), 1} {
		d := p.delay(200, func() float64 { return x })
		require.True(t, d >= 0, "%v", d)
	}
	require.Equal(t, time.Duration(math.MaxInt64), p.delay(200, func() float64 { return 1 }))
	p.Jitter = EqualJitter
	require.Equal(t, time.Duration(math.MaxInt64), p.delay(200, func() float64 { return 0 }))
	require.Equal(t, time.Duration(math.MaxInt64/2+1), p.delay(200, func() float64 { return 1 }))
}

func TestCaseH16(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2)).Float64
	p := Retry{BaseDelay: 100 * time.Millisecond, MaxDelay: 10 * time.Second}
	for n := range 201 {
		bound := p.bound(n)
		want := 10 * time.Second
		if n < 7 {
			want = 100 * time.Millisecond << n
		}
		require.Equal(t, want, bound, "retry %d", n)
		for _, jitter := range []Jitter{FullJitter, EqualJitter, NoJitter} {
			p.Jitter = jitter
			d := p.delay(n, rnd)
			require.True(t, d >= 0 && d <= bound, "retry %d: %v", n, d)
		}
	}
}

func TestF3JitterIsUniform(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4)).Float64
	for _, n := range []int{0, 3, 64} {
		p := Retry{BaseDelay: 100 * time.Millisecond, MaxDelay: 10 * time.Second}
		bound := p.bound(n)
		for jitter, mean := range map[Jitter]time.Duration{FullJitter: bound / 2, EqualJitter: bound * 3 / 4} {
			p.Jitter = jitter
			var sum time.Duration
			for range 1000 {
				d := p.delay(n, rnd)
				require.True(t, d >= 0 && d <= bound)
				sum += d
			}
			require.InEpsilon(t, mean, sum/1000, 0.1, "%v, retry %d", jitter, n)
		}
	}
}

func FuzzDelay(f *testing.F) {
	f.Add(int64(2e8), int64(3e10), 0, 64, 0.5)
	f.Fuzz(func(t *testing.T, base, most int64, jitter, n int, x float64) {
		p := Retry{BaseDelay: time.Duration(base), MaxDelay: time.Duration(most), Jitter: Jitter(jitter % 3)}
		x = math.Abs(math.Mod(x, 1))
		if math.IsNaN(x) {
			x = 0
		}
		d := p.delay(n, func() float64 { return x })
		require.True(t, d >= 0 && d <= max(p.MaxDelay, 0), "%v", d)
	})
}

func TestF2Methods(t *testing.T) {
	for _, m := range []string{"", "GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"} {
		require.True(t, idempotentMethod(m), m)
	}
	for _, m := range []string{"POST", "PATCH", "CONNECT", "LOCK", "get"} {
		require.False(t, idempotentMethod(m), m)
	}
}

// callersFault is an error of the caller's side of an attempt.
type callersFault struct{ error }

func (callersFault) ownFault() {}

func TestF1F2Errors(t *testing.T) {
	get := func(err error) error { return &url.Error{Op: "Get", URL: "http://a.test/", Err: err} }
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	for _, c := range []struct {
		err                     error
		again, neutral, notSent bool
	}{
		{get(io.ErrUnexpectedEOF), true, false, false},
		{get(&net.OpError{Op: "read", Err: errors.New("connection reset")}), true, false, false},
		{get(refused), true, false, true},
		{get(&net.OpError{Op: "proxyconnect", Err: refused}), true, false, true},
		{get(&net.OpError{Op: "socks connect", Err: errors.New("host unreachable")}), true, false, true},
		{get(&net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host"}}), true, false, true},
		{&net.DNSError{Err: "no such host"}, true, false, true},
		{context.DeadlineExceeded, true, false, false},
		{get(context.Canceled), true, false, false},

		{get(&tls.CertificateVerificationError{Err: x509.HostnameError{}}), false, false, false},
		{get(&net.OpError{Op: "proxyconnect", Err: x509.UnknownAuthorityError{}}), false, false, true},
		{get(x509.HostnameError{Certificate: &x509.Certificate{}, Host: "a"}), false, false, false},
		{get(x509.CertificateInvalidError{Reason: x509.Expired}), false, false, false},
		{get(x509.SystemRootsError{}), false, false, false},
		{get(http.ErrSchemeMismatch), false, false, false},
		{get(&net.OpError{Op: "dial", Err: &net.AddrError{Err: "invalid port", Addr: "99999"}}), false, false, true},
		{&url.Error{Op: "Get", URL: "htps://a.test/", Err: errors.New("no type")}, false, false, false},
		{&url.Error{Op: "Get", URL: "a.test", Err: errors.New("no type")}, false, false, false},
		{&url.Error{Op: "parse", URL: "http://a.test/%", Err: url.EscapeError("%")}, false, false, false},
		{&url.Error{Op: "Get", URL: "HTTPS://us er:***@a.test/", Err: io.EOF}, true, false, false},
		{&url.Error{Op: "Get", Err: io.EOF}, true, false, false},
		{get(&http.MaxBytesError{Limit: 9}), false, false, false},

		{get(callersFault{io.EOF}), false, true, false},
		{ErrCircuitOpen, false, true, false},
		{get(fmt.Errorf("nested: %w", ErrQueueFull)), false, true, false},
		{fmt.Errorf("no: %w", ErrWouldExceedDeadline), false, true, false},
		{ErrGrantLost, true, true, false},
		{&finalError{error: io.EOF}, false, false, false},
		{get(&finalError{error: io.EOF, unsent: true}), false, true, false},
	} {
		require.Equal(t, c.again, worthRetrying(0, c.err), "worthRetrying(%v)", c.err)
		require.Equal(t, c.neutral, neutral(c.err), "neutral(%v)", c.err)
		require.Equal(t, c.notSent, notSent(c.err), "notSent(%v)", c.err)
		require.True(t, isFailure(0, c.err))
	}
	require.False(t, neutral(nil))
	require.False(t, notSent(nil))
}

func TestF1F2Statuses(t *testing.T) {
	for status := 100; status < 600; status++ {
		require.Equal(t, status >= 500, isFailure(status, nil), "%d", status)
		require.Equal(t, status == 429 || status >= 500 && status != 501, worthRetrying(status, nil), "%d", status)
	}
}

func TestSendable(t *testing.T) {
	for want, reqs := range map[bool][]*http.Request{
		true: {
			{URL: &url.URL{Scheme: "http", Host: "a"}},
			{Method: "M-SEARCH", URL: &url.URL{Scheme: "https", Host: "a"}, Header: http.Header{"X-A": {"\tü ~"}}},
		},
		false: {
			{},
			{URL: &url.URL{Scheme: "htps", Host: "a"}},
			{URL: &url.URL{Scheme: "http"}},
			{Method: "GE T", URL: &url.URL{Scheme: "http", Host: "a"}},
			{URL: &url.URL{Scheme: "http", Host: "a"}, Header: http.Header{"": {""}}},
			{URL: &url.URL{Scheme: "http", Host: "a"}, Header: http.Header{"a:b": {""}}},
			{URL: &url.URL{Scheme: "http", Host: "a"}, Header: http.Header{"A": {"x\r\ny"}}},
		},
	} {
		for _, r := range reqs {
			require.Equal(t, want, sendable(r), "%+v", r)
		}
	}
}

// What net/http really returns for requests that no attempt can save. The
// certificate is found by its type; the others have none.
func TestCaseH43Errors(t *testing.T) {
	loop := httptest.NewServer(http.RedirectHandler("/again", http.StatusFound))
	defer loop.Close()
	away := httptest.NewServer(http.RedirectHandler("htps://a.test/", http.StatusFound))
	defer away.Close()
	untrusted := httptest.NewUnstartedServer(http.NotFoundHandler())
	untrusted.Config.ErrorLog = log.New(io.Discard, "", 0)
	untrusted.StartTLS()
	defer untrusted.Close()
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()

	for name, c := range map[string]struct {
		url            string
		header         http.Header
		again, neutral bool
	}{
		"scheme":             {"htps://a.test/", nil, false, true},
		"redirect to scheme": {away.URL, nil, false, false},
		"header":             {loop.URL, http.Header{"A": {"x\ny"}}, false, true},
		"redirect loop":      {loop.URL, nil, false, false},
		"certificate":        {untrusted.URL, nil, false, false},
		"TLS to plain port":  {"https" + loop.URL[len("http"):], nil, false, false},
		"port":               {"http://127.0.0.1:99999/", nil, false, false},
		"refused":            {closed.URL, nil, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequest("GET", c.url, nil)
			require.NoError(t, err)
			if c.header != nil {
				req.Header = c.header
			}
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			_, err = client.Do(req)
			require.Error(t, err)
			marked := markFinal(req, err)
			require.Equal(t, err.Error(), marked.Error())
			require.ErrorIs(t, marked, err)
			require.Equal(t, c.again, worthRetrying(0, marked), "%v", err)
			require.Equal(t, c.neutral, neutral(marked))
		})
	}
	require.NoError(t, markFinal(nil, nil))
	require.Equal(t, io.EOF, markFinal(httptest.NewRequest("GET", "http://a.test/", nil), io.EOF))
}
