package axredis_test

import (
	"context"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// longRun runs the tests at full length.
var longRun = flag.Bool("long", false, "run timed tests at full length")

// long is full with -long, else short.
func long(full, short time.Duration) time.Duration {
	if *longRun {
		return full
	}
	return short
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv(workerEnv) != "" {
		worker()
		return
	}
	redis.SetLogger(silent{}) // go-redis reports every failed dial of an outage
	os.Exit(m.Run())
}

// onAMachineWithTime runs what measures times on the wire: up to three times, if
// this machine let its goroutines wait for so long that it has measured itself.
func onAMachineWithTime(t *testing.T, measure func() error) {
	t.Helper()
	const much = 25 * time.Millisecond // half of what a window of a second has room for
	for try := 1; ; try++ {
		lag := lagging()
		err := measure()
		switch late := lag(); {
		case err == nil:
			return
		case late < much || try == 3:
			t.Fatalf("%v (this machine was up to %v late)", err, late)
		default:
			t.Logf("again: %v; this machine was up to %v late", err, late)
		}
	}
}

// lagging watches how late a goroutine runs, until it is asked.
func lagging() (most func() time.Duration) {
	stop, result := make(chan struct{}), make(chan time.Duration)
	go func() {
		var worst time.Duration
		for {
			since := time.Now()
			select {
			case <-stop:
				result <- worst
				return
			case <-time.After(time.Millisecond):
				worst = max(worst, time.Since(since)-time.Millisecond)
			}
		}
	}()
	return func() time.Duration { close(stop); return <-result }
}
