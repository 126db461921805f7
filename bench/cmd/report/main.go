// Command report runs the experiments of package bench and writes RESULTS.md.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/axsched/ax/bench"
)

func main() {
	if bench.ServeChild() {
		return
	}
	quick := flag.Bool("quick", false, "less than a minute; prints instead of writing a file")
	only := flag.String("only", "", "experiments to run, as in a1,c; empty = all; prints instead of writing a file")
	out := flag.String("o", "", "file to write; \"\" = RESULTS.md after a full run, else standard output")
	procs := flag.Int("procs", 0, "processors to use; 0 = 2, which the marks are made for")
	profiles := flag.String("profiles", "", "existing directory for CPU profiles of ax; \"\" = none are kept")
	check := flag.Bool("check", false, "fail if a mark is missed")
	flag.Parse()
	opts := bench.Options{Quick: *quick, Procs: *procs, Profiles: *profiles, Progress: progress}
	if *only != "" {
		opts.Only = strings.Split(*only, ",")
	}
	if *out == "" && !*quick && *only == "" {
		*out = "RESULTS.md"
	}
	missed, err := run(opts, *out)
	if err == nil && *check && missed > 0 {
		err = fmt.Errorf("%d marks missed", missed)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "\nreport:", err)
		os.Exit(1)
	}
}

func run(opts bench.Options, out string) (missed int, err error) {
	result, err := bench.Run(opts)
	if err != nil {
		return 0, err
	}
	if err := write(result, out); err != nil {
		return 0, err
	}
	progress(result.Summary())
	fmt.Fprintln(os.Stderr)
	return result.Missed(), nil
}

func write(result bench.Result, out string) (err error) {
	var w io.Writer = os.Stdout
	if out != "" {
		f, err := os.Create(out)
		if err != nil {
			return err
		}
		defer func() { err = f.Close() }()
		w = f
	}
	return result.Write(w)
}

// progress overwrites one line.
func progress(what string) { fmt.Fprintf(os.Stderr, "\r\033[K%s", what) }
