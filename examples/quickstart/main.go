// Quickstart sends the same burst twice at a backend that breaks above ten
// requests at once and above thirty a second: first as everybody does, then
// through ax. What the server saw decides whether it exits with 0.
//
//	go run ./examples/quickstart
package main

import (
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/axsched/ax"
	"github.com/axsched/ax/examples/internal/lab"
)

const (
	atOnce    = 10
	perSecond = 30
	service   = 340 * time.Millisecond
)

func main() { lab.Run(run) }

func run(out io.Writer, p *lab.Promises) error {
	callers := burst()
	fmt.Fprintf(out, "%d callers within a second, %d of them urgent, for %d different things.\n",
		len(callers), count(callers, ax.Urgent), distinct(callers))
	fmt.Fprintf(out, "The backend takes %v and breaks above %d at once or %d a second.\n", service, atOnce, perSecond)

	naive := backend()
	defer naive.Close()
	fmt.Fprintln(out, "\nWithout ax, http.Client:")
	plain := &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
	show(out, naive.Seen, send(callers, plainly(plain, naive.URL)))

	gated := backend()
	defer gated.Close()
	sched, err := ax.New(nil, config())
	if err != nil {
		return err
	}
	defer sched.Close()
	fmt.Fprintln(out, "\nWith ax, the same burst:")
	answers := send(callers, through(sched, gated.URL))
	show(out, gated.Seen, answers)
	fmt.Fprintf(out, "  %d callers shared what others had asked for: who came late in a request,\n  or after it, was answered in less than %v\n",
		len(answers)-gated.Seen().Requests, service)

	fmt.Fprintln(out, "\nPromises, as the server saw it:")
	seen := gated.Seen()
	p.Keep(seen.PeakAtOnce <= atOnce, "never more than %d at once: %d", atOnce, seen.PeakAtOnce)
	p.Keep(seen.PeakPerSecond <= perSecond, "never more than %d in any second: %d", perSecond, seen.PeakPerSecond)
	p.Keep(seen.Requests == distinct(callers), "each thing asked for once: %d requests", seen.Requests)
	p.Keep(seen.Failed() == 0 && failures(answers) == 0, "nobody was refused: %d errors", failures(answers))
	urgent, normal := lab.Quantile(times(answers, ax.Urgent), .95), lab.Quantile(times(answers, ax.Normal), .95)
	p.Keep(urgent < normal/2, "urgent callers went first: p95 %v against %v", urgent, normal)
	return nil
}

// config is all there is to say about the backend.
func config() ax.Config {
	cfg := ax.Recommended()
	cfg.MaxConcurrent = atOnce
	cfg.Hosts = nil // one backend: the scheduler's own limits are enough
	// Smooth spreads the starts over the second, so that an urgent caller never
	// waits for the next second to begin. Guard is room for a busy machine.
	cfg.Rate = []ax.Rate{{Limit: perSecond, Smooth: true, Guard: 150 * time.Millisecond}}
	cfg.Dedupe = &ax.Dedupe{Window: time.Minute}
	return cfg
}

func backend() *lab.Backend {
	return lab.NewBackend(lab.Limit{Concurrent: atOnce, PerSecond: perSecond}, func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(service)
		fmt.Fprintf(w, "thing %s", r.URL.Query().Get("id"))
	})
}
