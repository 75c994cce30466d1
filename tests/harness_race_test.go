//go:build race

package tests

// raceDetector says whether the tests, and so the binary they build, run with the race detector.
const raceDetector = true
