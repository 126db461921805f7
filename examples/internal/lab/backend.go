// Package lab is what the examples share: a server on loopback that counts what
// reaches it, and a list of promises that decides how an example exits.
package lab

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"time"
)

// Backend is a server on loopback that counts what it is asked. Unlike the
// scheduler's own statistics, its numbers cannot be wrong in the scheduler's
// favour: they are taken on the other side of the wire.
type Backend struct {
	// URL is where it listens, "http://127.0.0.1:port".
	URL string

	srv   *httptest.Server
	limit Limit

	mu       sync.Mutex
	arrivals []time.Time
	active   int
	peak     int
	statuses map[int]int
}

// Limit is the load beyond which a Backend breaks. Zero = it bears anything.
type Limit struct {
	Concurrent int // above this many at once it answers 503
	PerSecond  int // above this many in any second it answers 429
}

// Seen is what a Backend has counted.
type Seen struct {
	Requests      int
	PeakAtOnce    int // requests in its handlers at the same time
	PeakPerSecond int // arrivals in the busiest second, wherever it begins
	Statuses      map[int]int
}

// NewBackend starts a server over h that breaks above limit.
func NewBackend(limit Limit, h http.HandlerFunc) *Backend {
	b := &Backend{limit: limit, statuses: make(map[int]int)}
	b.srv = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { b.serve(w, r, h) }))
	b.URL = b.srv.URL
	return b
}

// Close cuts all connections and stops the server.
func (b *Backend) Close() {
	b.srv.CloseClientConnections()
	b.srv.Close()
}

// Seen is what has been counted until now.
func (b *Backend) Seen() Seen {
	b.mu.Lock()
	defer b.mu.Unlock()
	seen := Seen{Requests: len(b.arrivals), PeakAtOnce: b.peak, Statuses: make(map[int]int, len(b.statuses))}
	for i := range b.arrivals {
		seen.PeakPerSecond = max(seen.PeakPerSecond, countSecond(b.arrivals[:i+1]))
	}
	for status, n := range b.statuses {
		seen.Statuses[status] = n
	}
	return seen
}

// Arrivals are the moments at which requests came, in order.
func (b *Backend) Arrivals() []time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.arrivals)
}

func (b *Backend) serve(w http.ResponseWriter, r *http.Request, h http.HandlerFunc) {
	rec := &recorder{ResponseWriter: w, status: http.StatusOK}
	refused := b.enter()
	defer func() { b.leave(rec.status) }()
	if refused != 0 {
		http.Error(rec, http.StatusText(refused), refused)
		return
	}
	h(rec, r)
}

// enter counts an arrival and says with which status it is refused, 0 = served.
func (b *Backend) enter() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.arrivals = append(b.arrivals, time.Now())
	b.active++
	b.peak = max(b.peak, b.active)
	switch {
	case b.limit.Concurrent > 0 && b.active > b.limit.Concurrent:
		return http.StatusServiceUnavailable
	case b.limit.PerSecond > 0 && countSecond(b.arrivals) > b.limit.PerSecond:
		return http.StatusTooManyRequests
	}
	return 0
}

// leave runs before net/http sends what a short handler has written: a client
// that has its answer finds the handler gone.
func (b *Backend) leave(status int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.active--
	b.statuses[status]++
}

// countSecond is how many of the arrivals lie in the second that ends with the last.
func countSecond(arrivals []time.Time) int {
	from := arrivals[len(arrivals)-1].Add(-time.Second)
	first, _ := slices.BinarySearchFunc(arrivals, from, time.Time.Compare)
	return len(arrivals) - first
}

type recorder struct {
	http.ResponseWriter
	status int
}

func (r *recorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController reach the connection.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// Failed is how many answers had a status of 400 or more.
func (s Seen) Failed() int {
	var n int
	for status, count := range s.Statuses {
		if status >= 400 {
			n += count
		}
	}
	return n
}

// String is one line for people.
func (s Seen) String() string {
	return fmt.Sprintf("%d requests, at most %d at once and %d in a second; %d answered with an error",
		s.Requests, s.PeakAtOnce, s.PeakPerSecond, s.Failed())
}
