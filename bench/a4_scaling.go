package bench

// scaling is the metric of a4.
const scaling metric = "ns/call at 64 callers ÷ at 1"

// scalingGate is a4: what it costs to be used by many at once.
func scalingGate(e effort) experiment {
	g := group{label: "all"}
	add := func(label, how string, build func(job) (call, func())) {
		p := &scalingPair{label: label, notes: how}
		for i, callers := range []int{1, 64} {
			p.loads[i] = callLoad(e, job{work: noop(), callers: callers, slots: wideGate}, label, how, build)
		}
		g.contestants = append(g.contestants, p)
	}
	add(failsafeLabel, failsafeHow, failsafeCalls)
	add(axLabel, "as in a1", axCalls)
	add(handLabel, handHow, handCalls)
	add(semaphoreLabel, "Acquire and Release alone", semaphoreCalls)
	add(floorLabel, floorHow, floorCalls)
	add(bareLabel, bareHow, bareCalls)
	return experiment{
		id:      "a4",
		title:   "Scaling: 64 callers against 1",
		about:   "The calls of a1 by one caller, then by 64 at once on all processors. The time is that of the whole load over the number of calls: with two processors and no contention the ratio is 0.5.",
		short:   shortScaling,
		columns: []metric{scaling}, rounds: e.rounds(20),
		groups: []group{g},
		marks:  []mark{atMost(1.6, contender{"all", axLabel, scaling})},
	}
}

// scalingPair is the same stack with one caller and with many.
type scalingPair struct {
	label, notes string
	loads        [2]*load
}

func (p *scalingPair) name() string { return p.label }
func (p *scalingPair) how() string  { return p.notes }

func (p *scalingPair) close() {
	for _, l := range p.loads {
		l.close()
	}
}

func (p *scalingPair) measure() (reading, error) {
	one, err := p.loads[0].measure()
	if err != nil {
		return nil, err
	}
	many, err := p.loads[1].measure()
	if err != nil {
		return nil, err
	}
	return reading{scaling: many[nsPerCall] / one[nsPerCall]}, nil
}
