// Suggest is a search box under a typing storm: twenty people type, every
// keystroke asks for suggestions, and some words are answered slowly, so that
// old answers come after new ones. Without ax they are painted over them.
//
//	go run ./examples/suggest
package main

import (
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/axsched/ax"
	"github.com/axsched/ax/examples/internal/lab"
)

func main() { lab.Run(run) }

func run(out io.Writer, p *lab.Promises) error {
	naive := backend()
	defer naive.Close()
	plain := typing(out, "Without ax, every keystroke is sent:", naive, plainly(naive.URL))

	gated := backend()
	defer gated.Close()
	sched, err := ax.New(nil, ax.Config{
		Dedupe: &ax.Dedupe{Window: 5 * time.Second},
		Lanes: []ax.Lane{{
			Name:          "suggest",
			MaxConcurrent: 3,
			Rate:          []ax.Rate{{Limit: 20, Smooth: true}},
		}},
	})
	if err != nil {
		return err
	}
	defer sched.Close()
	calm := typing(out, "\nWith ax, the newest word of each box wins:", gated, through(sched, gated.URL))

	fmt.Fprintln(out, "\nPromises, as the server and the boxes saw it:")
	sent, typed := gated.Seen().Requests, calm.keystrokes
	p.Keep(sent*10 <= typed*3, "at least 70%% fewer requests than keystrokes: %d of %d (%.0f%% fewer)",
		sent, typed, 100-100*float64(sent)/float64(typed))
	p.Keep(calm.wrong == 0, "the last word always won: %d boxes show another one, without ax %d", calm.wrong, plain.wrong)
	p.Keep(calm.backwards == 0, "no box ever went back to an older word: %d times, without ax %d", calm.backwards, plain.backwards)
	return nil
}

// ask hands in one word of one page's box and returns what waits for its answer.
type ask func(page *page, word string) (answer func() (string, error))

// plainly sends every keystroke.
func plainly(base string) ask {
	client := &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
	return func(_ *page, word string) func() (string, error) {
		return func() (string, error) {
			resp, err := client.Get(suggestURL(base, word))
			if err != nil {
				return "", err
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			return string(body), err
		}
	}
}

// through gives each keystroke to the scheduler, where it takes the place of
// the one before it on the same page: a name of Supersede lives in its Scope.
func through(sched *ax.Scheduler, base string) ask {
	return func(page *page, word string) func() (string, error) {
		if page.scope == nil {
			page.scope = sched.Scope(page.ctx)
		}
		call := page.scope.Submit(page.ctx, ax.Must(ax.Request{
			URL:       suggestURL(base, word),
			Lane:      "suggest",
			Supersede: "box",
		}.Task()))
		return func() (string, error) {
			resp, err := call.Result()
			if err != nil {
				return "", err // ErrSuperseded: a newer word was typed
			}
			body, err := resp.Bytes()
			return string(body), err
		}
	}
}

func suggestURL(base, word string) string {
	return base + "/suggest?q=" + url.QueryEscape(word)
}

// backend is as fast as a search is: some words take ten times as long as others.
func backend() *lab.Backend {
	return lab.NewBackend(lab.Limit{}, func(w http.ResponseWriter, r *http.Request) {
		word := r.URL.Query().Get("q")
		select {
		case <-time.After(time.Duration(50+crc32.ChecksumIEEE([]byte(word))%450) * time.Millisecond):
			fmt.Fprint(w, word)
		case <-r.Context().Done(): // nobody wants it any more
		}
	})
}
