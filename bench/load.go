package bench

import (
	"fmt"
	"math"
	"runtime"
	"runtime/metrics"
	"sync"
	"time"
)

const (
	nsPerCall   metric = "ns/call"
	cpuPerCall  metric = "CPU ns/call"
	lockPerCall metric = "lock wait ns/call"
	allocs      metric = "allocs/call"
	allocBytes  metric = "B/call"
)

// callMetrics are those of a load.
func callMetrics() []metric { return []metric{nsPerCall, cpuPerCall, lockPerCall, allocs, allocBytes} }

// call is one call by the caller of this number.
type call func(caller int) error

// load is a contestant: so many callers call as often as they can.
type load struct {
	label, notes string
	callers      int
	slice        time.Duration // how long a round lasts, about
	call         call
	stop         func()
	each         int // calls by each caller and round; 0 = not known yet
}

// callLoad is a contestant that does j through what open makes of it.
func callLoad(e effort, j job, label, how string, open func(job) (call, func())) *load {
	c, stop := open(j)
	return &load{label: label, notes: how, callers: j.callers, slice: e.slice(40 * time.Millisecond), call: c, stop: stop}
}

func (l *load) name() string { return l.label }
func (l *load) how() string  { return l.notes }

func (l *load) close() {
	if l.stop != nil {
		l.stop()
	}
}

func (l *load) measure() (reading, error) {
	if l.each == 0 {
		if err := l.calibrate(); err != nil {
			return nil, err
		}
		runtime.GC()
	}
	return l.drive(l.each)
}

// leastEach is how often every caller calls at least: a call or two find a cold
// cache, and the last callers to finish have the processors to themselves.
const leastEach = 4

// calibrate finds how many calls fill a round. They are slow at first, and others
// may have the processor just then, so the fastest of the longer runs counts.
func (l *load) calibrate() error {
	fastest, long := math.Inf(1), 0
	each := leastEach
	for long < 3 && each < 1<<22 {
		r, err := l.drive(each)
		if err != nil {
			return err
		}
		fastest = min(fastest, r[nsPerCall])
		if r[nsPerCall]*float64(each*l.callers) >= float64(l.slice)/8 {
			long++
		} else {
			each *= 3
		}
	}
	l.each = max(leastEach, int(float64(l.slice)/fastest/float64(l.callers)))
	return nil
}

// drive has every caller call that many times and reads the meters around it.
func (l *load) drive(each int) (reading, error) {
	var failed firstError
	var ready, done sync.WaitGroup
	begin := make(chan struct{})
	for c := range l.callers {
		ready.Add(1)
		done.Go(func() {
			ready.Done()
			<-begin
			for range each {
				if err := l.call(c); err != nil {
					failed.set(err)
					return
				}
			}
		})
	}
	ready.Wait()
	m := startMeters()
	close(begin)
	done.Wait()
	r := m.read(each * l.callers)
	if failed.err != nil {
		return nil, fmt.Errorf("call failed: %w", failed.err)
	}
	return r, nil
}

// firstError keeps the first of many.
type firstError struct {
	once sync.Once
	err  error
}

func (f *firstError) set(err error) { f.once.Do(func() { f.err = err }) }

// meters are the process's, at the begin of a round.
type meters struct {
	mem  runtime.MemStats
	lock float64
	cpu  time.Duration
	at   time.Time
}

func startMeters() *meters {
	m := new(meters)
	runtime.ReadMemStats(&m.mem)
	m.lock = lockWait()
	m.cpu = cpuTime()
	m.at = time.Now()
	return m
}

// read is what each of calls has used.
func (m *meters) read(calls int) reading {
	took, cpu, lock := time.Since(m.at), cpuTime()-m.cpu, lockWait()-m.lock
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	n := float64(calls)
	return reading{
		nsPerCall:   float64(took.Nanoseconds()) / n,
		cpuPerCall:  float64(cpu.Nanoseconds()) / n,
		lockPerCall: lock / n,
		allocs:      hundredths(float64(mem.Mallocs-m.mem.Mallocs) / n), // the runtime makes a few of its own
		allocBytes:  float64(mem.TotalAlloc-m.mem.TotalAlloc) / n,
	}
}

func hundredths(v float64) float64 { return math.Round(v*100) / 100 }

// lockWait is the time in ns that goroutines have been blocked on mutexes so far,
// as the runtime samples it.
func lockWait() float64 {
	s := []metrics.Sample{{Name: "/sync/mutex/wait/total:seconds"}}
	metrics.Read(s)
	return s[0].Value.Float64() * 1e9
}
