//go:build !race

package ax_test

// dRace tells that the race detector runs: it allows 8128 goroutines at once.
const dRace = false
