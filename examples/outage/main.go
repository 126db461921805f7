// Outage replays a scripted outage (healthy, 60 % errors, dead, back) against a
// naive client with three retries and against ax, side by side, second by
// second, and draws both as an SVG chart.
//
//	go run ./examples/outage [-svg outage.svg]
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/axsched/ax/examples/internal/lab"
)

func main() {
	chart := flag.String("svg", "outage.svg", "where to draw the chart")
	flag.Parse()
	lab.Run(func(out io.Writer, p *lab.Promises) error { return run(out, p, *chart) })
}

func run(out io.Writer, p *lab.Promises, chart string) error {
	if err := writable(chart); err != nil {
		return err // now, and not when all has been played
	}
	start := time.Now().Add(100 * time.Millisecond)
	naive, err := newContestant(start, newNaive)
	if err != nil {
		return err
	}
	defer naive.close()
	gated, err := newContestant(start, newGated)
	if err != nil {
		return err
	}
	defer gated.close()

	fmt.Fprintf(out, "%d callers a second ask for %d pages. The backend is healthy for %v, fails 60 %% for %v,\nis dead for %v and back for %v. Watch what it is sent meanwhile.\n\n",
		callersPerSecond, pages, healthy, failing, dead, back)
	var both sync.WaitGroup
	both.Go(naive.play)
	both.Go(gated.play)
	both.Wait()

	table(out, naive, gated)
	if err := os.WriteFile(chart, drawing(naive, gated), 0o644); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nThe same as a chart: %s\n\nPromises, as the backends saw it:\n", chart)
	judge(p, naive, gated)
	return nil
}

// writable tells what keeps a file from being written, and changes none.
func writable(name string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

// judge compares what the two backends saw.
func judge(p *lab.Promises, naive, gated *contestant) {
	died, returned := healthy+failing, healthy+failing+dead
	sent, most := gated.between(died, returned), naive.between(died, returned)
	p.Keep(sent*20 <= most, "while it is dead ax sends at most 5 %% of what the naive client sends: %d of %d", sent, most)
	from := gated.risesAt()
	p.Keep(from >= returned-openFor && from < returned+2*openFor, "ax comes back soon after the backend: after %v",
		(from - returned).Round(10*time.Millisecond))
	over, peak := gated.overRamp(from)
	p.Keep(over == 0, "in the first %v of recovery the backend never sees more than the ramp allows: %d times more, peak %d of %d", rampOver, over, peak, atOnce)
	lost, naivelyLost := gated.sum(failures), naive.sum(failures)
	p.Keep(lost*10 <= naivelyLost, "callers hardly notice: %d failures, naively %d", lost, naivelyLost)
	p.Keep(gated.sum(stale) > 0, "since they get the last good answer, which says so: %d times", gated.sum(stale))
}
