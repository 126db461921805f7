package bench

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"sync"
)

// contestant is one way to do the work of an experiment.
type contestant interface {
	name() string
	how() string               // the configuration that makes its work the same
	measure() (reading, error) // one round
	close()
}

// reading is what one round of one contestant showed.
type reading map[metric]float64

// metric is a quantity, named with its unit.
type metric string

// group is a setting of an experiment, such as a number of callers, with those
// who compete in it. The first one is the yardstick of its table.
type group struct {
	label       string
	contestants []contestant
}

// experiment is one entry of the report.
type experiment struct {
	id       string
	title    string
	about    string
	short    string   // why a mark is not met, and what was tried
	columns  []metric // the first one is what ratios are taken of
	rounds   int
	fresh    bool // every round begins anew: none is needed to warm up
	together bool // all contestants of a group at the same time: they sleep rather than compute
	groups   []group
	marks    []mark
}

// readings are the rounds of one contestant, oldest first.
type readings []reading

// of is one metric over all rounds.
func (r readings) of(m metric) []float64 {
	values := make([]float64, len(r))
	for i := range r {
		values[i] = r[i][m]
	}
	return values
}

// outcome is what an experiment showed: by group, by contestant.
type outcome struct {
	experiment
	results map[string]map[string]readings
}

// run runs all rounds, and one before that counts for nothing.
func (e experiment) run(r *rand.Rand, progress func(string)) (outcome, error) {
	out := outcome{experiment: e, results: map[string]map[string]readings{}}
	for _, g := range e.groups {
		out.results[g.label] = map[string]readings{}
		defer g.close()
	}
	first := -1
	if e.fresh {
		first = 0
	}
	for round := first; round < e.rounds; round++ {
		for _, i := range r.Perm(len(e.groups)) {
			g := e.groups[i]
			got, err := g.round(r, e.together)
			if err != nil {
				return out, fmt.Errorf("%s, %s: %w", e.id, g.label, err)
			}
			for name, reading := range got {
				if round >= 0 {
					out.results[g.label][name] = append(out.results[g.label][name], reading)
				}
			}
			progress(fmt.Sprintf("%s round %d/%d", e.id, round+1, e.rounds))
		}
	}
	return out, nil
}

// round has every contestant measured once.
func (g group) round(r *rand.Rand, together bool) (map[string]reading, error) {
	if together {
		return g.roundTogether()
	}
	got := make(map[string]reading, len(g.contestants))
	for _, i := range r.Perm(len(g.contestants)) {
		c := g.contestants[i]
		runtime.GC() // nobody inherits another's garbage
		reading, err := c.measure()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name(), err)
		}
		got[c.name()] = reading
	}
	return got, nil
}

func (g group) roundTogether() (map[string]reading, error) {
	got := make([]reading, len(g.contestants))
	errs := make([]error, len(g.contestants))
	var wg sync.WaitGroup
	for i, c := range g.contestants {
		wg.Go(func() { got[i], errs[i] = c.measure() })
	}
	wg.Wait()
	all := make(map[string]reading, len(got))
	for i, c := range g.contestants {
		if errs[i] != nil {
			return nil, fmt.Errorf("%s: %w", c.name(), errs[i])
		}
		all[c.name()] = maps.Clone(got[i])
	}
	return all, nil
}

func (g group) close() {
	for _, c := range g.contestants {
		c.close()
	}
}
