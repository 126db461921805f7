package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/axsched/ax"
)

// outcome is what became of one click.
type outcome string

const (
	bought      outcome = "bought"
	soldOut     outcome = "sold out"
	doubleClick outcome = "second click refused"
	failed      outcome = "failed"
)

// click is one press of the button.
type click func(buyer int) outcome

// rush lets every buyer press twice, 80 ms apart, and counts what came of it.
func rush(press click) map[outcome]int {
	var mu sync.Mutex
	var all sync.WaitGroup
	result := make(map[outcome]int)
	for buyer := range buyers {
		for again := range 2 {
			all.Go(func() {
				time.Sleep(time.Duration(again) * 80 * time.Millisecond)
				got := press(buyer)
				mu.Lock()
				defer mu.Unlock()
				result[got]++
			})
		}
	}
	all.Wait()
	return result
}

// through presses the button with ax. Once the shop says that it is sold out,
// nobody else needs to ask; orders that are under way get their answer first.
func through(sched *ax.Scheduler, base string) click {
	const sale = "sale"
	var closing sync.Once
	return func(buyer int) outcome {
		resp, err := sched.Send(context.Background(), ax.Request{
			Method:         http.MethodPost,
			URL:            orderURL(base, buyer),
			IdempotencyKey: fmt.Sprintf("sale-%d", buyer), // a retry is the same order
			Cooldown:       2 * time.Second,               // a second click is not
			Tags:           []string{sale},
		})
		switch {
		case errors.Is(err, ax.ErrCooldown):
			return doubleClick
		case errors.Is(err, ax.ErrCanceledByTag):
			return soldOut
		case err != nil:
			return failed
		case resp.StatusCode == http.StatusGone:
			closing.Do(func() { time.AfterFunc(500*time.Millisecond, func() { sched.CancelTag(sale) }) })
		}
		return outcomeOf(resp.StatusCode)
	}
}

// plainly presses it without.
func plainly(base string) click {
	client := &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
	return func(buyer int) outcome {
		resp, err := client.Post(orderURL(base, buyer), "", nil)
		if err != nil {
			return failed
		}
		defer resp.Body.Close()
		return outcomeOf(resp.StatusCode)
	}
}

func orderURL(base string, buyer int) string { return fmt.Sprintf("%s/order?buyer=%d", base, buyer) }

func outcomeOf(status int) outcome {
	switch status {
	case http.StatusOK:
		return bought
	case http.StatusGone:
		return soldOut
	}
	return failed
}

func report(out io.Writer, s *shop, result map[outcome]int) {
	fmt.Fprintf(out, "  the shop saw %v\n", s.Seen())
	fmt.Fprintf(out, "  %d orders from %d people\n", s.ordered(), s.people())
	for _, o := range []outcome{bought, soldOut, doubleClick, failed} {
		fmt.Fprintf(out, "  %4d clicks: %s\n", result[o], o)
	}
}
