package ax_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// qMany submits n equal tasks to the path of a.test.
func qMany(t *tester, n int, path string) []*ax.Call {
	rs := make([]ax.Request, n)
	for i := range rs {
		rs[i] = ax.Request{URL: at(path)}
	}
	return qSubmit(t, rs...)
}

func TestL8Defaults(t *testing.T) {
	bubble(t, ax.Config{}, func(t *tester) {
		t.Server.Reply = after(time.Second, 200, "")
		calls := qMany(t, 64+1024, "/")
		synctest.Wait()
		require.Equal(t, 64, t.Server.Active())
		require.Equal(t, 64, t.S.Stats().Active)
		require.Equal(t, 1024, t.S.Stats().Queued)
		_, err := qMany(t, 1, "/")[0].Result()
		qErr(t, err, "admit", ax.ErrQueueFull)
		qOK(t, calls...)
		require.Equal(t, 64, t.Server.Peak())
		require.Equal(t, 17*time.Second, t.At())
	})
	t.Run("NoLimit", func(t *testing.T) {
		bubble(t, ax.Config{MaxConcurrent: ax.NoLimit, MaxQueue: ax.NoLimit}, func(t *tester) {
			t.Server.Reply = after(time.Second, 200, "")
			calls := qMany(t, 1500, "/")
			synctest.Wait()
			require.Equal(t, 1500, t.Server.Active())
			require.NoError(t, t.S.Pause(""))
			calls = append(calls, qMany(t, 1500, "/")...)
			require.Equal(t, 1500, t.S.Stats().Parked)
			require.NoError(t, t.S.Resume(""))
			qOK(t, calls...)
			require.Equal(t, time.Second, t.At())
		})
	})
}

// What waits for its first start counts, parked or not; what backs off or runs does not.
func TestL8MaxQueueCountsFirstStarts(t *testing.T) {
	cfg := ax.Config{MaxConcurrent: 1, MaxQueue: 2, Retry: &ax.Retry{BaseDelay: time.Second, Jitter: ax.NoJitter}}
	bubble(t, cfg, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.N == 1 {
				return reply(503, ""), nil
			}
			return qHold(2 * time.Second)(h)
		}
		retried := qMany(t, 1, "/retried")
		synctest.Wait()
		hold := qMany(t, 1, "/hold")
		synctest.Wait()
		require.NoError(t, t.S.Pause("b.test"))
		parked := qSubmit(t, ax.Request{URL: "http://b.test/parked"})
		queued := qMany(t, 1, "/queued")
		full := func() {
			_, err := qMany(t, 1, "/refused")[0].Result()
			qErr(t, err, "admit", ax.ErrQueueFull)
		}
		full()
		st := t.S.Stats()
		require.Equal(t, []int{1, 1, 2}, []int{st.Active, st.Queued, st.Parked}, "backoff and pause are parked")
		t.Until(1500 * qms) // the retry has entered the full queue
		full()
		parked[0].Cancel()
		synctest.Wait()
		late := qMany(t, 1, "/late")
		full()
		qOK(t, retried[0], hold[0], queued[0], late[0])
		require.Equal(t, []string{"/retried", "/hold", "/retried", "/queued", "/late"}, t.Server.Paths())
	})
}

// QueueTimeout bounds each wait: from submission, and again from the end of each backoff.
func TestL8QueueTimeout(t *testing.T) {
	cfg := ax.Config{MaxConcurrent: 1, QueueTimeout: time.Second, Retry: &ax.Retry{BaseDelay: 2 * time.Second, Jitter: ax.NoJitter}}
	tests := []struct {
		name string
		hold time.Duration
		at   time.Duration // when the retried task ends
		want int
	}{
		{"the wait after the backoff is short enough", 2500 * qms, 2500 * qms, 200},
		{"the wait after the backoff is too long", time.Minute, 3 * time.Second, 503},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, cfg, func(t *tester) {
				t.Server.Reply = func(h *hit) (*http.Response, error) {
					if h.N == 1 {
						return reply(503, ""), nil
					}
					return qHold(tt.hold)(h)
				}
				retried := t.Go(t.Context(), ax.Request{URL: at("/")})
				synctest.Wait()
				hold := qMany(t, 1, "/hold")
				synctest.Wait()
				first := t.Do(t.Context(), ax.Request{URL: at("/waits")})
				require.Equal(t, time.Second, first.At)
				e := qErr(t, first.Err, "queue", ax.ErrQueueTimeout)
				require.True(t, e.Timeout())
				require.NotErrorIs(t, e, context.Canceled)
				require.Equal(t, uint64(1), t.S.Stats().Rejected)
				r := <-retried
				require.NoError(t, r.Err)
				require.Equal(t, tt.want, r.Status())
				require.Equal(t, tt.at, r.At)
				if tt.want == 503 {
					require.ErrorIs(t, r.Resp.Cause, ax.ErrQueueTimeout)
				}
				qOK(t, hold...)
			})
		})
	}
}

