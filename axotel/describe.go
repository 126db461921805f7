package axotel

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/axsched/ax"
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// The attributes of spans that the semantic conventions have no name for.
const (
	spanLaneKey     = attribute.Key("ax.lane")
	spanOwnerKey    = attribute.Key("ax.owner")
	spanOutcomeKey  = attribute.Key("ax.outcome")
	spanSourceKey   = attribute.Key("ax.source")
	spanAttemptKey  = attribute.Key("ax.attempt")
	spanAttemptsKey = attribute.Key("ax.attempts")
	spanWaitedKey   = attribute.Key("ax.waited") // seconds
	spanDelayKey    = attribute.Key("ax.delay")  // seconds
)

// taskAttributes describe what is to be sent, without its secrets.
func taskAttributes(t *ax.Task) []attribute.KeyValue {
	u, err := url.Parse(t.URL())
	if err != nil { // of TaskFrom: a URL that has no text form
		return methodAttributes(t.Method())
	}
	return append(methodAttributes(t.Method()), urlAttributes(u)...)
}

// methodAttributes are the method, and how it was spelled if it is none of the
// known ones.
func methodAttributes(m string) []attribute.KeyValue {
	known := knownMethod(m)
	attrs := []attribute.KeyValue{semconv.HTTPRequestMethodKey.String(known)}
	if known == otherMethod {
		attrs = append(attrs, semconv.HTTPRequestMethodOriginal(m))
	}
	return attrs
}

// urlAttributes describe where u leads, without its secrets.
func urlAttributes(u *url.URL) []attribute.KeyValue {
	full := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}
	attrs := []attribute.KeyValue{semconv.URLFull(full.String()), semconv.ServerAddress(u.Hostname())}
	if port := portOf(u); port > 0 {
		attrs = append(attrs, semconv.ServerPort(port))
	}
	return attrs
}

// portOf is u's port, written or its scheme's; 0 = unknown.
func portOf(u *url.URL) int {
	if port, err := strconv.Atoi(u.Port()); err == nil {
		return port
	}
	switch strings.ToLower(u.Scheme) {
	case "http":
		return 80
	case "https":
		return 443
	}
	return 0
}

// otherMethod stands for all methods that are not known.
const otherMethod = "_OTHER"

// knownMethod keeps the cardinality of methods low, as the semantic conventions
// ask.
func knownMethod(m string) string {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodDelete, http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return m
	}
	return otherMethod
}

// spanMethod is the name of a span for a request.
func spanMethod(m string) string {
	if m = knownMethod(m); m == otherMethod {
		return "HTTP"
	}
	return m
}

// kind is one error of ax by a short name.
type kind struct {
	err  error
	name string
}

// refusals are the errors by which ax itself ends something.
func refusals() []kind {
	return []kind{
		{ax.ErrQueueFull, "queue_full"}, {ax.ErrQueueTimeout, "queue_timeout"}, {ax.ErrEvicted, "evicted"},
		{ax.ErrCircuitOpen, "circuit_open"}, {ax.ErrBudget, "budget"}, {ax.ErrSuperseded, "superseded"},
		{ax.ErrCooldown, "cooldown"}, {ax.ErrWouldWait, "would_wait"}, {ax.ErrCanceledByTag, "canceled_by_tag"},
		{ax.ErrScopeEnded, "scope_ended"}, {ax.ErrWouldExceedDeadline, "would_exceed_deadline"},
		{ax.ErrGrantLost, "grant_lost"}, {ax.ErrClosed, "closed"},
	}
}

func isRefusal(err error) bool {
	for _, k := range refusals() {
		if errors.Is(err, k.err) {
			return true
		}
	}
	return false
}

// errorType is err by its kind: for ax's own errors and the usual ones of the
// network a short name, else its Go type. The text of an error may hold what its
// author put there, so it is never recorded.
func errorType(err error) string {
	for _, k := range refusals() {
		if errors.Is(err, k.err) {
			return k.name
		}
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "canceled"
	}
	if t, ok := errors.AsType[net.Error](err); ok && t.Timeout() {
		return "timeout"
	}
	if _, ok := errors.AsType[*ax.PanicError](err); ok {
		return "panic"
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "certificate"
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return "dns"
	}
	return innermostType(err)
}

// innermostType is the Go type of what err wraps at last, "_OTHER" if that says
// nothing.
func innermostType(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			break
		}
		err = inner
	}
	switch name := fmt.Sprintf("%T", err); name {
	case "*errors.errorString", "*errors.joinError", "*fmt.wrapError", "*fmt.wrapErrors":
		return "_OTHER"
	default:
		return name
	}
}
