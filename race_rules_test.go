package ax_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/stretchr/testify/require"
)

// fEnds counts terminal events by the task's URL or by Seq, as they come.
type fEnds struct {
	mu    sync.Mutex
	byURL map[string][]ax.Event
	bySeq map[uint64][]ax.Event
}

// Add is an OnEvent.
func (e *fEnds) Add(ev ax.Event) {
	if !fTerminal(ev.Kind) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.byURL[ev.Task.URL()] = append(e.byURL[ev.Task.URL()], ev)
	e.bySeq[ev.Seq] = append(e.bySeq[ev.Seq], ev)
}

// Check tells what is wrong with the ends of one task that came to err, "" if nothing is.
func (e *fEnds) Check(ends []ax.Event, err error) string {
	if len(ends) != 1 {
		return fmt.Sprintf("%d terminal events when the caller was answered", len(ends))
	}
	end, want := ends[0], ax.EventSucceeded
	if err != nil {
		want = ax.EventCanceled
	}
	if end.Kind != want {
		return fmt.Sprintf("the event says %v, the caller heard %v", end.Kind, err)
	}
	for _, s := range []error{ax.ErrCanceledByTag, ax.ErrSuperseded, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(end.Err, s) != errors.Is(err, s) {
			return fmt.Sprintf("the event's error is %v, the caller's %v", end.Err, err)
		}
	}
	return ""
}

// URL checks a task by its URL.
func (e *fEnds) URL(url string, err error) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.Check(e.byURL[url], err)
}

// Seq checks a task by its number.
func (e *fEnds) Seq(seq uint64, err error) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.Check(e.bySeq[seq], err)
}

// TestX2OneEndHoweverManyEndsAreAimedAtOneInstant aims answer, cancel, tag cancel,
// supersede and deadline at the same nanosecond, for 20,000 tasks. Each gets exactly
// one terminal event, before its caller is answered and equal to that answer.
func TestX2OneEndHoweverManyEndsAreAimedAtOneInstant(t *testing.T) {
	const batches, size, aim = 40, 500, 10 * fms
	for _, mode := range []string{"Do", "Call", "shared"} {
		t.Run(mode, func(t *testing.T) {
			ends := &fEnds{byURL: map[string][]ax.Event{}, bySeq: map[uint64][]ax.Event{}}
			cfg := ax.Config{MaxConcurrent: ax.NoLimit, MaxQueue: ax.NoLimit, OnEvent: ends.Add}
			n := batches * size
			if mode == "shared" {
				cfg.Dedupe = &ax.Dedupe{}
			}
			if mode != "Do" {
				n /= 4
			}
			bubble(t, cfg, func(t *tester) {
				t.Server.Reply = func(h *hit) (*http.Response, error) {
					if h.URL.Path == "/newer" {
						return reply(200, ""), nil
					}
					return after(aim, 200, "x")(h)
				}
				var wg sync.WaitGroup
				for batch := range n / size {
					tag, begin := "b"+strconv.Itoa(batch), time.Now()
					for i := range size {
						bits := (batch*size + i) % 16 // which of the four ends are aimed at this one; the answer always is
						path := fmt.Sprintf("/t%d-%d", batch, i)
						if mode == "shared" {
							path = fmt.Sprintf("/t%d-%d", batch, i/8)
						}
						r := ax.Request{URL: at(path), Supersede: "s" + strconv.Itoa(batch*size+i)}
						ctx, cancel := context.WithCancel(t.Context())
						stop := context.CancelFunc(func() {})
						if bits&1 != 0 {
							time.AfterFunc(aim, cancel)
						}
						if bits&2 != 0 {
							r.Tags = []string{tag}
						}
						if bits&4 != 0 {
							ctx, stop = context.WithTimeout(ctx, aim)
						}
						if bits&8 != 0 {
							wg.Go(func() {
								time.Sleep(aim)
								newer := ax.Must(ax.Request{URL: at("/newer"), NoDedupe: true, Supersede: r.Supersede}.Task())
								t.S.Submit(t.Context(), newer).Discard()
							})
						}
						task := ax.Must(r.Task())
						wg.Go(func() {
							defer cancel()
							defer stop()
							var wrong string
							if mode == "Do" {
								_, err := t.S.Do(ctx, task)
								wrong = ends.URL(task.URL(), err)
							} else {
								c := t.S.Submit(ctx, task)
								_, err := c.Result()
								wrong = ends.Seq(c.Seq(), err)
							}
							if wrong != "" {
								t.Errorf("%s (bits %04b): %s", path, bits, wrong)
							}
							if d := time.Since(begin); d != aim {
								t.Errorf("%s (bits %04b) ended after %v", path, bits, d)
							}
						})
					}
					wg.Go(func() { time.Sleep(aim); t.S.CancelTag(tag) })
					wg.Wait()
				}
				time.Sleep(fms)
				st := t.S.Stats()
				require.Equal(t, []int{0, 0, 0}, []int{st.Active, st.Queued, st.Parked})
				require.Zero(t, st.Failed+st.Rejected)
				require.Equal(t, st.Submitted, st.Succeeded+st.Canceled)
				require.Zero(t, t.Server.Active())
				require.Positive(t, st.Succeeded)
				require.Positive(t, st.Canceled)
				ends.mu.Lock()
				defer ends.mu.Unlock()
				require.Len(t, ends.bySeq, int(st.Submitted), "one end each")
				for seq, evs := range ends.bySeq {
					require.Len(t, evs, 1, "task %d", seq)
				}
			})
		})
	}
}
