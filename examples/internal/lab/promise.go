package lab

import (
	"fmt"
	"io"
	"os"
)

// Promises are what an example claims, judged by what its server saw.
type Promises struct {
	out    io.Writer
	broken int
}

// Run is the main of an example: it runs f and exits with 1 if a promise was
// broken, with 2 if f could not do its work.
func Run(f func(out io.Writer, p *Promises) error) {
	p := &Promises{out: os.Stdout}
	if err := f(os.Stdout, p); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if p.broken > 0 {
		fmt.Fprintf(os.Stdout, "\n%d promises broken.\n", p.broken)
		os.Exit(1)
	}
	fmt.Fprintln(os.Stdout, "\nAll promises kept.")
}

// Keep prints one promise and whether it was kept.
func (p *Promises) Keep(kept bool, format string, args ...any) {
	word := "kept  "
	if !kept {
		word = "BROKEN"
		p.broken++
	}
	fmt.Fprintf(p.out, "  %s  %s\n", word, fmt.Sprintf(format, args...))
}
