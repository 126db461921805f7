package main

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/axsched/ax/examples/internal/lab"
)

// shop sells what it has, and after the first orders stumbles for a while.
type shop struct {
	*lab.Backend

	mu      sync.Mutex
	buyers  map[string]bool // who have ordered
	sold    int
	stumble time.Time // since when; zero = not yet
}

// stumbleFor is less than the breaker's pause: the shop has recovered when it
// is asked again.
const (
	stumbleAfter = stock / 3
	stumbleFor   = 2 * time.Second
)

func openShop() *shop {
	s := &shop{buyers: make(map[string]bool)}
	s.Backend = lab.NewBackend(lab.Limit{Concurrent: atOnce, PerSecond: perSecond}, s.order)
	return s
}

func (s *shop) order(w http.ResponseWriter, r *http.Request) {
	time.Sleep(150 * time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	buyer := r.URL.Query().Get("buyer")
	switch {
	case s.stumbles():
		http.Error(w, "database is gone", http.StatusInternalServerError)
	case s.sold == stock:
		http.Error(w, "sold out", http.StatusGone)
	default:
		s.sold++
		s.buyers[buyer] = true
		fmt.Fprintf(w, "order %d for buyer %s", s.sold, buyer)
	}
}

func (s *shop) stumbles() bool {
	if s.sold < stumbleAfter {
		return false
	}
	if s.stumble.IsZero() {
		s.stumble = time.Now()
	}
	return time.Since(s.stumble) < stumbleFor
}

func (s *shop) ordered() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sold
}

// people is how many buyers have an order.
func (s *shop) people() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.buyers)
}

// silence finds the longest time between two requests and tells how many came
// within the second after it.
func (s *shop) silence() (longest time.Duration, after int) {
	arrivals := s.Arrivals()
	var end int
	for i := 1; i < len(arrivals); i++ {
		if gap := arrivals[i].Sub(arrivals[i-1]); gap > longest {
			longest, end = gap, i
		}
	}
	for _, at := range arrivals[end:] {
		if at.Sub(arrivals[end]) < time.Second {
			after++
		}
	}
	return longest, after
}
