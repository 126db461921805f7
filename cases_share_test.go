package ax_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// TestCaseH01FirstCallersCancel hurts nobody else.
func TestCaseH01FirstCallersCancel(t *testing.T) {
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{}}, func(t *tester) {
		t.Server.Reply = after(200*dms, 200, "")
		ctx, cancel := context.WithCancel(dBG)
		a := t.Go(ctx, dGet("/x"))
		b, c := t.GoAt(5*dms, dBG, dGet("/x")), t.GoAt(5*dms, dBG, dGet("/x"))
		t.Until(20 * dms)
		cancel()
		r := <-a
		require.ErrorIs(t, r.Err, context.Canceled)
		require.Equal(t, 20*dms, r.At)
		for _, ch := range []<-chan result{b, c} {
			r = <-ch
			require.Equal(t, 200, r.Status())
			require.Equal(t, 200*dms, r.At)
		}
		require.Equal(t, 1, t.Server.Count())
		require.False(t, t.Server.Hits()[0].Canceled)
	})
}

// TestCaseH02ReferenceCounting: the flight lives as long as its last caller.
func TestCaseH02ReferenceCounting(t *testing.T) {
	for _, allLeave := range []bool{false, true} {
		bubble(t, ax.Config{Dedupe: &ax.Dedupe{}}, func(t *tester) {
			t.Server.Reply = after(300*dms, 200, "")
			ctx, leave := context.WithCancel(dBG)
			defer leave()
			a, b := t.Go(ctx, dGet("/x")), t.Go(ctx, dGet("/x"))
			t.Until(10 * dms)
			short, cancel := context.WithTimeout(ctx, 50*dms)
			defer cancel()
			c := t.Do(short, dGet("/x"))
			require.ErrorIs(t, c.Err, context.DeadlineExceeded)
			require.Equal(t, 60*dms, c.At)
			d := t.GoAt(100*dms, ctx, dGet("/x"))
			t.Until(119 * dms)
			require.NoError(t, t.Server.Hits()[0].Context().Err(), "not before the last one leaves")
			if allLeave {
				t.Until(120 * dms)
				leave()
			}
			for _, ch := range []<-chan result{a, b, d} {
				r := <-ch
				if allLeave {
					require.ErrorIs(t, r.Err, context.Canceled)
					require.Equal(t, 120*dms, r.At)
				} else {
					require.Equal(t, 200, r.Status())
					require.Equal(t, 300*dms, r.At)
				}
			}
			synctest.Wait()
			require.Equal(t, 1, t.Server.Count())
			require.Equal(t, allLeave, t.Server.Hits()[0].Canceled)
		})
	}
}

// TestCaseH03Identity: callers that could be told apart are, and each has the
// answer to its own request.
func TestCaseH03Identity(t *testing.T) {
	for _, header := range []string{"Authorization", "Cookie", "If-None-Match", "Range", "Accept"} {
		bubble(t, ax.Config{Dedupe: &ax.Dedupe{Window: time.Hour}}, func(t *tester) {
			t.Server.Reply = func(h *hit) (*http.Response, error) {
				h.Sleep(100 * dms)
				return reply(200, h.Header.Get(header)), nil
			}
			one := t.Go(dBG, ax.Request{URL: at("/x"), Header: dHeader(header, "one")})
			two := t.Go(dBG, ax.Request{URL: at("/x"), Header: dHeader(header, "two")})
			require.Equal(t, "one", dText(t, (<-one).Resp.Response))
			require.Equal(t, "two", dText(t, (<-two).Resp.Response))
			require.Equal(t, 2, t.Server.Count(), header)
		})
	}
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{}}, func(t *tester) {
		t.Server.Reply = after(100*dms, 200, "")
		post := ax.Request{Method: "POST", URL: at("/x"), Body: []byte("same")}
		chans := []<-chan result{t.Go(dBG, post), t.Go(dBG, post), t.Go(dBG, dGet("/x?a=1&b=2")), t.Go(dBG, dGet("/x?b=2&a=1"))}
		for _, c := range chans {
			require.Equal(t, 200, (<-c).Status())
		}
		require.Equal(t, 3, t.Server.Count(), "two POSTs, one GET")
	})
}

