package ax_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// fOnce answers the first request with status and headers, every later one with 200.
func fOnce(status int, headers ...string) fReply {
	return fScript(fAnswer(status, "", headers...), fAnswer(200, ""))
}

func TestF4RetryAfterPausesTheWholeLane(t *testing.T) {
	for _, status := range []int{429, 503} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			ev := &fEvents{}
			bubble(t, ax.Config{OnEvent: ev.Add}, func(t *tester) {
				t.Server.Reply = fOnce(status, "Retry-After: 2")
				res := t.Do(t.Context(), fGet("/first"))
				require.NoError(t, res.Err)
				require.Equal(t, status, res.Status())
				require.Zero(t, res.At)
				require.WithinDuration(t, t.start.Add(2*fsec), fLane(t).PausedUntil, 0)

				t.Until(500 * fms)
				other := t.Do(t.Context(), ax.Request{URL: "http://b.test/"})
				require.Equal(t, 500*fms, other.At, "another lane is untouched")
				require.True(t, t.S.Stats().Lanes["b.test"].PausedUntil.IsZero())

				c := t.Go(t.Context(), fGet("/second"))
				t.Until(time.Second)
				st := t.S.Stats()
				require.Equal(t, []int{0, 0, 1}, []int{st.Active, st.Queued, st.Parked}, "what a pause holds is parked")
				require.Equal(t, 1, st.Lanes["a.test"].Parked)
				second := <-c
				require.Equal(t, 2*fsec, second.At)
				require.Equal(t, 1500*fms, second.Resp.Waited)
				require.Equal(t, []time.Duration{0, 2 * fsec}, fHostHits(t, "a.test"))

				synctest.Wait() // what the timer tells, it tells after it has woken the waiters
				require.Equal(t, []ax.EventKind{ax.EventLanePaused, ax.EventLaneResumed}, ev.Kinds(ax.EventLanePaused, ax.EventLaneResumed))
				for _, e := range ev.Of(ax.EventLanePaused, ax.EventLaneResumed) {
					require.Equal(t, "a.test", e.Lane)
				}
			})
		})
	}
}

func TestF4OnlyThoseTwoPause(t *testing.T) {
	rows := []struct {
		status int
		header string
	}{
		{200, "Retry-After: 5"}, {404, "Retry-After: 5"}, {500, "Retry-After: 5"}, {502, "Retry-After: 5"},
		{429, "X-Other: 5"}, {503, "X-Other: 5"}, {429, "Retry-After: soon"}, {503, "Retry-After: -1"},
		{429, "Retry-After: Fri, 31 Dec 1999 23:00:00 GMT"},
	}
	for _, row := range rows {
		t.Run(fmt.Sprint(row), func(t *testing.T) {
			bubble(t, ax.Config{Retry: &ax.Retry{BaseDelay: fsec, Jitter: ax.NoJitter}}, func(t *tester) {
				t.Server.Reply = fPaths(map[string]fReply{"/first": fOnce(row.status, row.header)})
				first := t.Go(t.Context(), fGet("/first"))
				t.Until(10 * fms)
				require.True(t, fLane(t).PausedUntil.IsZero())
				require.Equal(t, 10*fms, t.Do(t.Context(), fGet("/second")).At, "only the unlucky task backs off")
				require.NoError(t, (<-first).Err)
			})
		})
	}
}

func TestF4PauseIsBounded(t *testing.T) {
	rows := []struct {
		name   string
		retry  *ax.Retry
		header string
		want   time.Duration
	}{
		{"by MaxDelay", &ax.Retry{MaxDelay: 5 * fsec}, "3600", 5 * fsec},
		{"by the default MaxDelay", &ax.Retry{}, "3600", 30 * fsec},
		{"without Retry", nil, "3600", 30 * fsec},
		{"beyond every integer", nil, "99999999999999999999999", 30 * fsec},
		{"a date in ten years", nil, "Fri, 01 Jan 2010 00:00:00 GMT", 30 * fsec},
		{"a longer MaxDelay allows more", &ax.Retry{MaxDelay: time.Hour}, "600", 600 * fsec},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			bubble(t, ax.Config{Retry: row.retry}, func(t *tester) {
				t.Server.Reply = fOnce(429, "Retry-After: "+row.header)
				r := fGet("/")
				r.NoRetry = row.retry != nil && row.want > 30*fsec
				require.Equal(t, 429, t.Do(t.Context(), r).Status())
				require.Equal(t, row.want, t.Do(t.Context(), fGet("/")).At)
				require.Equal(t, []time.Duration{0, row.want}, t.Server.Times())
			})
		})
	}
}