// A changed rate remembers the starts that were.
func TestL8SetLimitsKeepsTheHistory(t *testing.T) {
	const s = time.Second
	for _, lane := range []string{"", "a.test"} {
		tests := []struct {
			name string
			rate []ax.Rate
			want []time.Duration // of six more
		}{
			{"the same", ax.PerSecond(5), append(qRepeat(s, 5), 2*s)},
			{"higher", ax.PerSecond(7), append(qRepeat(500*qms, 2), qRepeat(s, 4)...)},
			{"lower", ax.PerSecond(2), []time.Duration{s, s, 2 * s, 2 * s, 3 * s, 3 * s}},
			{"longer", []ax.Rate{{Limit: 5, Per: 10 * s}}, append(qRepeat(10*s, 5), 20*s)},
			{"smooth", []ax.Rate{{Limit: 5, Smooth: true}}, qEvery(s, 200*qms, 6)},
			{"none", ax.Unlimited(), qRepeat(500*qms, 6)},
			{"left alone", nil, append(qRepeat(s, 5), 2*s)},
		}
		for _, tt := range tests {
			t.Run("lane "+lane+"/"+tt.name, func(t *testing.T) {
				cfg := ax.Config{Rate: ax.PerSecond(5)}
				if lane != "" {
					cfg = ax.Config{Hosts: &ax.Lane{Rate: ax.PerSecond(5)}}
				}
				bubble(t, cfg, func(t *tester) {
					qOK(t, qMany(t, 5, "/")...)
					t.Until(500 * qms)
					calls := qMany(t, 6, "/")
					require.NoError(t, t.S.SetLimits(lane, ax.Limits{Rate: tt.rate}))
					qOK(t, calls...)
					require.Equal(t, append(qRepeat(0, 5), tt.want...), t.Server.Times())
				})
			})
		}
	}
}

// A field left zero keeps what is in force; the change admits at once.
func TestL8SetLimitsIsLive(t *testing.T) {
	const s = time.Second
	for _, lane := range []string{"", "a.test"} {
		t.Run("lane "+lane, func(t *testing.T) {
			cfg := ax.Config{MaxConcurrent: 1, MaxQueue: 3}
			if lane != "" {
				cfg = ax.Config{Hosts: &ax.Lane{MaxConcurrent: 1, MaxQueue: 3}}
			}
			bubble(t, cfg, func(t *tester) {
				t.Server.Reply = after(10*s, 200, "")
				calls := qMany(t, 4, "/")
				t.Until(s)
				require.NoError(t, t.S.SetLimits(lane, ax.Limits{MaxConcurrent: 3}))
				synctest.Wait()
				require.Equal(t, []time.Duration{0, s, s}, t.Server.Times())
				calls = append(calls, qMany(t, 2, "/")...)
				_, err := qMany(t, 1, "/")[0].Result()
				qErr(t, err, "admit", ax.ErrQueueFull) // three may still wait
				require.NoError(t, t.S.SetLimits(lane, ax.Limits{MaxQueue: 4}))
				calls = append(calls, qMany(t, 1, "/")...)
				_, err = qMany(t, 1, "/")[0].Result()
				qErr(t, err, "admit", ax.ErrQueueFull)
				require.NoError(t, t.S.SetLimits(lane, ax.Limits{MaxQueue: 1, MaxConcurrent: 1}))
				synctest.Wait()
				require.Equal(t, 3, t.Server.Active(), "nothing is killed")
				require.Equal(t, 4, t.S.Stats().Queued, "nobody who waits is thrown out")
				qOK(t, calls...)
				require.Equal(t, []time.Duration{0, s, s, 11 * s, 21 * s, 31 * s, 41 * s}, t.Server.Times())
			})
		})
	}
}

func TestL8LaneNames(t *testing.T) {
	known := []string{"", "batch", "a.test", "unseen.test", "localhost", "localhost:8080", "10.0.0.1", "127.0.0.1:80", "host:8080", "[::1]:8080"}
	unknown := []string{"nope", "batch2", " "}
	bubble(t, ax.Config{Lanes: []ax.Lane{{Name: "batch"}}}, func(t *tester) {
		calls := map[string]func(string) error{
			"SetLimits": func(lane string) error { return t.S.SetLimits(lane, ax.Limits{MaxConcurrent: 2}) },
			"Pause":     t.S.Pause,
			"Resume":    t.S.Resume,
		}
		for name, call := range calls {
			for _, lane := range known {
				require.NoError(t, call(lane), "%s(%q)", name, lane)
			}
			for _, lane := range unknown {
				require.ErrorContains(t, call(lane), lane, "%s(%q)", name, lane)
				require.NotContains(t, t.S.Stats().Lanes, lane)
			}
		}
	})
}

