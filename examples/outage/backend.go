package main

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/axsched/ax/examples/internal/lab"
)

// The script of the outage, in order.
const (
	healthy = 3 * time.Second
	failing = 3 * time.Second // 60 % errors
	dead    = 5 * time.Second // connections are cut
	back    = 6 * time.Second
)

const service = 40 * time.Millisecond

// arrival is one request as the backend saw it.
type arrival struct {
	at     time.Duration // since the script began
	active int           // requests in the backend, this one included
}

// backend follows the script.
type backend struct {
	*lab.Backend
	start time.Time

	mu       sync.Mutex
	active   int
	arrivals []arrival
}

func newBackend(start time.Time) *backend {
	b := &backend{start: start}
	b.Backend = lab.NewBackend(lab.Limit{}, b.serve)
	return b
}

func (b *backend) serve(w http.ResponseWriter, r *http.Request) {
	at, n := b.enter()
	defer b.leave()
	switch {
	case at < healthy:
	case at < healthy+failing:
		if n%5 < 3 {
			time.Sleep(service)
			http.Error(w, "overloaded", http.StatusInternalServerError)
			return
		}
	case at < healthy+failing+dead:
		panic(http.ErrAbortHandler) // cuts the connection
	}
	time.Sleep(service)
	fmt.Fprintf(w, "page %s", r.URL.Query().Get("id"))
}

func (b *backend) enter() (at time.Duration, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.active++
	at = time.Since(b.start)
	b.arrivals = append(b.arrivals, arrival{at: at, active: b.active})
	return at, len(b.arrivals)
}

func (b *backend) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.active--
}

// between counts the requests that came in that part of the script.
func (b *backend) between(from, to time.Duration) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, a := range b.arrivals {
		if from <= a.at && a.at < to {
			n++
		}
	}
	return n
}

// overRamp counts the arrivals that found more requests in the backend than a
// ramp that rises from one to atOnce allows, and tells the largest number seen
// while it rose. The moment at which it began is known to a few milliseconds.
func (b *backend) overRamp(from time.Duration) (over, peak int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, a := range b.arrivals {
		if a.at < from || a.at >= from+rampOver {
			continue
		}
		peak = max(peak, a.active)
		since := a.at - from + 5*time.Millisecond
		allowed := 1 + int(float64(atOnce-1)*since.Seconds()/rampOver.Seconds())
		if a.active > allowed {
			over++
		}
	}
	return over, peak
}
