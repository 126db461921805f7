// Quota calls a third party that allows five calls a second and refuses the
// sixth, from two teams that share one key; one of them has a runaway loop.
//
//	go run ./examples/quota
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/axsched/ax"
	"github.com/axsched/ax/examples/internal/lab"
)

const (
	qps   = 5
	calls = 40
)

func main() { lab.Run(run) }

func run(out io.Writer, p *lab.Promises) error {
	naive := thirdParty()
	defer naive.Close()
	allAtOnce(naive.URL)
	fmt.Fprintf(out, "Without ax, %d calls at once: the third party saw %v\n", calls, naive.Seen())

	server := thirdParty()
	defer server.Close()
	sched, err := ax.New(nil, config())
	if err != nil {
		return err
	}
	defer sched.Close()

	start := time.Now()
	looped, refused := runawayLoop(sched, server.URL)
	answered := work(sched, server.URL)
	took := time.Since(start)
	loops, overBudget := looped(), refused()
	seen, budget := server.Seen(), sched.Stats().Owners["debug"]
	fmt.Fprintf(out, "With ax, %d calls and a loop that never stops, for %v: the third party saw %v\n", calls, took.Round(time.Millisecond), seen)
	fmt.Fprintf(out, "  team search   %d of %d calls answered\n", answered, calls)
	fmt.Fprintf(out, "  team debug    %d calls answered, %d over its budget\n", loops, overBudget)

	fmt.Fprintln(out, "\nPromises, as the third party saw it:")
	p.Keep(seen.PeakPerSecond <= qps, "never a sixth call in any second: %d", seen.PeakPerSecond)
	p.Keep(seen.Failed() == 0, "nothing was refused: %d", seen.Failed())
	p.Keep(answered == calls, "every call of team search was answered: %d", answered)
	possible := qps * int(math.Ceil(took.Seconds()))
	p.Keep(4*seen.Requests >= 3*possible, "the quota was used: %d calls, %d were possible", seen.Requests, possible)
	p.Keep(float64(budget.Started) <= took.Seconds()+1, "the loop got one call a second and no more: %d", budget.Started)
	return nil
}

// config is the whole of it: the quota of the key, and what the team with the
// loop may take of it.
func config() ax.Config {
	return ax.Config{
		Lanes: []ax.Lane{{
			Name: "maps",
			// Guard is room for calls that overtake each other on their way, and
			// for a server whose seconds begin elsewhere.
			Rate: []ax.Rate{{Limit: qps, Guard: 100 * time.Millisecond}},
		}},
		Budgets: map[string]ax.Budget{
			"debug": {Rate: ax.PerSecond(1), Over: ax.OverReject},
		},
	}
}

// work is what team search has to do: all of it at once, as from a batch.
func work(sched *ax.Scheduler, url string) int {
	pending := make([]*ax.Call, calls)
	for i := range pending {
		pending[i] = sched.Submit(context.Background(), ax.Must(ax.Request{
			URL:   fmt.Sprintf("%s/geocode?address=%d", url, i),
			Lane:  "maps",
			Owner: "search",
		}.Task()))
	}
	var answered int
	for _, call := range pending {
		if resp, err := call.Result(); err == nil && resp.StatusCode == http.StatusOK {
			answered++
		}
	}
	return answered
}

// runawayLoop asks again and again on behalf of team debug, until the first of
// its two results is asked for.
func runawayLoop(sched *ax.Scheduler, url string) (looped, refused func() int) {
	ctx, stop := context.WithCancel(context.Background())
	var loop sync.WaitGroup
	var answered, over int
	loop.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			_, err := sched.Send(ctx, ax.Request{
				URL:      fmt.Sprintf("%s/geocode?debug=%d", url, i),
				Lane:     "maps",
				Owner:    "debug",
				Priority: ax.Important,
			})
			switch {
			case err == nil:
				answered++
			case errors.Is(err, ax.ErrBudget):
				over++
				time.Sleep(time.Millisecond)
			}
		}
	})
	end := func() { stop(); loop.Wait() }
	return func() int { end(); return answered }, func() int { end(); return over }
}

// allAtOnce is the same work without ax.
func allAtOnce(url string) {
	client := &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
	var all sync.WaitGroup
	for i := range calls {
		all.Go(func() {
			if resp, err := client.Get(fmt.Sprintf("%s/geocode?address=%d", url, i)); err == nil {
				resp.Body.Close()
			}
		})
	}
	all.Wait()
}

func thirdParty() *lab.Backend {
	return lab.NewBackend(lab.Limit{PerSecond: qps}, func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(50 * time.Millisecond)
		fmt.Fprint(w, `{"lat":52.5,"lng":13.4}`)
	})
}
