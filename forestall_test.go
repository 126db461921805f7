package ax_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// TestX1LeftAsItsTurnCame: a task that is left at the very moment at which it is
// granted its turn was never sent, whoever was first: no attempt is counted, told
// of, or shown in its error.
func TestX1LeftAsItsTurnCame(t *testing.T) {
	leave := map[string]func(s *ax.Scheduler, end context.CancelFunc){
		"ctx": func(_ *ax.Scheduler, end context.CancelFunc) { end() },
		"tag": func(s *ax.Scheduler, _ context.CancelFunc) { s.CancelTag("second") },
	}
	for name, leave := range leave {
		for range 100 {
			synctest.Test(t, func(t *testing.T) {
				var kinds []ax.EventKind
				var s *ax.Scheduler
				ctx, end := context.WithCancel(t.Context())
				defer end()
				proceed := make(chan struct{})
				s = qReal(t, ax.Config{MaxConcurrent: 1, OnEvent: func(e ax.Event) {
					if e.Seq == 2 {
						kinds = append(kinds, e.Kind)
					}
				}}, func(ctx context.Context, task *ax.Task) (*http.Response, error) {
					<-proceed
					go leave(s, end) // ends at once
					return qNoop(ctx, task)
				})
				go s.Get(t.Context(), "http://a.test/") // ends with the bubble
				synctest.Wait()
				failed := make(chan error, 1)
				go func() {
					_, err := s.Send(ctx, ax.Request{URL: "http://a.test/", Tags: []string{"second"}})
					failed <- err
				}()
				synctest.Wait()
				close(proceed)
				err := <-failed
				synctest.Wait()
				if err == nil { // it was sent before it was left
					require.Equal(t, uint64(2), s.Stats().Attempts)
					return
				}
				require.ErrorIs(t, err, context.Canceled)
				var e *ax.Error
				require.ErrorAs(t, err, &e)
				require.Equal(t, uint64(1+e.Attempts), s.Stats().Attempts, "%s: %v", name, err)
				if e.Attempts == 0 {
					require.Equal(t, "queue", e.Op)
					require.Equal(t, []ax.EventKind{ax.EventSubmitted, ax.EventQueued, ax.EventCanceled}, kinds)
				}
			})
		}
	}
}
