package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/axsched/ax"
	"github.com/axsched/ax/examples/internal/lab"
)

// caller wants one thing at one moment.
type caller struct {
	id       int
	at       time.Duration
	priority ax.Priority
}

// answer is what a caller got, and how long that took.
type answer struct {
	caller caller
	took   time.Duration
	err    error
}

// burst is 500 callers in one second: three in five want what another one
// wants, one thing in twenty is urgent. It is the same in every run.
func burst() []caller {
	const all, things = 500, 200
	rng := rand.New(rand.NewPCG(1, 2))
	callers := make([]caller, all)
	for i := range callers {
		id := i
		if i >= things {
			id = rng.IntN(things)
		}
		priority := ax.Normal
		switch {
		case id%20 == 0:
			priority = ax.Urgent
		case id%5 == 0:
			priority = ax.Low
		}
		callers[i] = caller{id: id, at: time.Duration(rng.IntN(1000)) * time.Millisecond, priority: priority}
	}
	return callers
}

// send lets every caller come at its moment and waits for all.
func send(callers []caller, do func(caller) error) []answer {
	answers := make([]answer, len(callers))
	var all sync.WaitGroup
	for i, c := range callers {
		all.Go(func() {
			time.Sleep(c.at)
			start := time.Now()
			err := do(c)
			answers[i] = answer{caller: c, took: time.Since(start), err: err}
		})
	}
	all.Wait()
	return answers
}

// plainly is how a caller asks without ax.
func plainly(client *http.Client, url string) func(caller) error {
	return func(c caller) error {
		resp, err := client.Get(fmt.Sprintf("%s/thing?id=%d", url, c.id))
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if _, err = io.Copy(io.Discard, resp.Body); err != nil {
			return err
		}
		return status(resp)
	}
}

// through is how a caller asks with ax.
func through(sched *ax.Scheduler, url string) func(caller) error {
	return func(c caller) error {
		resp, err := sched.Send(context.Background(), ax.Request{
			URL:      fmt.Sprintf("%s/thing?id=%d", url, c.id),
			Priority: c.priority,
		})
		if err != nil {
			return err
		}
		return status(resp.Response)
	}
}

func status(resp *http.Response) error {
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return nil
}

func show(out io.Writer, seen func() lab.Seen, answers []answer) {
	fmt.Fprintf(out, "  the server saw   %v\n", seen())
	fmt.Fprintf(out, "  callers saw      %d answers, %d failures\n", len(answers)-failures(answers), failures(answers))
	for _, p := range []ax.Priority{ax.Urgent, ax.Normal, ax.Low} {
		ds := times(answers, p)
		if len(ds) == 0 {
			fmt.Fprintf(out, "  %-9v        none was answered\n", p)
			continue
		}
		fmt.Fprintf(out, "  %-9v        %3d, answered after p50 %v, p95 %v\n", p, len(ds), lab.Quantile(ds, .5), lab.Quantile(ds, .95))
	}
}

func failures(answers []answer) (n int) {
	for _, a := range answers {
		if a.err != nil {
			n++
		}
	}
	return n
}

// times are how long the callers of one priority took to be answered; those who
// failed got no answer, however quickly.
func times(answers []answer, p ax.Priority) (ds []time.Duration) {
	for _, a := range answers {
		if a.err == nil && a.caller.priority == p {
			ds = append(ds, a.took)
		}
	}
	return ds
}

func count(callers []caller, p ax.Priority) (n int) {
	for _, c := range callers {
		if c.priority == p {
			n++
		}
	}
	return n
}

func distinct(callers []caller) int {
	ids := make(map[int]bool)
	for _, c := range callers {
		ids[c.id] = true
	}
	return len(ids)
}
