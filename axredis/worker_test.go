package axredis_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/axsched/ax"
	"github.com/axsched/ax/axredis"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// workerEnv holds the job of a worker process, which is this test program again.
const workerEnv = "AX_TEST_WORKER"

// job is what a worker process does.
type job struct {
	Redis, URL, Name string
	Config           axredis.Config
	Callers          int
	Once             bool          // each caller sends one request, without retry
	For              time.Duration // else for so long
	Freeze           bool          // instead, see freezer
}

// worker does the job: it prints a line for each failed request.
func worker() {
	var j job
	if err := json.Unmarshal([]byte(os.Getenv(workerEnv)), &j); err != nil {
		panic(err)
	}
	if j.Freeze {
		freezer(j)
		return
	}
	g, err := axredis.New(redis.NewClient(&redis.Options{Addr: j.Redis}), j.Config)
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	s, err := ax.New(client, ax.Config{Governor: g, Lanes: []ax.Lane{{Name: "api", MaxConcurrent: 32}}})
	if err != nil {
		panic(err)
	}
	fmt.Println("ready")
	end := time.Now().Add(j.For)
	var all sync.WaitGroup
	for range j.Callers {
		all.Go(func() {
			for first := true; first || !j.Once && time.Now().Before(end); first = false {
				r := ax.Request{URL: j.URL + "/" + j.Name, Lane: "api", NoRetry: j.Once}
				switch _, err := s.Send(context.Background(), r); {
				case errors.Is(err, ax.ErrGrantLost):
					fmt.Println("lost")
				case err != nil:
					fmt.Println(err)
				}
			}
		})
	}
	all.Wait()
	_ = s.Close()
	_ = g.Close()
}

// process is a running worker.
type process struct {
	t     testing.TB
	cmd   *exec.Cmd
	lines chan string
}

// startWorker runs j in a process of its own.
func startWorker(t testing.TB, j job) *process {
	t.Helper()
	spec, err := json.Marshal(j)
	require.NoError(t, err)
	p := &process{t: t, cmd: exec.Command(os.Args[0]), lines: make(chan string, 1000)}
	p.cmd.Env = append(os.Environ(), workerEnv+"="+string(spec))
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() { _ = p.cmd.Process.Kill(); _ = p.cmd.Wait() })
	go func() {
		defer close(p.lines)
		for in := bufio.NewScanner(out); in.Scan(); {
			p.lines <- in.Text()
		}
	}()
	require.Equal(t, "ready", <-p.lines)
	return p
}

func (p *process) signal(s syscall.Signal) { require.NoError(p.t, p.cmd.Process.Signal(s)) }

// wire is the server that all machines share: it counts, and answers after d, or
// never with d = 0.
func wire(t testing.TB, d time.Duration) (*counter, string) {
	c := newCounter()
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		defer c.begin(r.URL.Path[1:])()
		var after <-chan time.Time
		if d > 0 {
			after = time.After(d)
		}
		select {
		case <-after:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return c, s.URL
}

// TestFourMachinesOneGate: the server never sees more than the fleet may do, and
// the fleet does what it may.
func TestFourMachinesOneGate(t *testing.T) {
	onAMachineWithTime(t, func() error { return fourMachines(t) })
}

func fourMachines(t *testing.T) error {
	cfg := lanes("api", ax.Limits{MaxConcurrent: 10, Rate: ax.PerSecond(50)})
	cfg.Outage = axredis.FailClosed
	f := newFleet(t, cfg)
	span := long(10*time.Second, 5*time.Second)
	seen, url := wire(t, 100*ms)
	var all []*process
	for i := range 4 {
		all = append(all, startWorker(t, job{Redis: f.addr, URL: url, Name: strconv.Itoa(i), Config: f.cfg, Callers: 20, For: span + time.Second}))
	}
	for _, p := range all {
		for line := range p.lines {
			require.Fail(t, line)
		}
		require.NoError(t, p.cmd.Wait())
	}
	spans := seen.all()
	first := spans[0].start
	peak, busiest := seen.peak(first, time.Now()), seen.busiest(time.Second)
	used := float64(seen.between(first, first.Add(span))) / (50 * span.Seconds())
	t.Logf("%.1f%% of the rate used, at most %d at once, at most %d in a second", 100*used, peak, busiest)
	require.LessOrEqual(t, peak, 10)
	shares := map[string]int{}
	for _, s := range spans {
		shares[s.who]++
	}
	require.Len(t, shares, 4, "nobody starves")
	if busiest > 50 || used < 0.9 {
		return fmt.Errorf("want at most 50 in a second and 90%% of the rate, got %d and %.1f%%", busiest, 100*used)
	}
	return nil
}

// holders is a worker that holds all n slots of a fleet, with more tasks waiting.
func holders(t *testing.T, n int, ttl time.Duration) (*fleet, *counter, *process) {
	f := newFleet(t, leased(n, ttl))
	seen, url := wire(t, 0)
	p := startWorker(t, job{Redis: f.addr, URL: url, Name: "holder", Config: f.cfg, Callers: n + 2, Once: true})
	require.Eventually(t, func() bool { return len(seen.all()) == n }, 5*time.Second, 5*ms)
	time.Sleep(ttl) // renewed at least twice
	require.Len(t, seen.all(), n)
	return f, seen, p
}

// TestKill9OfAHolder: its slots are back within the TTL, and not before its leases
// have ended.
func TestKill9OfAHolder(t *testing.T) {
	const ttl = 1500 * ms
	f, _, p := holders(t, 2, ttl)
	g := f.join()
	refused(t, g, ask("api", -time.Hour))
	p.signal(syscall.SIGKILL)
	since := time.Now()
	for range 2 {
		wait(t, g, ask("api", -time.Hour))
		require.GreaterOrEqual(t, time.Since(since), ttl*2/3-20*ms)
		require.LessOrEqual(t, time.Since(since), ttl+500*ms)
	}
}

// TestSIGSTOPOfAHolder past its TTL: when it wakes it cancels what it had and
// sends nothing more.
func TestSIGSTOPOfAHolder(t *testing.T) {
	const ttl = 1500 * ms
	f, seen, p := holders(t, 2, ttl)
	p.signal(syscall.SIGSTOP)
	g := f.join()
	for range 2 {
		wait(t, g, ask("api", -time.Hour))
	}
	for _, s := range seen.all() {
		require.True(t, s.end.IsZero(), "a lease cannot stop what a server is doing")
	}
	time.Sleep(300 * ms)
	p.signal(syscall.SIGCONT)
	for range 2 {
		require.Equal(t, "lost", <-p.lines)
	}
	require.Eventually(t, func() bool {
		spans := seen.all()
		return !spans[0].end.IsZero() && !spans[1].end.IsZero()
	}, time.Second, 5*ms)
	time.Sleep(500 * ms)
	require.Len(t, seen.all(), 2)
}