func TestF4AShorterPauseDoesNotCutALongerOne(t *testing.T) {
	bubble(t, ax.Config{}, func(t *tester) {
		t.Server.Reply = fPaths(map[string]fReply{
			"/long":  fAnswer(503, "", "Retry-After: 10"),
			"/short": func(h *hit) (*http.Response, error) { h.Sleep(fsec); return reply(503, "", "Retry-After: 2"), nil },
		})
		short := t.Go(t.Context(), fGet("/short"))
		t.Until(10 * fms)
		t.Do(t.Context(), fGet("/long"))
		<-short
		require.Equal(t, 10010*fms, t.Do(t.Context(), fGet("/next")).At)
	})
}

// TestF4QueueLeavesOnARamp: a lane without a rate lets its queue go from 1 over a second.
func TestF4QueueLeavesOnARamp(t *testing.T) {
	const limit = 20
	for _, service := range []time.Duration{0, 200 * fms} {
		t.Run(service.String(), func(t *testing.T) {
			bubble(t, ax.Config{Lanes: []ax.Lane{{Name: "a", Match: []string{"a.test"}, MaxConcurrent: limit}}}, func(t *tester) {
				t.Server.Reply = fScript(fAnswer(429, "", "Retry-After: 2"), after(service, 200, ""))
				t.Do(t.Context(), fGet("/"))
				var cs []<-chan result
				for range 60 {
					cs = append(cs, t.Go(t.Context(), fGet("/")))
				}
				for _, c := range cs {
					require.Equal(t, 200, (<-c).Status())
				}
				hits := t.Server.Hits()[1:]
				require.Len(t, hits, 60)
				require.Equal(t, 2*fsec, hits[0].At, "the first leaves when the pause ends")
				for i, h := range hits {
					since := h.At - 2*fsec
					if i > 0 && since < fsec {
						require.GreaterOrEqual(t, h.At-hits[i-1].At, fsec/limit, "start %d", i)
					}
					running := 0
					for _, o := range hits[:i+1] {
						if o == h || o.End > h.At {
							running++
						}
					}
					allowed := max(1, int((since*limit+fsec-1)/fsec))
					require.LessOrEqual(t, running, min(allowed, limit), "in flight at %v", h.At)
				}
				require.LessOrEqual(t, hits[59].At, 10*fsec)
			})
		})
	}
}

func TestF4QueueLeavesAtTheLanesRate(t *testing.T) {
	bubble(t, ax.Config{Lanes: []ax.Lane{{Name: "a", Match: []string{"a.test"}, Rate: ax.PerSecond(5)}}}, func(t *tester) {
		t.Server.Reply = fOnce(503, "Retry-After: 2")
		t.Do(t.Context(), fGet("/"))
		var cs []<-chan result
		for range 20 {
			cs = append(cs, t.Go(t.Context(), fGet("/")))
		}
		for _, c := range cs {
			require.Equal(t, 200, (<-c).Status())
		}
		ts := t.Server.Times()[1:]
		require.Equal(t, 2*fsec, ts[0])
		for i := 5; i < len(ts); i++ {
			require.GreaterOrEqual(t, ts[i]-ts[i-5], fsec)
		}
		require.LessOrEqual(t, ts[19], 6*fsec)
	})
}

