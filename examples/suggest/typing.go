package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/axsched/ax"
	"github.com/axsched/ax/examples/internal/lab"
)

// page is one person's page with its search box.
type page struct {
	ctx   context.Context // ends when the person leaves
	scope *ax.Scope

	mu        sync.Mutex
	typed     int // keystrokes so far
	shown     string
	shownKey  int // the keystroke that asked for what is shown
	backwards int // how often an older word replaced a newer one
}

// tally is what came of all pages.
type tally struct {
	keystrokes, wrong, backwards int
}

// typing lets twenty people type four words each, eight keys a second, with a
// look at the suggestions after each word.
func typing(out io.Writer, title string, server *lab.Backend, do ask) tally {
	words := []string{"axios", "scheduler", "axolotl", "schedule", "axis", "schema", "retry after", "rate limit"}
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	var people sync.WaitGroup
	var mu sync.Mutex
	var sum tally
	for person := range 20 {
		people.Go(func() {
			p := &page{ctx: ctx}
			time.Sleep(time.Duration(person) * 23 * time.Millisecond)
			wrong := 0
			for i := range 4 {
				word := words[(person+3*i)%len(words)]
				if p.word(word, do); p.shown != word {
					wrong++
				}
			}
			mu.Lock()
			defer mu.Unlock()
			sum.keystrokes += p.typed
			sum.backwards += p.backwards
			sum.wrong += wrong
		})
	}
	people.Wait()
	fmt.Fprintln(out, title)
	fmt.Fprintf(out, "  %d keystrokes; the server saw %v\n", sum.keystrokes, server.Seen())
	fmt.Fprintf(out, "  wrong suggestions left standing %d times, old ones painted over new ones %d times\n", sum.wrong, sum.backwards)
	return sum
}

// word types one word and waits until every answer that will come has come.
func (p *page) word(word string, do ask) {
	var answers sync.WaitGroup
	for end := range word {
		p.typed++
		key, answer := p.typed, do(p, word[:end+1])
		answers.Go(func() {
			if text, err := answer(); err == nil {
				p.show(text, key)
			}
		})
		time.Sleep(125 * time.Millisecond)
	}
	answers.Wait()
}

// show paints an answer as a careless page does: whatever comes.
func (p *page) show(text string, key int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if key < p.shownKey {
		p.backwards++
	}
	p.shown, p.shownKey = text, key
}
