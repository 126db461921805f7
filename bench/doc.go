// Package bench measures ax beside the libraries and hand-written code that one
// would otherwise use, and judges the numbers by fixed marks.
//
// From the root of the repository, all of it in about ten minutes on two processors:
//
//	go run -C bench ./cmd/report
//
// It writes bench/RESULTS.md. With -quick it takes less than a minute, shows
// that everything runs and prints the table instead. (The module is a nested
// one, so that the peers stay out of ax's own go.mod; therefore -C.)
//
// # How it measures
//
// An experiment has contestants that do the same work. It runs them in rounds:
// in each, every contestant once, in an order drawn anew. What is compared is
// always two readings of one round, which saw the same minute of a machine that
// may be shared; the reported ratio is the median over the rounds, and its 95 %
// interval comes from resampling them. A mark is met or missed only if the whole
// interval says so.
//
// What needs a process of its own (a server, or a heap that nobody else has
// touched) runs in a copy of the binary, started through [ServeChild].
package bench
