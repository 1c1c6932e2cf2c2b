//go:build race

package sim_test

// The race detector keeps something for each of the coroutines that a fleet's requests
// are, of which there are millions, and a fleet has nothing for it to find.
const raceDetector = true
