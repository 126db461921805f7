package axotel

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// Many tasks race, are shared, retried, cancelled and streamed; afterwards every
// task has had its span, the counts agree with the scheduler's, and nothing is
// remembered.
func TestRaceLeavesNothingBehind(t *testing.T) {
	var n atomic.Int64
	cfg := ax.Config{
		MaxConcurrent: 8, MaxQueue: 50, Dedupe: &ax.Dedupe{Window: 5 * time.Millisecond},
		Retry: &ax.Retry{BaseDelay: time.Millisecond, MaxDelay: 2 * time.Millisecond, Budget: 10},
	}
	r := newRig(t, cfg, func(req *http.Request) (*http.Response, error) {
		switch n.Add(1) % 11 {
		case 0:
			return answer(req, 503, "busy"), nil
		case 1:
			<-req.Context().Done()
			return nil, req.Context().Err()
		}
		return answer(req, 200, "ok"), nil
	})
	var wg sync.WaitGroup
	for g := range 20 {
		wg.Go(func() {
			for i := range 100 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+i%5)*5*time.Millisecond)
				resp, err := r.S.Send(ctx, ax.Request{
					URL: fmt.Sprintf("http://h%d.test/%d", i%3, i%10), Stream: g%10 == 0, NoDedupe: g%4 == 0, Tags: []string{"t"},
				})
				if err == nil {
					resp.Body.Close()
				}
				if g == 0 && i%10 == 0 {
					r.S.CancelTag("t")
				}
				cancel()
			}
		})
	}
	wg.Wait()
	require.NoError(t, r.S.Close())
	require.Eventually(t, func() bool {
		r.o.mu.Lock()
		defer r.o.mu.Unlock()
		return len(r.o.tasks)+len(r.o.attempts)+len(r.o.flights) == 0
	}, 5*time.Second, time.Millisecond)
	r.empty()
	st := r.S.Stats()
	require.Equal(t, uint64(2000), st.Submitted)
	require.Len(t, r.tasks(), 2000)
	var ended, hits int64
	for _, v := range r.sums("ax.tasks") {
		ended += v
	}
	for _, v := range r.sums("ax.dedupe.hits") {
		hits += v
	}
	require.Equal(t, int64(2000), ended)
	require.Equal(t, int64(st.Coalesced+st.WindowHits), hits)
}
