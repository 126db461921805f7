// Feed is an endless list under a thumb: scrolling fires an event every 15 ms,
// and each wants the page it has come to. Without ax every event is a request
// and the pages land in the order in which the server happens to answer.
//
//	go run ./examples/feed
package main

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/axsched/ax"
	"github.com/axsched/ax/examples/internal/lab"
)

const (
	pages    = 40
	events   = 200 // five for each page
	inFlight = 3
)

func main() { lab.Run(run) }

func run(out io.Writer, p *lab.Promises) error {
	naive := backend()
	defer naive.Close()
	list := carelessly(naive.URL)
	fmt.Fprintf(out, "Without ax, %d scroll events: the server saw %v\n", events, naive.Seen())
	fmt.Fprintf(out, "  the list has %d pages, %d of them twice, %d out of order\n", len(list), twice(list), disorder(list))

	server := backend()
	defer server.Close()
	sched, err := ax.New(nil, config())
	if err != nil {
		return err
	}
	defer sched.Close()
	list, err = inOrder(sched, server.URL)
	if err != nil {
		return err
	}
	seen := server.Seen()
	fmt.Fprintf(out, "With ax, the same thumb: the server saw %v\n", seen)
	fmt.Fprintf(out, "  the list has %d pages, %d of them twice, %d out of order\n", len(list), twice(list), disorder(list))

	ended, after := leave(sched, server)
	fmt.Fprintf(out, "The reader leaves with pages 100 to 119 asked for: %d calls ended, %d requests sent afterwards\n", ended, after)

	fmt.Fprintln(out, "\nPromises, as the server and the list saw it:")
	p.Keep(seen.PeakAtOnce <= inFlight, "never more than %d pages in flight: %d", inFlight, seen.PeakAtOnce)
	p.Keep(len(list) == pages && twice(list) == 0 && disorder(list) == 0, "every page once and in order: %d pages", len(list))
	p.Keep(seen.Requests == pages, "one request for each page: %d", seen.Requests)
	p.Keep(ended == 20 && after == 0, "a list that is gone sends nothing: %d", after)
	return nil
}

func config() ax.Config {
	return ax.Config{
		Lanes:  []ax.Lane{{Name: "feed", MaxConcurrent: inFlight}},
		Dedupe: &ax.Dedupe{Window: 10 * time.Second}, // five events, one page
		Retry:  &ax.Retry{},
	}
}

// inOrder scrolls with ax. The pages arrive as the server likes; the list takes
// them in the order in which they were asked for.
func inOrder(sched *ax.Scheduler, base string) (list []int, err error) {
	calls := make(chan *ax.Call, events)
	scope := sched.Scope(context.Background())
	go scroll(func(page int) { calls <- scope.Submit(context.Background(), pageTask(base, page)) }, func() { close(calls) })
	for call := range calls {
		page, err := ax.JSON[int](call.Result())
		if err != nil {
			return nil, err
		}
		if len(list) == 0 || page != list[len(list)-1] {
			list = append(list, page)
		}
	}
	return list, nil
}

func pageTask(base string, page int) *ax.Task {
	return ax.Must(ax.Request{URL: pageURL(base, page), Lane: "feed", Priority: ax.Important}.Task())
}

// leave asks for twenty more pages and ends the list's scope while the first
// are in flight. It tells how many calls that ended, and how many requests the
// server saw afterwards.
func leave(sched *ax.Scheduler, server *lab.Backend) (ended, after int) {
	list := sched.Scope(context.Background())
	var calls []*ax.Call
	for page := 100; page < 120; page++ {
		calls = append(calls, list.Submit(context.Background(), pageTask(server.URL, page)))
	}
	time.Sleep(30 * time.Millisecond)
	list.Cancel(errors.New("the reader went to another page"))
	for _, call := range calls {
		if _, err := call.Result(); errors.Is(err, ax.ErrScopeEnded) {
			ended++
		}
	}
	time.Sleep(50 * time.Millisecond) // what was on the wire has arrived
	before := server.Seen().Requests
	time.Sleep(500 * time.Millisecond)
	return ended, server.Seen().Requests - before
}

// carelessly scrolls without ax: a request for every event, and the list takes
// what comes as it comes.
func carelessly(base string) (list []int) {
	client := &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
	got := make(chan int, events)
	scroll(func(page int) {
		go func() {
			var n int
			resp, err := client.Get(pageURL(base, page))
			if err == nil {
				_, err = fmt.Fscan(resp.Body, &n)
				err = errors.Join(err, resp.Body.Close())
			}
			if err != nil {
				n = -1
			}
			got <- n
		}()
	}, func() {})
	for range events {
		list = append(list, <-got)
	}
	return slices.DeleteFunc(list, func(n int) bool { return n < 0 })
}

// scroll calls at for every event with the page it has come to, then end.
func scroll(at func(page int), end func()) {
	defer end()
	for event := range events {
		at(event * pages / events)
		time.Sleep(15 * time.Millisecond)
	}
}

func pageURL(base string, page int) string { return fmt.Sprintf("%s/feed?page=%d", base, page) }

// backend takes between 50 and 250 ms for a page.
func backend() *lab.Backend {
	return lab.NewBackend(lab.Limit{}, func(w http.ResponseWriter, r *http.Request) {
		page := r.URL.Query().Get("page")
		select {
		case <-time.After(time.Duration(50+crc32.ChecksumIEEE([]byte(page))%200) * time.Millisecond):
			fmt.Fprint(w, page)
		case <-r.Context().Done():
		}
	})
}

// twice is how many entries of the list were there already.
func twice(list []int) int {
	pages := make(map[int]bool)
	for _, page := range list {
		pages[page] = true
	}
	return len(list) - len(pages)
}

// disorder is how many entries come after a later page.
func disorder(list []int) (n int) {
	for i := 1; i < len(list); i++ {
		if list[i] < list[i-1] {
			n++
		}
	}
	return n
}