// Limits of a host that nobody has asked for yet wait for it.
func TestL8SetLimitsOfAnUnseenHost(t *testing.T) {
	bubble(t, ax.Config{}, func(t *tester) {
		require.NoError(t, t.S.SetLimits("a.test", ax.Limits{MaxConcurrent: 1, MaxQueue: 1}))
		t.Until(24 * time.Hour)
		t.Server.Reply = after(time.Second, 200, "")
		calls := qMany(t, 3, "/")
		_, err := calls[2].Result()
		qErr(t, err, "admit", ax.ErrQueueFull)
		qOK(t, calls[:2]...)
		require.Equal(t, qEvery(24*time.Hour, time.Second, 2), t.Server.Times())
	})
}

func TestL8SetLimitsRefusesNonsense(t *testing.T) {
	bad := map[string]ax.Limits{
		"MaxConcurrent": {MaxConcurrent: -1},
		"MaxQueue":      {MaxQueue: -1},
		"Rate[0].Limit": {Rate: []ax.Rate{{Limit: 0}}},
		"Rate[1].Per":   {Rate: []ax.Rate{{Limit: 1}, {Limit: 1, Per: -1}}},
		"Rate[0].Burst": {Rate: []ax.Rate{{Limit: 1, Burst: -1}}},
		"Rate[0].Guard": {Rate: []ax.Rate{{Limit: 1, Guard: -1}}},
	}
	bubble(t, ax.Config{MaxConcurrent: 1, MaxQueue: 1}, func(t *tester) {
		for field, l := range bad {
			if l.MaxConcurrent == 0 {
				l.MaxConcurrent = 10 // must not come into force beside the error
			}
			for _, lane := range []string{"", "a.test"} {
				require.ErrorContains(t, t.S.SetLimits(lane, l), field)
			}
		}
		t.Server.Reply = after(time.Second, 200, "")
		qOK(t, qMany(t, 2, "/")...)
		require.Equal(t, qEvery(0, time.Second, 2), t.Server.Times())
	})
}

// Paused work waits and what runs goes on; both pauses have to end.
func TestL8Pause(t *testing.T) {
	const s = time.Second
	ev := &fEvents{}
	bubble(t, ax.Config{OnEvent: ev.Add}, func(t *tester) {
		t.Server.Reply = qHold(5 * s)
		running := qMany(t, 1, "/hold")
		synctest.Wait()
		require.NoError(t, t.S.Pause("a.test"))
		require.NoError(t, t.S.Pause("a.test")) // again changes nothing
		require.NoError(t, t.S.Pause(""))
		require.NoError(t, t.S.Pause(""))
		calls := append(qMany(t, 2, "/a"), qSubmit(t, ax.Request{URL: "http://b.test/b"})...)
		synctest.Wait()
		st := t.S.Stats()
		require.Equal(t, []int{1, 0, 3}, []int{st.Active, st.Queued, st.Parked})
		t.Until(s)
		require.NoError(t, t.S.Resume(""))
		qOK(t, calls[2])
		require.Equal(t, s, t.At())
		t.Until(6 * s)
		require.True(t, qDone(running[0]))
		require.False(t, qDone(calls[0]))
		require.NoError(t, t.S.Resume("a.test"))
		require.NoError(t, t.S.Resume("a.test"))
		qOK(t, append(calls, running...)...)
		require.Equal(t, []time.Duration{0, s, 6 * s, 6 * s}, t.Server.Times())
		var told []string
		for _, e := range ev.Of(ax.EventLanePaused, ax.EventLaneResumed) {
			told = append(told, e.Kind.String()+" "+e.Lane)
		}
		require.Equal(t, []string{"lane-paused a.test", "lane-paused ", "lane-resumed ", "lane-resumed a.test"}, told, "with no name: all")
	})
	t.Run("a pause ends waiters only by their own ends", func(t *testing.T) {
		bubble(t, ax.Config{}, func(t *tester) {
			require.NoError(t, t.S.Pause("a.test"))
			timed := t.Go(t.Context(), ax.Request{URL: at("/"), QueueTimeout: s})
			call := qMany(t, 1, "/")[0]
			r := <-timed
			require.Equal(t, s, r.At)
			qErr(t, r.Err, "queue", ax.ErrQueueTimeout)
			call.Cancel()
			_, err := call.Result()
			qErr(t, err, "queue", context.Canceled)
			require.Equal(t, s, t.At())
			require.Zero(t, t.S.Stats().Parked)
		})
	})
}

