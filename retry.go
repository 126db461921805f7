package ax

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// delay is how long to wait before a retry, the first being n = 0. p has its
// defaults resolved; rnd returns numbers in [0, 1). The result is in
// [0, min(MaxDelay, BaseDelay·2ⁿ)] for any policy and any n.
func (p Retry) delay(n int, rnd func() float64) time.Duration {
	bound := p.bound(n)
	switch p.Jitter {
	case NoJitter:
		return bound
	case EqualJitter:
		return bound - portion(bound/2, rnd())
	default:
		return portion(bound, rnd())
	}
}

// bound is the longest delay before retry n: min(MaxDelay, BaseDelay·2ⁿ).
func (p Retry) bound(n int) time.Duration {
	base, most := max(p.BaseDelay, 0), max(p.MaxDelay, 0)
	n = max(n, 0)
	// Shifting the limit down instead of the base up cannot overflow.
	if base == 0 || n < 63 && base <= most>>n {
		return base << min(n, 62)
	}
	return most
}

// portion is x of d for an x in [0, 1], without the overflow of a product that
// rounds up.
func portion(d time.Duration, x float64) time.Duration {
	if f := x * float64(d); f < math.MaxInt64 {
		return min(time.Duration(f), d)
	}
	return d
}

// idempotentMethod reports whether sending a request twice has the effect of
// sending it once (RFC 9110, 9.2.2). "" is GET.
func idempotentMethod(m string) bool {
	switch m {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace,
		http.MethodPut, http.MethodDelete:
		return true
	}
	return false
}

// worthRetrying is the default of Retry.If: it reports whether another attempt
// may end better than one with this status or error. Whether the method allows
// another is a different question, and so is whether the caller is still there.
func worthRetrying(status int, err error) bool {
	if err != nil {
		return !hopeless(err) && (errors.Is(err, ErrGrantLost) || !refusal(err))
	}
	return status == http.StatusTooManyRequests || serverError(status) && status != http.StatusNotImplemented
}

// isFailure is the default of Breaker.IsFailure. Neutral outcomes are not to be
// put to it: see neutral.
func isFailure(status int, err error) bool {
	return err != nil || serverError(status)
}

// serverError tells the class of statuses by which a server says that it has failed.
func serverError(status int) bool { return status >= 500 && status <= 599 }

// neutral reports whether an attempt's error says nothing about the server: ax
// refused the attempt, or the caller's side of it failed. The third kind, an
// attempt that its caller ended, cannot be told from the error (servers and
// transports cancel too); whoever ended it knows.
func neutral(err error) bool {
	if _, ok := errors.AsType[ownFault](err); ok {
		return true
	}
	if c, ok := errors.AsType[*clientError](err); ok && c.own {
		return true
	}
	f, ok := errors.AsType[*finalError](err)
	return ok && f.unsent || refusal(err)
}

// ownFault is implemented by the errors that the caller's side of an attempt
// makes: its body, its Prepare. They are final and neutral.
type ownFault interface {
	error
	ownFault()
}

// finalError marks an error of net/http that no further attempt can change and
// that has no type of its own.
type finalError struct {
	error
	unsent bool // the request was refused before it left: neutral
}

func (e *finalError) Unwrap() error { return e.error }

// markFinal marks err, with which a transport refused or failed req, if no repetition
// can help and err says so only in words. It must see err before a *url.Error is taken
// off it.
func markFinal(req *http.Request, err error) error {
	switch {
	case err == nil:
		return nil
	case !sendable(req):
		return &finalError{error: err, unsent: true}
	case addressError(err):
		return &finalError{error: err}
	}
	return err
}

// sendable reports whether an http.Transport would try to send req, rather than
// refuse it for what it says.
func sendable(req *http.Request) bool {
	return req.URL != nil && httpScheme(req.URL.Scheme) && req.URL.Host != "" &&
		(req.Method == "" || isToken(req.Method)) &&
		validFields(req.Header) // not Trailer: the caller's map, which the body may be filling
}

// httpScheme reports whether an http.Transport speaks the scheme.
func httpScheme(s string) bool { return s == "http" || s == "https" }

// validFields reports whether every name is a token and no value holds a
// control character (RFC 9110, 5.1 and 5.5).
func validFields(h http.Header) bool {
	for name, values := range h {
		if !isToken(name) {
			return false
		}
		for _, v := range values {
			if !isFieldValue(v) {
				return false
			}
		}
	}
	return true
}

// hopeless reports whether no other attempt can end better than with err.
func hopeless(err error) bool {
	if _, ok := errors.AsType[ownFault](err); ok {
		return true
	}
	if is[*finalError](err) || is[*clientError](err) {
		return true
	}
	return certificateError(err) || addressError(err) || messageError(err)
}

// certificateError reports whether the server's certificate is not trusted. A
// handshake wraps these; a custom VerifyConnection may return them bare.
func certificateError(err error) bool {
	return is[*tls.CertificateVerificationError](err) ||
		is[x509.UnknownAuthorityError](err) ||
		is[x509.HostnameError](err) ||
		is[x509.CertificateInvalidError](err) ||
		is[x509.SystemRootsError](err) ||
		is[x509.ConstraintViolationError](err) ||
		is[x509.UnhandledCriticalExtension](err) ||
		is[x509.InsecureAlgorithmError](err)
}

// addressError reports whether the URL, the first or a redirect's, cannot be
// spoken to at all.
func addressError(err error) bool {
	if e, ok := errors.AsType[*url.Error](err); ok && e.URL != "" {
		// Beside a cause without a type the client puts the URL that failed.
		// It is cut, not parsed: without its password it need not be well formed.
		scheme, _, _ := strings.Cut(e.URL, ":")
		if e.Op == "parse" || !httpScheme(strings.ToLower(scheme)) {
			return true
		}
	}
	return errors.Is(err, http.ErrSchemeMismatch) ||
		is[url.EscapeError](err) ||
		is[url.InvalidHostError](err) ||
		is[*net.AddrError](err)
}

// messageError reports whether the request itself is at fault.
func messageError(err error) bool {
	return is[*http.MaxBytesError](err) || errors.Is(err, http.ErrBodyReadAfterClose)
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// refusal reports whether err is ax's own no, to this attempt or to one nested in it.
func refusal(err error) bool {
	for _, target := range [...]error{
		ErrClosed, ErrQueueFull, ErrQueueTimeout, ErrEvicted, ErrCircuitOpen, ErrBudget, ErrRetryBudget,
		ErrSuperseded, ErrCooldown, ErrWouldWait, ErrCanceledByTag, ErrScopeEnded, ErrNotReplayable,
		ErrWouldExceedDeadline, ErrGrantLost,
	} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// notSent reports whether err shows that the server never saw the request, so
// that any method may be sent again: no address was found for it or no
// connection was made. It speaks of the last request that the attempt sent; once
// a redirect has been followed, the one before it was seen.
func notSent(err error) bool {
	if is[*net.DNSError](err) {
		return true
	}
	op, ok := errors.AsType[*net.OpError](err)
	return ok && (op.Op == "dial" || op.Op == "proxyconnect" || op.Op == "socks connect")
}
