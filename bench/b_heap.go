package bench

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	axHeapLabel  = "ax"
	stdHeapLabel = "container/heap"
)

func turnAt(n int) metric    { return metric(fmt.Sprintf("pop+push at %d, ns", n)) }
func removeAt(n int) metric  { return metric(fmt.Sprintf("cancel at %d, ns", n)) }
func replaceAt(n int) metric { return metric(fmt.Sprintf("cancel+push at %d, ns", n)) }

const heapAllocs metric = "allocs, most of all sizes"

// heapSizes are those of the package's own benchmark.
func heapSizes() []int { return []int{100, 1_000, 10_000, 100_000, 1_000_000} }

// queueAlone is b: the heap without anything around it. It is internal, so its
// benchmark is that of ax's own tests: they are built once and run in rounds.
func queueAlone(e effort) experiment {
	tests := &rootTests{time: "200ms"}
	if e.quick {
		tests.time = "1x"
	}
	one := func(label, how, benchmark string) contestant {
		return &heapBenchmark{tests: tests, label: label, notes: how, benchmark: benchmark}
	}
	x := experiment{
		id:     "b",
		title:  "The queue alone",
		about:  "Items as large as a small task, apart in memory; 64-bit keys in three words, later ones mostly greater. One pop and one push at a constant length, and taking out half of the items from anywhere in random order (what cancelling does), then as many pushes, which pay for what cancelling has left to do. No scheduler around it, one goroutine.",
		short:  shortHeap,
		rounds: e.rounds(5), fresh: true,
		groups: []group{{"one goroutine", []contestant{
			one(stdHeapLabel, "the standard library's, over the same items with the same keys", "BenchmarkContainerHeap"),
			one(axHeapLabel, "ax's internal heap", "BenchmarkHeap"),
		}}},
	}
	it := func(m metric) contender { return contender{"one goroutine", axHeapLabel, m} }
	for _, n := range heapSizes() {
		x.columns = append(x.columns, turnAt(n))
		if n <= 10_000 || n == 1_000_000 {
			limit := 0.75
			if n > 10_000 {
				limit = 0.45
			}
			x.marks = append(x.marks, ratioAtMost(limit, it(turnAt(n)), stdHeapLabel))
		}
	}
	for _, n := range heapSizes() {
		x.columns = append(x.columns, removeAt(n), replaceAt(n))
		x.marks = append(x.marks, ratioAtMost(0.5, it(removeAt(n)), stdHeapLabel))
	}
	x.columns = append(x.columns, heapAllocs)
	x.marks = append(x.marks, atMost(0, it(heapAllocs)))
	return x
}

// rootTests is the test binary of ax's package, built when first needed.
type rootTests struct {
	time   string // of each benchmark
	dir    string
	binary string
}

func (t *rootTests) build() error {
	if t.binary != "" {
		return nil
	}
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/axsched/ax").Output()
	if err != nil {
		return fmt.Errorf("where ax's source is: %w", err)
	}
	if t.dir, err = os.MkdirTemp("", "ax-bench"); err != nil {
		return err
	}
	binary := filepath.Join(t.dir, "ax.test")
	cmd := exec.Command("go", "test", "-c", "-o", binary, ".")
	cmd.Dir = strings.TrimSpace(string(root))
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building ax's tests: %w\n%s", err, out)
	}
	t.binary = binary
	return nil
}

func (t *rootTests) close() {
	if t.dir != "" {
		_ = os.RemoveAll(t.dir) // in the temporary directory anyway
	}
}

// heapBenchmark is a contestant: one of the benchmarks in that binary.
type heapBenchmark struct {
	tests                   *rootTests
	label, notes, benchmark string
}

func (h *heapBenchmark) name() string { return h.label }
func (h *heapBenchmark) how() string  { return h.notes }
func (h *heapBenchmark) close()       { h.tests.close() }

func (h *heapBenchmark) measure() (reading, error) {
	if err := h.tests.build(); err != nil {
		return nil, err
	}
	out, err := exec.Command(h.tests.binary, "-test.run=^$", "-test.bench=^"+h.benchmark+"$",
		"-test.benchtime="+h.tests.time, "-test.cpu=1").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", h.benchmark, err, out)
	}
	r := reading{}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		r.addBenchmarkLine(lines.Text())
	}
	if want := 3*len(heapSizes()) + 1; len(r) != want {
		return nil, fmt.Errorf("%s: %d of %d numbers in\n%s", h.benchmark, len(r), want, out)
	}
	return r, nil
}

// addBenchmarkLine takes what a line such as
//
//	BenchmarkHeap/op=turn/n=100-2  1000  86.1 ns/op  0 B/op  0 allocs/op
//
// says; other lines say nothing.
func (r reading) addBenchmarkLine(line string) {
	words := strings.Fields(line)
	if len(words) < 4 {
		return
	}
	op, size, ok := strings.Cut(words[0], "/n=")
	size, _, _ = strings.Cut(size, "-")
	n, err := strconv.Atoi(size)
	if !ok || err != nil {
		return
	}
	for i := 2; i+1 < len(words); i += 2 {
		v, err := strconv.ParseFloat(words[i], 64)
		if err != nil {
			return
		}
		switch unit := words[i+1]; {
		case strings.HasSuffix(op, "=turn") && unit == "ns/op":
			r[turnAt(n)] = v
		case strings.HasSuffix(op, "=turn") && unit == "allocs/op":
			r[heapAllocs] = max(r[heapAllocs], v)
		case strings.HasSuffix(op, "=remove") && unit == "ns/remove":
			r[removeAt(n)] = v
		case unit == "ns/replace":
			r[replaceAt(n)] = v
		}
	}
}