// TestCaseH04EachReadsItsOwnBody of a mebibyte with a trailer, over loopback.
func TestCaseH04EachReadsItsOwnBody(t *testing.T) {
	want := strings.Repeat("0123456789abcdef", 1<<16)
	var s *ax.Scheduler
	s, srv := dLoop(t, ax.Config{Dedupe: &ax.Dedupe{}}, false, func(w http.ResponseWriter, r *http.Request) {
		for s.Stats().Coalesced < 7 && r.Context().Err() == nil {
			dPause(r.Context(), dms)
		}
		w.Header().Set("Trailer", "X-After")
		w.Header().Set("X-A", "1")
		w.WriteHeader(203)
		io.WriteString(w, want)
		w.Header().Set("X-After", "after")
	})
	var calls []*ax.Call
	for range 8 {
		calls = append(calls, s.Submit(dBG, ax.Must(ax.Request{URL: srv.URL}.Task())))
	}
	var wg sync.WaitGroup
	for i, c := range calls {
		resp, err := c.Result()
		require.NoError(t, err)
		switch i {
		case 0:
			resp.Header.Set("X-A", "changed")
			resp.Header.Del("Date")
			resp.Trailer.Set("X-After", "changed")
			b, err := resp.Bytes()
			require.NoError(t, err)
			clear(b)
		case 1:
			require.NoError(t, resp.Body.Close())
		default:
			wg.Go(func() {
				b, err := io.ReadAll(resp.Body)
				if err != nil || string(b) != want {
					t.Errorf("caller %d: %d bytes, %v", i, len(b), err)
				}
				clear(b)
			})
			require.Equal(t, 203, resp.StatusCode)
			require.Equal(t, "1", resp.Header.Get("X-A"))
			require.NotEmpty(t, resp.Header.Get("Date"))
			require.Equal(t, "HTTP/1.1", resp.Proto)
			require.Equal(t, "after", resp.Trailer.Get("X-After"))
		}
	}
	wg.Wait()
	require.EqualValues(t, 1, s.Stats().Attempts)
}

// TestCaseH05PanicOrGoexit in a shared call reaches all, and poisons nothing.
func TestCaseH05PanicOrGoexit(t *testing.T) {
	for name, blow := range map[string]func(){"panic": func() { panic("kaboom") }, "Goexit": runtime.Goexit} {
		cfg := ax.Config{MaxConcurrent: 1, Rate: []ax.Rate{{Limit: 2, Per: time.Hour}}, Dedupe: &ax.Dedupe{}}
		bubble(t, cfg, func(t *tester) {
			t.Server.Reply = func(h *hit) (*http.Response, error) {
				h.Sleep(20 * dms)
				if h.N == 1 {
					blow()
				}
				return reply(200, ""), nil
			}
			var calls []*ax.Call
			for range 6 {
				calls = append(calls, t.S.Submit(dBG, ax.Must(dGet("/x").Task())))
			}
			for _, c := range calls {
				resp, err := c.Result()
				require.Error(t, err, name)
				require.Nil(t, resp)
				require.Equal(t, 20*dms, t.At())
			}
			got := t.Do(dBG, dGet("/x"))
			require.Equal(t, 200, got.Status(), name)
			require.Equal(t, 40*dms, got.At)
			require.Equal(t, 2, t.Server.Count())
		})
	}
}

// TestCaseH06FinishedFlights are not joinable: who calls after a failure calls anew.
func TestCaseH06FinishedFlights(t *testing.T) {
	rounds := 10_000
	if testing.Short() {
		rounds = 500
	}
	boom := errors.New("reset by peer")
	exec := &dCount{reply: func(n int) (*http.Response, error) {
		if n%2 == 1 {
			return nil, boom
		}
		return reply(200, ""), nil
	}}
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{}, Executor: exec}, func(t *tester) {
		task := ax.Must(dGet("/x").Task())
		for range rounds {
			_, err := t.S.Do(dBG, task)
			require.ErrorIs(t, err, boom)
			_, err = t.S.Do(dBG, task)
			require.NoError(t, err)
		}
		require.Equal(t, 2*rounds, exec.Count())
	})
	bubble(t, ax.Config{Dedupe: &ax.Dedupe{Window: 100 * dms}}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			h.Sleep(10 * dms)
			if h.N == 1 {
				return nil, boom
			}
			return reply(200, ""), nil
		}
		var chans []<-chan result
		for range 6 {
			chans = append(chans, t.Go(dBG, dGet("/x")))
		}
		for _, c := range chans {
			require.ErrorIs(t, (<-c).Err, boom)
		}
		require.Equal(t, ax.FromNetwork, t.Do(dBG, dGet("/x")).Resp.Source)
		t.Until(119 * dms)
		require.Equal(t, ax.FromWindow, t.Do(dBG, dGet("/x")).Resp.Source)
		t.Until(121 * dms)
		require.Equal(t, ax.FromNetwork, t.Do(dBG, dGet("/x")).Resp.Source)
		require.Equal(t, 3, t.Server.Count())
	})
}

