package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// visit is one request that the server has seen.
type visit struct {
	path, who, what string
	start, end      time.Time // end zero = still running
}

// filler is what keeps a slot busy until all others wait for it.
const filler = "filler"

// server counts requests, each of which takes a little time; those to /hold do
// not end.
type server struct {
	url  string
	http *http.Server

	mu     sync.Mutex
	visits []visit
}

func startServer() (*server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &server{url: "http://" + l.Addr().String()}
	s.http = &http.Server{Handler: http.HandlerFunc(s.serve)}
	go s.http.Serve(l) // ends with close
	return s, nil
}

func (s *server) close() { _ = s.http.Close() }

func (s *server) serve(_ http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	i := len(s.visits)
	s.visits = append(s.visits, visit{path: r.URL.Path, who: r.FormValue("who"), what: r.FormValue("what"), start: time.Now()})
	s.mu.Unlock()
	d := 100 * time.Millisecond
	switch {
	case r.URL.Path == "/hold":
		d = time.Hour
	case r.FormValue("what") == filler:
		d = 500 * time.Millisecond
	}
	select {
	case <-time.After(d):
	case <-r.Context().Done():
	}
	s.mu.Lock()
	s.visits[i].end = time.Now()
	s.mu.Unlock()
}

// look is what has been seen at path.
func (s *server) look(path string) (seen []visit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.visits {
		if v.path == path {
			seen = append(seen, v)
		}
	}
	return seen
}

// take is look after everything has ended.
func (s *server) take(path string) []visit {
	for {
		seen := s.look(path)
		if len(seen) == 0 || !seen[len(seen)-1].end.IsZero() {
			return seen
		}
		time.Sleep(time.Millisecond)
	}
}

// wait waits until n requests of who are held.
func (s *server) wait(ctx context.Context, who string, n int) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for len(by(s.look("/hold"), who)) < n {
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("waiting for %d requests of %s: %w", n, who, ctx.Err())
		}
	}
	return nil
}

// by are the visits of one worker.
func by(seen []visit, who string) (its []visit) {
	for _, v := range seen {
		if v.who == who {
			its = append(its, v)
		}
	}
	return its
}

// within counts the starts in the first d.
func within(seen []visit, d time.Duration) (n int) {
	for _, v := range seen {
		if v.start.Sub(seen[0].start) < d {
			n++
		}
	}
	return n
}

// peak is the most that ran at once.
func peak(seen []visit) (most int) {
	for _, at := range seen {
		n := 0
		for _, v := range seen {
			if !v.start.After(at.start) && (v.end.IsZero() || v.end.After(at.start)) {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// busiest is the most starts in any stretch of d.
func busiest(seen []visit, d time.Duration) (most int) {
	first := 0
	for i, v := range seen {
		for v.start.Sub(seen[first].start) >= d {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}
