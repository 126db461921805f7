package bench

import (
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"
)

// Options say what to measure.
type Options struct {
	Quick    bool         // less than a minute: shows that all runs, the numbers say little
	Only     []string     // ids of experiments; empty = all
	Procs    int          // processors to use; 0 = 2, which the marks are made for
	Profiles string       // existing directory for ax's CPU profiles; "" = none are kept
	Progress func(string) // told what is under way; nil = nobody
}

// Result is what Run has measured.
type Result struct{ report report }

// Write writes the report as Markdown.
func (r Result) Write(w io.Writer) error { return r.report.write(w) }

// Missed is how many marks ax has missed for certain.
func (r Result) Missed() int { return r.report.counts()[missed] }

// Summary is one line about all marks.
func (r Result) Summary() string {
	n := r.report.counts()
	return fmt.Sprintf("%d marks met, %d open, %d missed, in %v", n[met], n[open], n[missed], r.report.took.Round(time.Second))
}

// Run measures. It changes GOMAXPROCS meanwhile.
func Run(o Options) (Result, error) {
	procs := o.Procs
	if procs == 0 {
		procs = 2
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	began := time.Now()
	r := report{date: began, quick: o.Quick, machine: machine(), versions: versions()}
	random := rand.New(rand.NewPCG(7, 11))
	for _, x := range experiments() {
		if len(o.Only) > 0 && !slices.Contains(o.Only, x.id) {
			continue
		}
		out, err := x.build(effort{quick: o.Quick, profiles: o.Profiles}).run(random, o.Progress)
		if err != nil {
			return Result{}, err
		}
		r.outcomes = append(r.outcomes, out)
	}
	if len(r.outcomes) == 0 {
		return Result{}, fmt.Errorf("bench: no experiment is called %q", o.Only)
	}
	r.took = time.Since(began)
	return Result{r}, nil
}

// entry is an experiment that is built when it is its turn.
type entry struct {
	id    string
	build func(effort) experiment
}

// experiments are all, in the order of the report.
func experiments() []entry {
	return []entry{
		{"a1", freeGate}, {"a2", timedGate}, {"a3", dedupedGate}, {"a4", scalingGate}, {"a5", fullGate},
		{"lock", lockHold}, {"b", queueAlone}, {"c", herd}, {"d1", loopback(0)}, {"d2", loopback(attemptTimeout)},
		{"e", urgency}, {"f", precision}, {"g", waiterMemory}, {"h", abandonment}, {"i", multitude},
	}
}