// dCount is an executor that keeps nothing but the number of its calls.
type dCount struct {
	mu    sync.Mutex
	n     int
	reply func(n int) (*http.Response, error)
}

func (c *dCount) Execute(context.Context, *ax.Task) (*http.Response, error) {
	c.mu.Lock()
	c.n++
	n := c.n
	c.mu.Unlock()
	return c.reply(n)
}

func (c *dCount) Count() int { c.mu.Lock(); defer c.mu.Unlock(); return c.n }

// TestCaseH27HandOverMeetsCancel: no slot is lost and none is minted.
func TestCaseH27HandOverMeetsCancel(t *testing.T) {
	waves := 10
	if testing.Short() {
		waves = 1
	}
	rng := rand.New(rand.NewPCG(27, 27))
	bubble(t, ax.Config{MaxConcurrent: 4, MaxQueue: ax.NoLimit}, func(t *tester) {
		t.Server.Reply = func(h *hit) (*http.Response, error) {
			if h.URL.Path == "/block" {
				return after(50*dms, 200, "")(h)
			}
			if err := h.Sleep(dms); err != nil {
				return nil, err
			}
			switch h.N % 7 {
			case 0:
				return reply(404, ""), nil
			case 1:
				return reply(500, ""), nil
			case 2:
				panic("kaboom")
			}
			return reply(200, ""), nil
		}
		for range waves {
			var wg sync.WaitGroup
			for i := range 1000 {
				life := time.Duration(rng.IntN(5_001)) * time.Microsecond
				if i%50 == 0 {
					life = time.Minute
				}
				wg.Go(func() {
					defer func() { recover() }()
					ctx, cancel := context.WithTimeout(dBG, life)
					defer cancel()
					t.S.Do(ctx, ax.Must(dGet("/x").Task()))
				})
			}
			wg.Wait()
		}
		require.LessOrEqual(t, t.Server.Peak(), 4)
		st := t.S.Stats()
		require.Zero(t, st.Active)
		require.Zero(t, st.Queued)
		before, start := t.Server.Count(), t.At()
		var chans []<-chan result
		for range 4 {
			chans = append(chans, t.Go(dBG, dGet("/block")))
		}
		synctest.Wait()
		require.Equal(t, before+4, t.Server.Count(), "all four slots are there")
		for _, c := range chans {
			require.Equal(t, start+50*dms, (<-c).At)
		}
	})
}

// TestManyCallersOfOneKey: one request, each with a body of its own. The race
// detector allows fewer goroutines.
func TestManyCallersOfOneKey(t *testing.T) {
	n := 10_000
	if dRace || testing.Short() {
		n = 3_000
	}
	bubble(t, ax.Config{MaxConcurrent: 1, MaxQueue: 1, Dedupe: &ax.Dedupe{}}, func(t *tester) {
		t.Server.Reply = after(time.Second, 200, "a body for each")
		texts := make(chan string, n)
		task := ax.Must(dGet("/x").Task())
		for range n {
			go func() {
				resp, err := t.S.Do(dBG, task)
				if err != nil {
					texts <- err.Error()
					return
				}
				b, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				texts <- fmt.Sprint(string(b), err)
			}()
		}
		for range n {
			require.Equal(t, "a body for each<nil>", <-texts)
		}
		require.Equal(t, time.Second, t.At())
		require.Equal(t, 1, t.Server.Count())
		st := t.S.Stats()
		require.EqualValues(t, n-1, st.Coalesced)
		require.EqualValues(t, n, st.Succeeded)
		require.EqualValues(t, 1, st.Attempts)
	})
}
