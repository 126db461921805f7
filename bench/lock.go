package bench

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/google/pprof/profile"
)

const lockHeld metric = "lock held ns/call"

// lockHold shows what ax does under its mutex.
func lockHold(e effort) experiment {
	x := experiment{
		id:      "lock",
		title:   "Where ax's time goes: lock and allocations",
		about:   "The calls of a1, a2, a3 and a5 under a CPU profile. Held is the processor time of the samples that lie in a function which runs under the scheduler's mutex (in the source their names end in Locked); the wait is the runtime's count of the time that all callers together were blocked on mutexes.",
		columns: []metric{nsPerCall, lockHeld, lockPerCall, allocs, allocBytes}, rounds: e.rounds(3), fresh: true,
	}
	for _, callers := range []int{1, 64} {
		free := job{work: noop(), callers: callers, slots: wideGate}
		timed := free
		timed.timeout = attemptTimeout
		full := job{work: yielding(), callers: callers, slots: narrowGate}
		g := group{label: callersLabel(callers)}
		add := func(id, how string, j job, open func(job) (call, func())) {
			l := callLoad(e, j, id, how, open)
			l.slice = e.slice(2 * time.Second)
			g.contestants = append(g.contestants, &profiled{load: l, dir: e.profiles, file: fmt.Sprintf("%s-%d.pprof", id, callers)})
		}
		add("a1", "gate free", free, axCalls)
		add("a2", "gate free, with a timeout", timed, axCalls)
		add("a3", "gate free, with a timeout, deduped", timed, axDedupedCalls)
		if callers > narrowGate {
			add("a5", "gate full", full, axCalls)
		}
		x.groups = append(x.groups, g)
	}
	return x
}

// profiled is a load under a CPU profile.
type profiled struct {
	*load
	dir, file string // where the profile is kept; dir "" = nowhere
}

func (p *profiled) measure() (reading, error) {
	var raw bytes.Buffer
	if p.each == 0 {
		if err := p.calibrate(); err != nil {
			return nil, err
		}
	}
	if err := pprof.StartCPUProfile(&raw); err != nil {
		return nil, err
	}
	r, err := p.load.measure()
	pprof.StopCPUProfile()
	if err != nil {
		return nil, err
	}
	if p.dir != "" {
		if err := os.WriteFile(filepath.Join(p.dir, p.file), raw.Bytes(), 0o644); err != nil {
			return nil, err
		}
	}
	share, err := lockedShare(&raw)
	r[lockHeld] = share * r[cpuPerCall]
	return r, err
}

// lockedShare is the part of a profile's samples with a locked function in their
// stack.
func lockedShare(raw *bytes.Buffer) (float64, error) {
	p, err := profile.Parse(raw)
	if err != nil {
		return 0, err
	}
	var all, locked int64
	for _, s := range p.Sample {
		n := s.Value[0]
		all += n
		if underLock(s) {
			locked += n
		}
	}
	if all == 0 {
		return 0, nil
	}
	return float64(locked) / float64(all), nil
}

func underLock(s *profile.Sample) bool {
	for _, at := range s.Location {
		for _, line := range at.Line {
			name := line.Function.Name
			if strings.Contains(name, "/axsched/ax.") && (strings.HasSuffix(name, "Locked") || strings.Contains(name, "Locked.")) {
				return true
			}
		}
	}
	return false
}
