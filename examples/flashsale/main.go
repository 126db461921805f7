// Flashsale is the last mile of a sale: 500 people press the button in the same
// moment, each of them twice, at a shop that bears ten orders at once and thirty
// a second, and that stumbles for two seconds in the middle of it.
//
//	go run ./examples/flashsale
package main

import (
	"fmt"
	"io"
	"time"

	"github.com/axsched/ax"
	"github.com/axsched/ax/examples/internal/lab"
)

const (
	buyers    = 500
	stock     = 120
	atOnce    = 10
	perSecond = 30
	pause     = 3 * time.Second
)

func main() { lab.Run(run) }

func run(out io.Writer, p *lab.Promises) error {
	careless := openShop()
	defer careless.Close()
	fmt.Fprintf(out, "Without ax, %d people press twice:\n", buyers)
	report(out, careless, rush(plainly(careless.URL)))

	shop := openShop()
	defer shop.Close()
	sched, err := ax.New(nil, config())
	if err != nil {
		return err
	}
	defer sched.Close()
	fmt.Fprintln(out, "With ax:")
	start := time.Now()
	result := rush(through(sched, shop.URL))
	took := time.Since(start).Round(100 * time.Millisecond)
	report(out, shop, result)
	fmt.Fprintf(out, "  sold out after %v\n", took)

	fmt.Fprintln(out, "\nPromises, as the shop saw it:")
	seen := shop.Seen()
	p.Keep(seen.PeakAtOnce <= atOnce, "never more than %d orders at once: %d", atOnce, seen.PeakAtOnce)
	p.Keep(seen.PeakPerSecond <= perSecond, "never more than %d in any second: %d", perSecond, seen.PeakPerSecond)
	p.Keep(shop.ordered() == stock && result[bought] == stock, "everything was sold, once: %d of %d", shop.ordered(), stock)
	p.Keep(shop.people() == shop.ordered(), "nobody ordered twice: %d orders from %d people", shop.ordered(), shop.people())
	p.Keep(result[doubleClick] == buyers, "every second click was refused: %d", result[doubleClick])
	quiet, after := shop.silence()
	p.Keep(quiet >= pause-50*time.Millisecond, "when it stumbled it was left alone for %v: %v", pause, quiet.Round(10*time.Millisecond))
	p.Keep(after <= perSecond/2, "and was not knocked over again: %d orders in the second after", after)
	return nil
}

func config() ax.Config {
	return ax.Config{
		MaxQueue: buyers,
		Hosts: &ax.Lane{
			MaxConcurrent: atOnce,
			Rate:          []ax.Rate{{Limit: perSecond, Smooth: true, Guard: 150 * time.Millisecond}},
			// More than 30 % failures among the last ten: nothing for three
			// seconds, then one order, then slowly more.
			Breaker: &ax.Breaker{Window: 10, FailureRate: 0.3, OpenFor: pause, Probes: 1, Ramp: 3 * time.Second},
			Retry:   &ax.Retry{Max: 3, Budget: 1},
		},
	}
}
