//go:build !race

package ax_test

// raceEnabled is false in a plain build: the heavy tests run at full size.
const raceEnabled = false
