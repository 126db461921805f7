package main

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/axsched/ax"
)

// world is an [ax.Executor] that stands for five services and their moods, which
// come round by the clock since it began.
type world struct{ began time.Time }

func newWorld() *world { return &world{began: time.Now()} }

var errReset = errors.New("connection reset by peer")

// Execute answers after the time that the service takes in its present mood.
func (w *world) Execute(ctx context.Context, t *ax.Task) (*http.Response, error) {
	u, err := url.Parse(t.URL())
	if err != nil {
		return nil, err
	}
	status, delay, failed := w.mood(u.Host)
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-timer.C:
	}
	if failed {
		return nil, errReset
	}
	h := http.Header{"Content-Type": {"application/json"}}
	if status == http.StatusTooManyRequests {
		h.Set("Retry-After", "3")
	}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(`{"of":"` + u.Path + `"}`))}, nil
}

// mood is how a service answers now.
func (w *world) mood(host string) (status int, delay time.Duration, failed bool) {
	chance := rand.Float64()
	switch host {
	case "payments.example": // down for 9 of 45 seconds
		if w.phase(45*time.Second) > 36*time.Second {
			return http.StatusServiceUnavailable, spread(60 * time.Millisecond), chance < 0.3
		}
		return http.StatusOK, spread(180 * time.Millisecond), false
	case "search.example": // slow for 10 of 35 seconds
		if w.phase(35*time.Second) > 25*time.Second {
			return http.StatusOK, spread(900 * time.Millisecond), chance < 0.05
		}
		return http.StatusOK, spread(130 * time.Millisecond), chance < 0.02
	case "weather.example": // counts its callers
		if chance < 0.01 {
			return http.StatusTooManyRequests, spread(20 * time.Millisecond), false
		}
		return http.StatusOK, spread(90 * time.Millisecond), false
	case "reports.example":
		return http.StatusOK, spread(450 * time.Millisecond), chance < 0.03
	}
	return http.StatusOK, spread(70 * time.Millisecond), chance < 0.01
}

// phase is how far the clock is in a round of length d.
func (w *world) phase(d time.Duration) time.Duration { return time.Since(w.began) % d }

// spread is mostly about d, now and then four times as long.
func spread(d time.Duration) time.Duration {
	f := 0.6 + 0.8*rand.Float64()
	if rand.IntN(20) == 0 {
		f = 4
	}
	return time.Duration(f * float64(d))
}
