//go:build race

package ax_test

// raceEnabled scales the heavy tests down: the race detector is slow and
// allows only some eight thousand goroutines.
const raceEnabled = true
