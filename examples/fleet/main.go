// Fleet shows four machines behind one gate. It starts four worker processes, a
// server that counts what reaches it and, unless AX_REDIS_ADDR names one, a
// redis-server of its own; then it tells what the server saw, and whether what it
// promises was kept: it exits with 1 if not, with 2 if it could not try.
//
// The gate counts exactly, and what would start later than it was counted for is
// not begun. The server counts when requests arrive: the Guard of the rate is for
// what a machine lets a worker wait between its start and the network.
//
//	go run .
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"slices"
	"time"

	"github.com/axsched/ax"
	"github.com/axsched/ax/examples/internal/lab"
)

// keep judges a promise.
type keep func(kept bool, format string, args ...any)

func main() {
	log.SetFlags(0)
	if spec := os.Getenv(workerEnv); spec != "" {
		if err := work(spec, os.Stdin, os.Stdout); err != nil {
			log.Fatal("worker: ", err)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	lab.Run(func(out io.Writer, p *lab.Promises) error { return run(ctx, out, p.Keep, 5*time.Second) })
}

// run tells the whole story to out; the load lasts for d.
func run(ctx context.Context, out io.Writer, promise keep, d time.Duration) error {
	addr, stop, err := redisAddr(ctx)
	if err != nil {
		return err
	}
	defer stop()
	server, err := startServer()
	if err != nil {
		return err
	}
	defer server.close()
	var workers []*worker
	for i := range 4 {
		w, err := startWorker(ctx, job{Name: fmt.Sprintf("w%d", i+1), Redis: addr, URL: server.url,
			Prefix: fmt.Sprintf("ax-fleet-%d", os.Getpid())})
		if err != nil {
			return err
		}
		defer w.kill()
		workers = append(workers, w)
	}
	if err := load(out, promise, server, workers, d); err != nil {
		return err
	}
	if err := ranks(out, promise, server, workers); err != nil {
		return err
	}
	return crash(ctx, out, promise, server, workers)
}

// load lets every worker send as fast as it is allowed to.
func load(out io.Writer, promise keep, s *server, workers []*worker, d time.Duration) error {
	fmt.Fprintf(out, "%d workers send as fast as they may for %v; together %d at once, %d in any second\n",
		len(workers), d, slots, perSecond)
	for _, w := range workers {
		w.tell("load", d.String())
	}
	for _, w := range workers {
		if err := w.done(); err != nil {
			return err
		}
	}
	seen := s.take("/load")
	least := len(seen)
	for _, w := range workers {
		n := len(by(seen, w.name))
		least = min(least, n)
		fmt.Fprintf(out, "  %s: %d requests\n", w.name, n)
	}
	most, busy := peak(seen), busiest(seen, time.Second)
	promise(most <= slots, "peak concurrency %d of %d", most, slots)
	promise(busy <= perSecond, "peak per second %d of %d", busy, perSecond)
	used := float64(within(seen, d)) / (perSecond * d.Seconds())
	promise(used >= .85, "rate used %.0f %%", 100*used)
	promise(least > 0, "nobody starves")
	return nil
}

// ranks lets one task of each priority wait on each worker for a single slot.
func ranks(out io.Writer, promise keep, s *server, workers []*worker) error {
	fmt.Fprintf(out, "one slot; each worker queues a low, a normal and an urgent task\n  served:")
	for _, w := range workers {
		w.tell("ranks")
	}
	for _, w := range workers {
		if err := w.done(); err != nil {
			return err
		}
	}
	var served []string
	for i, v := range s.take("/ranks") {
		if i > 0 { // the first one only fills the slot
			fmt.Fprintf(out, " %s@%s", v.what, v.who)
			served = append(served, v.what)
		}
	}
	fmt.Fprintln(out)
	var want []string
	for _, p := range []ax.Priority{ax.Urgent, ax.Normal, ax.Low} {
		want = append(want, slices.Repeat([]string{p.String()}, len(workers))...)
	}
	promise(slices.Equal(served, want), "every urgent task before every normal one, and those before the low ones")
	return nil
}

// crash kills the worker that holds all slots of a lane.
func crash(ctx context.Context, out io.Writer, promise keep, s *server, workers []*worker) error {
	fmt.Fprintf(out, "%s holds all %d slots of a lane, %s waits; leases last %v\n",
		workers[0].name, held, workers[1].name, leaseTTL)
	workers[0].tell("hold")
	if err := s.wait(ctx, workers[0].name, held); err != nil {
		return err
	}
	workers[1].tell("hold")
	select {
	case <-time.After(leaseTTL): // waiting changes nothing while they are renewed
	case <-ctx.Done():
		return ctx.Err()
	}
	early := len(by(s.look("/hold"), workers[1].name))
	promise(early == 0, "after %v: %d requests of %s", leaseTTL, early, workers[1].name)
	workers[0].kill()
	killed := time.Now()
	fmt.Fprintf(out, "  %s is killed in mid-request\n", workers[0].name)
	if err := s.wait(ctx, workers[1].name, held); err != nil {
		return err
	}
	for i, v := range by(s.look("/hold"), workers[1].name) {
		back := v.start.Sub(killed)
		promise(back <= leaseTTL+500*time.Millisecond, "slot %d is back after %.1fs", i+1, back.Seconds())
	}
	return nil
}