func TestF4AnExplicitPauseOutlastsIt(t *testing.T) {
	bubble(t, ax.Config{}, func(t *tester) {
		t.Server.Reply = fOnce(429, "Retry-After: 2")
		t.Do(t.Context(), fGet("/"))
		require.NoError(t, t.S.Pause("a.test"))
		c := t.Go(t.Context(), fGet("/"))
		t.Until(5 * fsec)
		require.Equal(t, 1, t.Server.Count())
		require.Equal(t, 1, t.S.Stats().Parked)
		require.NoError(t, t.S.Resume("a.test"))
		require.Equal(t, 5*fsec, (<-c).At)
	})
}

// TestF4WhoCannotWaitForThePauseIsToldAtOnce: the end of a pause is known [L5].
func TestF4WhoCannotWaitForThePauseIsToldAtOnce(t *testing.T) {
	bubble(t, ax.Config{}, func(t *tester) {
		t.Server.Reply = fOnce(429, "Retry-After: 5")
		t.Do(t.Context(), fGet("/"))
		ctx, cancel := context.WithTimeout(t.Context(), fsec)
		defer cancel()
		res := t.Do(ctx, fGet("/"))
		require.Zero(t, res.At)
		require.ErrorIs(t, res.Err, ax.ErrWouldExceedDeadline)
		require.ErrorIs(t, res.Err, context.DeadlineExceeded)
		require.True(t, fError(t, res.Err).Timeout())

		r := fGet("/")
		r.NoWait = true
		res = t.Do(t.Context(), r)
		require.Zero(t, res.At)
		require.ErrorIs(t, res.Err, ax.ErrWouldWait)
		require.EqualValues(t, 2, t.S.Stats().Rejected)
		require.Equal(t, 1, t.Server.Count())
	})
}

func TestF4QueueTimeoutEndsAWaitBehindAPause(t *testing.T) {
	bubble(t, ax.Config{QueueTimeout: fsec}, func(t *tester) {
		t.Server.Reply = fOnce(429, "Retry-After: 5")
		t.Do(t.Context(), fGet("/"))
		res := t.Do(t.Context(), fGet("/"))
		require.Equal(t, fsec, res.At)
		require.ErrorIs(t, res.Err, ax.ErrQueueTimeout)
	})
}

// TestCaseH12 a Retry-After beyond the cap is not clamped into a useless retry.
func TestCaseH12RetryAfterBeyondTheCap(t *testing.T) {
	bubble(t, ax.Config{Retry: &ax.Retry{Max: 5, MaxDelay: time.Minute}}, func(t *tester) {
		t.Server.Reply = fOnce(429, "Retry-After: 3600")
		res := t.Do(t.Context(), fGet("/"))
		require.NoError(t, res.Err)
		require.Zero(t, res.At)
		require.Equal(t, 429, res.Status())
		require.Equal(t, "3600", res.Resp.Header.Get("Retry-After"))
		require.Equal(t, 1, t.Server.Count())
		require.WithinDuration(t, t.start.Add(time.Minute), fLane(t).PausedUntil, 0)
		require.Equal(t, time.Minute, t.Do(t.Context(), fGet("/")).At)
	})
}

// TestCaseH13 a date is as good as seconds.
func TestCaseH13RetryAfterAsDate(t *testing.T) {
	for _, layout := range []string{http.TimeFormat, "Monday, 02-Jan-06 15:04:05 GMT", time.ANSIC} {
		for _, status := range []int{429, 503} {
			for _, name := range []string{"Retry-After", "retry-after"} {
				bubble(t, ax.Config{Retry: &ax.Retry{BaseDelay: 100 * fms}}, func(t *tester) {
					t.Until(400 * fms) // 3.4 s is written as 3 s
					date := time.Now().Add(3 * fsec).UTC().Format(layout)
					t.Server.Reply = fOnce(status, name+": "+date)
					require.Equal(t, 200, t.Do(t.Context(), fGet("/")).Status())
					waited := t.Server.Times()[1] - t.Server.Times()[0]
					require.GreaterOrEqual(t, waited, 2600*fms)
					require.LessOrEqual(t, waited, 3100*fms)
				})
			}
		}
	}
}
