package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/axsched/ax"
	"github.com/axsched/ax/axredis"
	"github.com/redis/go-redis/v9"
)

// The limits of the fleet.
const (
	slots     = 10
	perSecond = 50
	held      = 4
	leaseTTL  = 2 * time.Second
	guard     = 50 * time.Millisecond
)

// workerEnv holds the job of a worker process.
const workerEnv = "AX_FLEET_WORKER"

// job is what a worker process is told at its start.
type job struct{ Name, Redis, URL, Prefix string }

// machine is what runs in a worker process.
type machine struct {
	job
	sched *ax.Scheduler
}

// work follows the orders of in, one a line, and says when each is done.
func work(spec string, in io.Reader, out io.Writer) error {
	m := &machine{}
	if err := json.Unmarshal([]byte(spec), &m.job); err != nil {
		return err
	}
	g, err := axredis.New(redis.NewClient(&redis.Options{Addr: m.Redis}), axredis.Config{
		Prefix:   m.Prefix,
		LeaseTTL: leaseTTL,
		Timeout:  200 * time.Millisecond, // five processes share this machine
		Lanes: map[string]ax.Limits{
			"load":  {MaxConcurrent: slots, Rate: []ax.Rate{{Limit: perSecond, Guard: guard}}},
			"ranks": {MaxConcurrent: 1},
			"hold":  {MaxConcurrent: held},
		},
	})
	if err != nil {
		return err
	}
	defer g.Close()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2 * slots}}
	m.sched, err = ax.New(client, ax.Config{Governor: g, Lanes: []ax.Lane{{Name: "load"}, {Name: "ranks"}, {Name: "hold"}}})
	if err != nil {
		return err
	}
	defer m.sched.Close()
	for orders := bufio.NewScanner(in); orders.Scan(); {
		if err := m.follow(strings.Fields(orders.Text())); err != nil {
			fmt.Fprintln(out, "failed:", err)
			continue
		}
		fmt.Fprintln(out, "done")
	}
	return nil
}

func (m *machine) follow(order []string) error {
	switch order[0] {
	case "load":
		d, err := time.ParseDuration(order[1])
		if err != nil {
			return err
		}
		return m.load(d)
	case "ranks":
		return m.ranks()
	case "hold":
		return m.send(m.request("hold", "", ax.Normal), held)
	}
	return fmt.Errorf("unknown order %q", order)
}

// request is one to the lane of the same path.
func (m *machine) request(lane, what string, p ax.Priority) ax.Request {
	return ax.Request{URL: m.URL + "/" + lane, Lane: lane, Priority: p, Query: url.Values{"who": {m.Name}, "what": {what}}}
}

// send sends r n times at once.
func (m *machine) send(r ax.Request, n int) error {
	var all sync.WaitGroup
	errs := make(chan error, n)
	for range n {
		all.Go(func() {
			_, err := m.sched.Send(context.Background(), r)
			errs <- err
		})
	}
	all.Wait()
	for range n {
		if err := <-errs; err != nil {
			return err
		}
	}
	return nil
}

// load sends, twice as many at a time as the fleet may, until d is over.
func (m *machine) load(d time.Duration) error {
	var all sync.WaitGroup
	end := time.Now().Add(d)
	for range 2 * slots {
		all.Go(func() {
			for time.Now().Before(end) {
				if err := m.send(m.request("load", "", ax.Normal), 1); err != nil {
					return
				}
			}
		})
	}
	all.Wait()
	return nil
}

// ranks queues one task of each priority, the least urgent first, behind the one
// that the first worker fills the slot with.
func (m *machine) ranks() error {
	var calls []*ax.Call
	submit := func(what string, p ax.Priority) {
		calls = append(calls, m.sched.Submit(context.Background(), ax.Must(m.request("ranks", what, p).Task())))
	}
	if m.Name == "w1" {
		submit(filler, ax.Urgent)
	}
	time.Sleep(200 * time.Millisecond)
	for _, p := range []ax.Priority{ax.Low, ax.Normal, ax.Urgent} {
		submit(p.String(), p)
	}
	for _, c := range calls {
		if _, err := c.Result(); err != nil {
			return err
		}
	}
	return nil
}

// worker is a worker process, seen from the one that started it.
type worker struct {
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Scanner
}

// startWorker starts this program again, to do j.
func startWorker(ctx context.Context, j job) (*worker, error) {
	spec, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	w := &worker{name: j.Name, cmd: exec.CommandContext(ctx, os.Args[0])}
	w.cmd.Env = append(os.Environ(), workerEnv+"="+string(spec))
	w.cmd.Stderr = os.Stderr
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	w.out = bufio.NewScanner(out)
	return w, w.cmd.Start()
}

// tell gives an order.
func (w *worker) tell(order ...string) { fmt.Fprintln(w.in, strings.Join(order, " ")) }

// done waits until the order has been followed.
func (w *worker) done() error {
	if !w.out.Scan() {
		return fmt.Errorf("%s is gone", w.name)
	}
	if text := w.out.Text(); text != "done" {
		return fmt.Errorf("%s: %s", w.name, text)
	}
	return nil
}

// kill is kill -9.
func (w *worker) kill() {
	_ = w.cmd.Process.Kill()
	_ = w.cmd.Wait()
}