// NoWait starts at once or fails at once, and a failure takes nothing.
func TestL8NoWait(t *testing.T) {
	const s = time.Second
	tests := []struct {
		name  string
		cfg   ax.Config
		block func(*tester)
	}{
		{"scheduler's gate", ax.Config{MaxConcurrent: 1}, func(*tester) {}},
		{"lane's gate", ax.Config{Hosts: &ax.Lane{MaxConcurrent: 1}}, func(*tester) {}},
		{"scheduler's rate", ax.Config{Rate: []ax.Rate{{Limit: 1, Per: 5 * s}}}, func(*tester) {}},
		{"lane's rate", ax.Config{Hosts: &ax.Lane{Rate: []ax.Rate{{Limit: 1, Per: 5 * s}}}}, func(*tester) {}},
		{"pause", ax.Config{}, func(t *tester) {
			require.NoError(t, t.S.Pause("a.test"))
			time.AfterFunc(4*s, func() { _ = t.S.Resume("a.test") })
		}},
		{"pause of everything", ax.Config{}, func(t *tester) {
			require.NoError(t, t.S.Pause(""))
			time.AfterFunc(4*s, func() { _ = t.S.Resume("") })
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, tt.cfg, func(t *tester) {
				t.Server.Reply = qHold(5 * s)
				hold := qMany(t, 1, "/hold")
				synctest.Wait()
				tt.block(t)
				t.Until(s)
				r := t.Do(t.Context(), ax.Request{URL: at("/nowait"), NoWait: true, Priority: ax.Urgent})
				require.Equal(t, s, r.At)
				require.False(t, qErr(t, r.Err, "admit", ax.ErrWouldWait).Timeout())
				require.Equal(t, uint64(1), t.S.Stats().Rejected)
				r = t.Do(ax.ContextWith(t.Context(), ax.Hints{NoWait: true}), ax.Request{URL: at("/nowait")})
				qErr(t, r.Err, "admit", ax.ErrWouldWait)
				t.Until(5*s + 1)
				require.Equal(t, 200, t.Do(t.Context(), ax.Request{URL: at("/nowait"), NoWait: true}).Status())
				require.Equal(t, []time.Duration{0, 5*s + 1}, t.Server.Times())
				qOK(t, hold...)
			})
		})
	}
	t.Run("waiters of another lane are no reason to wait", func(t *testing.T) {
		bubble(t, ax.Config{Hosts: &ax.Lane{MaxConcurrent: 1}}, func(t *tester) {
			t.Server.Reply = qHold(s)
			calls := append(qMany(t, 1, "/hold"), qMany(t, 5, "/")...)
			require.Equal(t, 200, t.Do(t.Context(), ax.Request{URL: "http://b.test/", NoWait: true, Priority: ax.Low}).Status())
			require.Zero(t, t.At())
			qOK(t, calls...)
		})
	})
	t.Run("a full queue is no reason either", func(t *testing.T) {
		bubble(t, ax.Config{MaxQueue: 1}, func(t *tester) {
			require.NoError(t, t.S.Pause("a.test"))
			qMany(t, 1, "/")
			require.Equal(t, 200, t.Do(t.Context(), ax.Request{URL: "http://b.test/", NoWait: true}).Status())
			require.Equal(t, 200, t.Do(t.Context(), ax.Request{URL: "http://b.test/"}).Status())
		})
	})
}

// The same settings from many goroutines at once, while work goes through, lose nothing.
func TestL8ControlsUnderLoad(t *testing.T) {
	bubble(t, ax.Config{MaxConcurrent: 4, MaxQueue: ax.NoLimit}, func(t *tester) {
		t.Server.Reply = after(qms, 200, "")
		stop := make(chan struct{})
		for i := range 8 {
			go func() {
				for n := i; ; n++ {
					select {
					case <-stop:
						return
					case <-time.After(time.Duration(1+i) * qms / 2):
					}
					lane := []string{"", "a.test"}[n%2]
					switch n % 4 {
					case 0, 1:
						_ = t.S.SetLimits(lane, ax.Limits{MaxConcurrent: 1 + n%4})
					case 2:
						_ = t.S.Pause(lane)
						_ = t.S.Resume(lane)
					default:
						t.S.Stats()
					}
				}
			}()
		}
		qOK(t, qMany(t, 2000, "/")...)
		close(stop)
		synctest.Wait()
		require.NoError(t, t.S.Resume(""))
		require.NoError(t, t.S.Resume("a.test"))
		require.LessOrEqual(t, t.Server.Peak(), 4)
	})
}
